// The torch engine: ATen's products and attention, autograd, and this project's residual rules. On the CPU it computes
// what the native engine does, to rounding; on a GPU it is what makes large models possible.
#include "model/engine.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "dist/gpu_choice.h"
#include "dist/launch.h"
#include "model/instruction_set.h"
#include "torch/decoder.h"
#include "torch/trainable.h"
#include "torch/tree_scorer.h"

namespace ddl {
namespace {

// Torch's CUDA half is a library of its own, half a gigabyte, which is opened where somebody wants it.
std::string cuda_problem() {
  static const std::string problem = [] {
    if (!::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
      return std::string("this machine has no NVIDIA driver (libcuda.so.1 cannot be opened)");
    if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) {
      const char* const reason = ::dlerror();
      return fmt::format("torch's CUDA libraries cannot be opened ({}); run: ./ddl setup cuda",
                         reason ? reason : "no reason given");
    }
    if (at::detail::getCUDAHooks().deviceCount() == 0) return std::string("there is no GPU");
    return std::string();
  }();
  return problem;
}

// "cpu", "cuda", "cuda:N" or "auto".
at::Device device_of(const std::string& chosen) {
  if (chosen == "cpu") return at::Device(at::kCPU);
  const std::string problem = cuda_problem();
  if (chosen == "auto" && !problem.empty()) return at::Device(at::kCPU);
  if (!problem.empty()) throw UserError("--device {}: {}", chosen, problem);
  const int devices = at::detail::getCUDAHooks().deviceCount();
  const at::Device device = chosen == "auto" || chosen == "cuda"
                                ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu_of_rank(
                                                            read_launch(Meeting::kNone).local_rank, devices)))
                                : at::Device(chosen);
  if (device.has_index() && device.index() >= devices)
    throw UserError("--device {}: this machine has {} GPU{}, counted from 0", chosen, devices,
                    devices == 1 ? "" : "s");
  return device;
}

// A function of the driver; null where there is none.
template <class Function>
Function* of_driver(const char* name) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver ? reinterpret_cast<Function*>(::dlsym(driver, name)) : nullptr;
}

// bf16 came with compute capability 8.
bool gpu_has_bf16(int gpu) {
  constexpr int kMajorOfCapability = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  const auto ask = of_driver<int(int*, int, int)>("cuDeviceGetAttribute");
  int major = 0;
  return ask && ask(&major, kMajorOfCapability, gpu) == 0 && major >= 8;
}

}  // namespace

std::string gpu_address(int gpu) {
  const auto ask = of_driver<int(char*, int, int)>("cuDeviceGetPCIBusId");
  char address[32] = "";
  if (!ask || ask(address, sizeof address, gpu) != 0) throw UserError("the driver does not know GPU {}", gpu);
  return address;
}

namespace {

TorchPlace chosen_place() {
  TorchPlace place{.device = device_of(chosen_device())};
#ifdef DDL_CUDA_KERNELS
  if (place.device.is_cuda()) place.kernels = &cuda::gpu_kernels();
#endif
  return place;
}

class TorchEngine final : public Engine {
 public:
  std::string name() const override { return "torch"; }
  std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                                 const OptimizerConfig& optimizer, std::uint64_t seed,
                                                 const Exec& ex) const override {
    return make_torch_trainable(config, shape, optimizer, seed, ex, chosen_place());
  }
  std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape,
                                        const Exec&) const override {
    return make_torch_decoder(weights, shape, chosen_place());
  }
  std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape,
                                               const Exec&) const override {
    return make_torch_tree_scorer(weights, shape, chosen_place());
  }
  void check_device() const override { device_of(chosen_device()); }
  bool has_fast_bf16() const override {
    const at::Device device = device_of(chosen_device());
    return device.is_cuda() ? gpu_has_bf16(std::max<int>(device.index(), 0)) : ddl::has_fast_bf16();
  }
};

}  // namespace
}  // namespace ddl

extern "C" const ddl::Engine* ddl_torch_engine() {
  static const ddl::TorchEngine engine;
  return &engine;
}
