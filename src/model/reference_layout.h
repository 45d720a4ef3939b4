// The paper's released parameter names and config.json keys, both ways. Most tensors are the same; the short
// convolutions are stored feature by feature there and tap by tap here, and the released channel compressor
// is a convolution along the channels and a read vector, which fold into the one weight per feature and
// channel that this project has.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "core/record.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "model/weights.h"

namespace ddl {

struct ReferenceModel {
  Json config;                             // config.json
  std::vector<TensorToWrite> tensors;      // some lie in the model itself: it must outlive this
  std::deque<std::vector<float>> storage;  // of the others
};

// Throws UserError, with the reason, where the released code cannot express the model.
ReferenceModel to_reference(Model& model);

// What model the released configuration and tensors make. Throws UserError where this project cannot express
// it.
ModelConfig from_reference_config(const Json& config, const std::string& source_name,
                                  const WeightFolder& weights);
// Its weights into a model of that configuration.
void load_reference_weights(Model& model, const WeightFolder& weights, const Exec& ex);

}  // namespace ddl
