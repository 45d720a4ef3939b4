#include "model/packed_weights.h"

#include <algorithm>
#include <iterator>

#include "core/cache_line.h"
#include "core/error.h"

namespace ddl {

PackedWeights::PackedWeights(const ParamTable& table, WeightFormat format) : format_(format) {
  Matrix* last = nullptr;
  for (const Param& p : table.list()) {
    if (!p.packed) continue;
    const Index O = p.shape.front(), I = p.shape.back();
    if (p.joined) {
      DDL_CHECK(last && last->shape.I == I, "{} is joined to a matrix of another width", p.name);
      last->shape.O += O;
      continue;
    }
    last = &matrices_[p.offset];
    last->shape = {p.embedding ? info(format).embedding : format, O, I};
    widest_ = std::max(widest_, I);
  }
  for (auto& [offset, matrix] : matrices_) {
    matrix.begin = size_;
    size_ += round_up(matrix.shape.bytes(), kCacheLineBytes);
  }
  arena_ = Arena::planned([this](Arena& arena) { data_ = arena.take<std::byte>("matrices", size_); });
}

PackedMatrix PackedWeights::matrix(Index offset) const {
  const Matrix& m = matrices_.at(offset);
  return {m.shape, data_ + m.begin};
}

PackedWeights::Rows PackedWeights::rows(const Param& param) const {
  DDL_CHECK(param.packed, "{} is not packed", param.name);
  const auto& [offset, m] = *std::prev(matrices_.upper_bound(param.offset));
  return {{m.shape, data_ + m.begin}, div_exact(param.offset - offset, m.shape.I), param.shape.front()};
}

void PackedWeights::set_rows(const Param& param, SetRow set, const Exec& ex) {
  const Rows at = rows(param);
  const Index end = at.first + at.count, first_panel = at.first / kPanelRows;
  std::byte* data = data_ + (at.matrix.data - data_);
  parallel_for(ceil_div(end, kPanelRows) - first_panel, ex, [&](Index panel) {
    const Index begin = (first_panel + panel) * kPanelRows;
    for (Index o = std::max(at.first, begin); o < std::min(end, begin + kPanelRows); ++o)
      set(data, at.matrix.shape, o, o - at.first);
  });
}

void PackedWeights::pack(const Param& param, const float* w_OI, const Exec& ex) {
  set_rows(
      param,
      [&](std::byte* data, const PackedShape& shape, Index o, Index row) {
        pack_row(data, shape, o, w_OI + row * shape.I);
      },
      ex);
}

void PackedWeights::unpack(float* w_OI, const Param& param, const Exec& ex) const {
  const Rows at = rows(param);
  parallel_for(at.count, ex,
               [&](Index row) { unpack_row(w_OI + row * at.matrix.shape.I, at.matrix, at.first + row); });
}

}  // namespace ddl
