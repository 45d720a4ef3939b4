// The residual rule: everything that differs between a plain Transformer and a delta Transformer is behind
// this class. No other folder computes by the rule's name, but for src/torch/formula_stream.cc: its one table has the
// formulas that GPUs run.
//
// A network of S sublayers (attention, MLP, attention, ...) runs as
//     start                    the embedding becomes the state;  read: context_0 = RMSNorm(x_in)
//     for s = 0 .. S-1:        h = sublayer_s(context_s)
//         write_and_read(s)    h enters the state;  read: context_{s+1}, after the last sublayer the readout
// and backward as the mirror image: write_and_read_backward(S-1), ..., (0), start_backward. Write and read
// share a call because a token's state is then in the first-level cache for both.
//
// The same verbs serve training, prompts, single tokens and trees of sequences: what differs is `Tokens`.
//
// A rule owns its state, its saved values and the norm in front of every sublayer (the norm is part of the
// same pass). T is the type of activations: float or bf16. State, norms, gates and statistics are always f32.
#pragma once

#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "model/params.h"
#include "model/part.h"
#include "model/token_series.h"
#include "model/tokens.h"

namespace ddl {

template <class T>
class ResidualRule {
 public:
  virtual ~ResidualRule() = default;

  // Before any pass, in this order. plan() runs twice: measuring, then for real.
  virtual void add_params(ParamTable& table) = 0;
  virtual void plan(Arena& arena, const Room& room) = 0;
  virtual void bind(const Numbers<T>& numbers) = 0;

  // Forward. A span at position 0 begins a new sequence in its slot. With spans, a token's result depends on
  // its sequence alone: not on the other spans, nor on how the sequence is cut into spans.
  virtual void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) = 0;
  virtual void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                              const Exec& ex) = 0;
  virtual void copy_slot(Index to, Index from) = 0;  // what it remembers of a sequence

  // Backward, after a forward pass over the same whole sequences. dnext_context_NC is the gradient of what
  // write_and_read(s) read; it may be changed. dh_NC and dx_NC are overwritten.
  virtual void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC,
                                       const T* h_NC, const Tokens& tokens, const Exec& ex) = 0;
  virtual void start_backward(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                              const Tokens& tokens, const Exec& ex) = 0;

  // Per token, multiply-add as two: the rule's own arithmetic, norms included.
  virtual double flops_forward() const = 0;
  virtual double flops_backward() const = 0;
  virtual Index remembered_floats() const = 0;  // per sequence and slot
  // What a sublayer's write and read go through, per token: the state, or what is read in its place (on average).
  virtual double state_floats() const = 0;

  virtual std::vector<TokenSeries> series(Index /*s*/) const { return {}; }

  // For audits, in forward passes over whole sequences that keep what training keeps (Room::training).
  // In front of sublayer s, S being the head; valid until its write.
  virtual StateView view(Index /*s*/) const { return {}; }
  // What the head would read if the network ended in front of sublayer s. False: the rule cannot say.
  virtual bool read_as_last(Index /*s*/, T* /*context_NC*/, const Tokens& /*tokens*/, const Exec& /*ex*/) {
    return false;
  }
  // From now on; null ends it. The rule refers to it. False: there is no such series, or it cannot be replaced.
  virtual bool replace(const Replacement* /*replacement*/) { return false; }
};

}  // namespace ddl
