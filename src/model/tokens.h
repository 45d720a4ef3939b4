// Which tokens a pass is of.
#pragma once

#include <span>

#include "core/index.h"

namespace ddl {

// `count` tokens of one sequence, the first at `position`. Their rows follow those of the span before. They
// continue the sequence in slot `from`, or, where `parent` is given, the end of that span of the same pass,
// and afterwards the sequence is in `slot`. So one sequence may be continued several times.
struct Span {
  Index slot = 0, position = 0, count = 0;
  Index from = slot;
  Index parent = -1;
};
using Spans = std::span<const Span>;

// The tokens of one pass: whole sequences, or spans of sequences whose past is remembered by slot.
struct Tokens {
  Index count = 0;            // N
  Index sequence_length = 0;  // T: whole sequences of T tokens, one after another; 0: spans
  Spans spans = {};

  static Tokens whole(Index B, Index T) { return {B * T, T, {}}; }
  static Tokens of(Spans spans) {
    Index n = 0;
    for (const Span& span : spans) n += span.count;
    return {n, 0, spans};
  }
  bool are_whole_sequences() const { return sequence_length > 0; }
};

}  // namespace ddl
