#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace ddl {
namespace {

// Where input i of row o lies: a word, and the lowest of its bits there.
struct Place {
  Index word_offset;  // in bytes
  Index shift;
};
Place place(const PackedShape& s, Index o, Index i) {
  const Index bits = info(s.format).bits, per_word = 32 / bits;
  const Index in_block = i % kBlockInputs, in_word = in_block % per_word;
  const Index word = in_block / per_word * kPanelRows + o % kPanelRows;
  return {o / kPanelRows * s.panel_bytes() + i / kBlockInputs * s.block_bytes() + word * 4,
          in_word % 2 * 16 + in_word / 2 * bits};
}

Index scale_offset(const PackedShape& s, Index o, Index block) {
  return o / kPanelRows * s.panel_bytes() + block * s.block_bytes() + s.word_bytes() +
         o % kPanelRows * Index{sizeof(bf16)};
}

std::uint32_t mask(const PackedShape& s) { return (1u << info(s.format).bits) - 1; }

void put(std::byte* data, const PackedShape& s, Index o, Index i, std::uint32_t code) {
  const Place at = place(s, o, i);
  std::uint32_t word;
  std::memcpy(&word, data + at.word_offset, 4);
  word = (word & ~(mask(s) << at.shift)) | (code & mask(s)) << at.shift;
  std::memcpy(data + at.word_offset, &word, 4);
}

std::uint32_t get(const std::byte* data, const PackedShape& s, Index o, Index i) {
  const Place at = place(s, o, i);
  std::uint32_t word;
  std::memcpy(&word, data + at.word_offset, 4);
  return word >> at.shift & mask(s);
}

std::int32_t get_code(const std::byte* data, const PackedShape& s, Index o, Index i) {
  const auto code = static_cast<std::int32_t>(get(data, s, o, i)), half = 1 << (info(s.format).bits - 1);
  return code >= half ? code - 2 * half : code;
}

void put_scale(std::byte* data, const PackedShape& s, Index o, Index block, bf16 scale) {
  std::memcpy(data + scale_offset(s, o, block), &scale, sizeof scale);
}

bf16 get_scale(const std::byte* data, const PackedShape& s, Index o, Index block) {
  bf16 scale;
  std::memcpy(&scale, data + scale_offset(s, o, block), sizeof scale);
  return scale;
}

// The scale of a block whose number of largest magnitude is m.
bf16 block_scale(WeightFormat format, float m) {
  return to_bf16(format == WeightFormat::kQ4 ? -m / 8 : std::abs(m) / 127);
}

}  // namespace

void pack_row(std::byte* data, const PackedShape& s, Index o, const float* w_I) {
  const WeightFormatInfo& format = info(s.format);
  const Index filled = s.blocks() * kBlockInputs;
  if (!format.has_scales) {
    for (Index i = 0; i < filled; ++i) put(data, s, o, i, to_bf16(i < s.I ? w_I[i] : 0.0f).bits);
    return;
  }
  const float least = s.format == WeightFormat::kQ4 ? -8 : -127,
              most = s.format == WeightFormat::kQ4 ? 7 : 127;
  for (Index block = 0; block < s.blocks(); ++block) {
    const Index begin = block * kBlockInputs, end = std::min(s.I, begin + kBlockInputs);
    float m = 0;
    for (Index i = begin; i < end; ++i)
      if (std::abs(w_I[i]) > std::abs(m)) m = w_I[i];
    const bf16 scale = block_scale(s.format, m);
    put_scale(data, s, o, block, scale);
    const float step = to_float(scale);
    for (Index i = begin; i < begin + kBlockInputs; ++i) {
      const float code = i < end && step != 0 ? std::clamp(std::nearbyint(w_I[i] / step), least, most) : 0;
      put(data, s, o, i, static_cast<std::uint32_t>(static_cast<std::int32_t>(code)));
    }
  }
}

void unpack_row(float* w_I, const PackedMatrix& w, Index o) {
  const PackedShape& s = w.shape;
  const WeightFormatInfo& format = info(s.format);
  for (Index i = 0; i < s.I; ++i)
    w_I[i] = format.has_scales ? to_float(get_scale(w.data, s, o, i / kBlockInputs)) *
                                     static_cast<float>(get_code(w.data, s, o, i))
                               : to_float(bf16{static_cast<std::uint16_t>(get(w.data, s, o, i))});
}

void pack_codes(std::byte* data, const PackedShape& s, Index o, const std::int8_t* code_I,
                const bf16* scale_b) {
  DDL_DCHECK(info(s.format).has_scales, "{} has no codes", info(s.format).name);
  for (Index block = 0; block < s.blocks(); ++block) put_scale(data, s, o, block, scale_b[block]);
  for (Index i = 0; i < s.blocks() * kBlockInputs; ++i)
    put(data, s, o, i, i < s.I ? static_cast<std::uint32_t>(code_I[i]) : 0);
}

void unpack_codes(std::int8_t* code_I, bf16* scale_b, const PackedMatrix& w, Index o) {
  for (Index block = 0; block < w.shape.blocks(); ++block)
    scale_b[block] = get_scale(w.data, w.shape, o, block);
  for (Index i = 0; i < w.shape.I; ++i) code_I[i] = static_cast<std::int8_t>(get_code(w.data, w.shape, o, i));
}

}  // namespace ddl
