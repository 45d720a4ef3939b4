// A model that learns, on torch.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "model/trainable.h"
#include "torch/cuda/kernels.h"

namespace ddl {

// Which residual stream (residual_stream.h); kAuto: verbs on the CPU, on a GPU kernels or else formulas.
enum class StreamKind { kAuto, kVerbs, kFormulas, kKernels };

struct TorchPlace {
  c10::Device device = c10::Device(c10::kCPU);
  StreamKind stream = StreamKind::kAuto;
  const cuda::Kernels* kernels = nullptr;  // null: none were compiled
};

std::string gpu_address(int gpu);  // on the machine's bus, as the driver says it

std::unique_ptr<TrainableModel> make_torch_trainable(const ModelConfig& config, BatchShape shape,
                                                     const OptimizerConfig& optimizer, std::uint64_t seed,
                                                     const Exec& ex, const TorchPlace& place);

}  // namespace ddl
