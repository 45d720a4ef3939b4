// A matrix of weights in a small format (core/weight_format.h), laid out so that one kernel streams it from memory
// with a row in every vector lane (packed_product.h). O outputs, I inputs.
//
// Rows come in panels of 16, inputs in blocks of 32; both are filled up with zeros. Panels follow one another, and
// in a panel its blocks. A block is
//     words [bits][16 rows]     the codes, packed into words of 32 bits
//     scales [16 rows]          bf16, where the format has them
// A word holds the codes of 32 / bits inputs of its row, one after another: even inputs in its lower half, odd ones
// in its upper half, the first in the lowest bits of each. So a shift and a mask give a pair of neighbours as two
// 16-bit numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bf16.h"
#include "core/index.h"
#include "core/weight_format.h"

namespace ddl {

inline constexpr Index kPanelRows = 16;

struct PackedShape {
  WeightFormat format = WeightFormat::kBf16;
  Index O = 0, I = 0;

  constexpr Index panels() const { return ceil_div(O, kPanelRows); }
  constexpr Index blocks() const { return ceil_div(I, kBlockInputs); }  // of a row
  constexpr Index word_bytes() const { return info(format).bits * kPanelRows * 4; }
  constexpr Index block_bytes() const {
    return word_bytes() + (info(format).has_scales ? kPanelRows * Index{sizeof(bf16)} : 0);
  }
  constexpr Index panel_bytes() const { return blocks() * block_bytes(); }
  constexpr Index bytes() const { return panels() * panel_bytes(); }
};

struct PackedMatrix {
  PackedShape shape;
  const std::byte* data = nullptr;
};

// Row o from its I numbers: overwrites the row, its filling included. Rows of different panels may be set by
// different threads.
//   bf16    to nearest even
//   q8      scale = max |w| / 127
//   q4      scale = -m / 8, where m is the number of largest magnitude: it gets code -8, and all 16 codes are used
// Scales and codes are to nearest. Numbers must be finite.
void pack_row(std::byte* data, const PackedShape& shape, Index o, const float* w_I);
void unpack_row(float* w_I, const PackedMatrix& w, Index o);

// The same for codes as they are stored in files: a byte per code, a scale per block. For formats that have them.
void pack_codes(std::byte* data, const PackedShape& shape, Index o, const std::int8_t* code_I,
                const bf16* scale_b);
void unpack_codes(std::int8_t* code_I, bf16* scale_b, const PackedMatrix& w, Index o);

}  // namespace ddl
