// The paper's released parameter names and config.json keys, both ways. Most tensors are the same; the short
// convolutions are stored feature by feature there and tap by tap here. The released channel compressor is a
// convolution along the channels and a read vector (model.channel_compressor = convolution); a model with one
// weight per feature and channel is written as a convolution whose read vector picks one position, and such a
// one is read back as those weights.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/record.h"
#include "io/safetensors.h"
#include "model/weight_folder.h"
#include "model/weights.h"

namespace ddl {

inline constexpr const char* kReferenceModelType = "nanogpt-pro";

struct ReferenceModel {
  Json config;                             // config.json
  std::vector<TensorToWrite> tensors;      // some lie in the weights themselves: they must outlive this
  std::deque<std::vector<float>> storage;  // of the others
};

// Why the released code cannot express such a model; empty where it can.
std::string why_not_in_reference(const ModelConfig& config);
// Throws UserError with that reason.
ReferenceModel to_reference(const Weights& weights);

// What model the released configuration and tensors make. Throws UserError where this project cannot express
// it, or does not know a key; reference_config.cc has the list of those that change nothing.
bool is_reference_config(std::string_view config_json);
ModelConfig from_reference_config(std::string_view config_json, const std::string& source_name,
                                  const WeightFolder& weights);
// Whether the folder's tensors fill a model of that configuration; throws UserError where not.
void check_reference_weights(const ParamTable& table, const ModelConfig& config, const WeightFolder& weights);
void load_reference_weights(Weights& weights, const WeightFolder& folder, const Exec& ex);

}  // namespace ddl
