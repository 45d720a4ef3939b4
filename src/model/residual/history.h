// What a convolution over tokens finds before a span: rows of the same pass where the span continues another
// one, and beyond those the last rows of a slot, which are kept in a ring (the row of the token at position p
// in place p mod its length).
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/short_conv.h"
#include "model/tokens.h"

namespace ddl {

class History {
 public:
  // The rings of all slots: `length` rows of `row_floats` each, slots `slot_floats` apart.
  struct Rings {
    float* data;
    Index slot_floats, length, row_floats;
    float* row(Index slot, Index position) const {
      return data + slot * slot_floats + position % length * row_floats;
    }
  };

  History(Rings rings, const float* rows, Spans spans) : rings_(rings), rows_(rows), spans_(spans) {
    Index row = 0;
    for (const Span& span : spans) first_row_.push_back(row), row += span.count;
  }

  Index first_row(Index span) const { return first_row_[span]; }

  // The rows before a span's first token, the nearest first, into `before` (room for the ring's length).
  RowsBefore before(Index span, const float** before) const {
    const Index wanted = std::min(rings_.length, spans_[span].position);
    Index found = 0;
    Index at = span;
    while (found < wanted && spans_[at].parent >= 0) {
      at = spans_[at].parent;
      for (Index i = spans_[at].count - 1; i >= 0 && found < wanted; --i) before[found++] = row(at, i);
    }
    for (Index p = spans_[at].position - 1; found < wanted; --p)
      before[found++] = rings_.row(spans_[at].from, p);
    return {before, static_cast<std::size_t>(found)};
  }

  // Leaves the rings as the next pass needs them. A slot that several spans of this pass end up in keeps the
  // last; what the others would have left is reached through the spans themselves.
  void remember(Index slots) const {
    if (rings_.length == 0) return;
    std::vector<Index> last(static_cast<std::size_t>(slots), -1);
    for (Index i = 0; i < std::ssize(spans_); ++i) last[spans_[i].slot] = i;
    for (Index i = 0; i < std::ssize(spans_); ++i) {
      const Span& span = spans_[i];
      if (last[span.slot] != i) continue;
      const float* rows[kMaxTaps];
      const RowsBefore earlier = before(i, rows);
      for (Index back = 0; back < std::min(rings_.length, span.position + span.count); ++back) {
        const float* from = back < span.count ? row(i, span.count - 1 - back) : earlier[back - span.count];
        float* to = rings_.row(span.slot, span.position + span.count - 1 - back);
        if (from != to) std::memcpy(to, from, static_cast<std::size_t>(rings_.row_floats) * sizeof(float));
      }
    }
  }

 private:
  const float* row(Index span, Index i) const { return rows_ + (first_row_[span] + i) * rings_.row_floats; }

  Rings rings_;
  const float* rows_;
  Spans spans_;
  std::vector<Index> first_row_;
};

}  // namespace ddl
