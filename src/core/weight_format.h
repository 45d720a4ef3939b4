// The formats in which a model's large matrices can be stored for inference. Every other parameter stays f32.
//
//   f32     as trained
//   bf16    the upper half of an f32
//   q8      in blocks of 32 inputs, w = scale * code: codes from -127 to 127, a bf16 scale for each block
//   q4      the same with codes from -8 to 7; the embedding, which is also the head, is q8
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"

namespace ddl {

enum class WeightFormat { kF32, kBf16, kQ8, kQ4 };

inline constexpr Index kBlockInputs = 32;

struct WeightFormatInfo {
  WeightFormat format;
  const char* name;
  Index bits;              // of a code, or of the number itself
  bool has_scales;         // codes in blocks
  WeightFormat embedding;  // what the embedding has where the other matrices have this
};

inline constexpr WeightFormatInfo kWeightFormats[] = {
    {WeightFormat::kF32, "f32", 32, false, WeightFormat::kF32},
    {WeightFormat::kBf16, "bf16", 16, false, WeightFormat::kBf16},
    {WeightFormat::kQ8, "q8", 8, true, WeightFormat::kQ8},
    {WeightFormat::kQ4, "q4", 4, true, WeightFormat::kQ8},
};
constexpr const WeightFormatInfo& info(WeightFormat format) {
  return kWeightFormats[static_cast<int>(format)];
}

std::vector<std::string> weight_format_names();
WeightFormat parse_weight_format(std::string_view name);  // throws UserError, naming all

}  // namespace ddl
