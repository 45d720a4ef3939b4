// A model of the time of a training step on many devices: what the arithmetic, the memory and the links at
// their rates would take. Pure functions of numbers; `ddl plan` prints them. Everything it assumes is a
// field, so that it can be printed, too.
#pragma once

#include <string>
#include <vector>

#include "core/index.h"

namespace ddl {

// What one device can do.
struct Device {
  std::string name;
  double flops = 0;           // dense matrix products per second, at their best
  double memory_rate = 0;     // bytes per second
  double memory_bytes = 0;    // 0: not checked
  double link_rate = 0;       // bytes per second and direction, to the others of its machine
  double matmul_share = 1;    // of `flops` that the products of a Transformer reach
  double memory_share = 1;    // of `memory_rate` that passes over arrays reach
  double launch_seconds = 0;  // that every kernel costs besides
  double exp_rate = 0;        // exponentials per second; 0: hidden by passes over memory, as on a GPU
};
// Data sheets: dense bf16, without sparsity.
const std::vector<Device>& known_devices();
const Device& find_device(const std::string& name);  // throws UserError naming those there are

// What is to be done.
struct StepWork {
  double micro_tokens = 0;    // of a micro-batch
  double flops_forward = 0;   // of one token's matrix products
  double flops_backward = 0;  // with what is computed again
  double bytes_forward = 0;   // of one token's passes over activations and the residual state
  double bytes_backward = 0;
  double exponentials = 0;  // of one token, forward and backward: attention's, SwiGLU's and the loss's
  double kernels = 0;       // of a micro-batch, forward and backward
  double parameters = 0;
  double update_bytes = 0;    // that one update of all parameters moves
  double gradient_bytes = 0;  // that ranks sum
  double tail_share = 0;      // of the gradients: those that are final only when backward has ended
  // Where a micro-batch's products were measured instead: their time, which flops then do not count
  double micro_seconds = 0;
};

struct Cluster {
  Index nodes = 1, devices = 1;  // in all
  double node_link_rate = 0;     // bytes per second between two machines
  Index accumulate = 1;          // micro-batches of a step, over all devices
  bool shared_state = false;     // train.zero
  bool hides_sums = true;        // gradients are summed while the backward pass goes on; not by ranks on all
                                 // cores of a machine, because the cores that compute also send
};

struct StepTime {
  double micro_s = 0;                                          // a micro-batch
  double matmul_s = 0, memory_s = 0, exp_s = 0, launch_s = 0;  // its parts
  double update_s = 0;
  double communication_s = 0;  // of the gradients
  double exposed_s = 0;        // the part that nothing hides
  double step_s = 0;
  double tokens_per_s = 0;
  double mfu = 0;  // useful FLOPs over what the devices could do
};

// A ring among the devices of a machine, then one among machines:
//   2 (g-1)/g bytes / link + 2 (n-1)/n bytes / node link.
double all_reduce_seconds(double bytes, const Device& device, const Cluster& cluster);

// `useful_flops` of one token, for the MFU: forward and backward without recomputation.
StepTime estimate_step(const StepWork& work, const Device& device, const Cluster& cluster,
                       double useful_flops);

}  // namespace ddl
