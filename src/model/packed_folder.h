// Small weights in files. Tensors that stay f32 are stored under their names as always; a matrix NAME of O rows of I
// inputs, each B = ceil(I / 32) blocks, is
//
//   bf16    NAME            BF16 [O, I]
//   q8      NAME.codes      I8 [O, I]
//           NAME.scales     BF16 [O, B]
//   q4      NAME.codes      U8 [O, 16 B]    two codes to a byte, that of the even input in the lower half, 0 as filling
//           NAME.scales     BF16 [O, B]
//
// and "ddl_weights" in config.json names the format. So files do not depend on how the kernels lay their numbers out.
#pragma once

#include <cstddef>
#include <vector>

#include "io/safetensors.h"
#include "model/weight_folder.h"
#include "model/weights.h"

namespace ddl {

// Both throw UserError naming file and tensor: where one is missing, has another shape or type, is not in the table,
// or where a scale is not finite.
void check_packed_weights(const ParamTable& table, WeightFormat format, const WeightFolder& folder);
void load_packed_weights(Weights& weights, const WeightFolder& folder, const Exec& ex);

// What such a folder's model.safetensors holds. Refers to the weights for what is f32, and owns the rest.
class PackedTensors {
 public:
  PackedTensors(const Weights& weights, const Exec& ex);
  const std::vector<TensorToWrite>& tensors() const { return tensors_; }

 private:
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<TensorToWrite> tensors_;
};

}  // namespace ddl
