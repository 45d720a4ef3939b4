// The large matrices of a model in a small format, for inference: the linear layers of the network and the
// embedding, which is also the head. Neighbours that are joined in the table are one matrix.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "core/weight_format.h"
#include "kernels/packed_matrix.h"
#include "model/params.h"

namespace ddl {

class PackedWeights {
 public:
  // Room for the packed tensors of `table`; all bytes are zero.
  PackedWeights(const ParamTable& table, WeightFormat format);

  WeightFormat format() const { return format_; }
  PackedMatrix matrix(Index offset) const;  // the one that begins at this offset of the table
  Index widest() const { return widest_; }  // the most inputs of any
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

  // A tensor's rows are those of `matrix` from `first` on.
  struct Rows {
    PackedMatrix matrix;
    Index first = 0, count = 0;
  };
  Rows rows(const Param& param) const;
  // set(data, shape, o, row) for all rows of a tensor: what is to become row o of the matrix at `data`. Rows that
  // share a panel are set by one thread.
  using SetRow = FunctionRef<void(std::byte* data, const PackedShape& shape, Index o, Index row)>;
  void set_rows(const Param& param, SetRow set, const Exec& ex);

  void pack(const Param& param, const float* w_OI, const Exec& ex);
  void unpack(float* w_OI, const Param& param, const Exec& ex) const;

 private:
  struct Matrix {
    PackedShape shape;
    Index begin = 0;  // of its bytes
  };

  WeightFormat format_;
  std::map<Index, Matrix> matrices_;  // by offset in the table
  Index widest_ = 0, size_ = 0;
  Arena arena_ = Arena::measuring();
  std::byte* data_ = nullptr;
};

}  // namespace ddl
