// Empty; see context.h.
