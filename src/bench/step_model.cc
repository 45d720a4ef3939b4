#include "bench/step_model.h"

#include <algorithm>

#include "core/error.h"
#include "core/options.h"

namespace ddl {

const std::vector<Device>& known_devices() {
  constexpr double T = 1e12, G = 1e9;
  // name, FLOP/s, memory bytes/s, bytes, link bytes/s in one direction
  static const std::vector<Device> all = {
      {"a100", 312 * T, 2039 * G, 80 * G, 300 * G},  {"h100", 989 * T, 3350 * G, 80 * G, 450 * G},
      {"h200", 989 * T, 4800 * G, 141 * G, 450 * G}, {"b200", 2250 * T, 8000 * G, 180 * G, 900 * G},
      {"l40s", 362 * T, 864 * G, 48 * G, 32 * G},    {"rtx4090", 165 * T, 1008 * G, 24 * G, 32 * G},
  };
  return all;
}

const Device& find_device(const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : known_devices()) {
    if (device.name == name) return device;
    names.push_back(device.name);
  }
  throw UserError("no GPU '{}' is known; there are {} (nearest: {})", name, fmt::join(names, ", "),
                  nearest(name, names));
}

double all_reduce_seconds(double bytes, const Device& device, const Cluster& cluster) {
  const auto ring = [&](Index members, double rate) {
    const double n = static_cast<double>(members);
    return members > 1 ? 2 * (n - 1) / n * bytes / rate : 0;
  };
  return ring(cluster.devices / cluster.nodes, device.link_rate) +
         ring(cluster.nodes, cluster.node_link_rate);
}

StepTime estimate_step(const StepWork& work, const Device& device, const Cluster& cluster,
                       double useful_flops) {
  const double rate = device.flops * device.matmul_share, memory = device.memory_rate * device.memory_share;
  const double micros = static_cast<double>(cluster.accumulate / cluster.devices);
  const double devices = static_cast<double>(cluster.devices);
  StepTime t;
  t.matmul_s = work.micro_seconds > 0 ? work.micro_seconds
                                      : work.micro_tokens * (work.flops_forward + work.flops_backward) / rate;
  t.memory_s = work.micro_tokens * (work.bytes_forward + work.bytes_backward) / memory;
  t.launch_s = work.kernels * device.launch_seconds;
  t.exp_s = device.exp_rate > 0 ? work.micro_tokens * work.exponentials / device.exp_rate : 0;
  t.micro_s = t.matmul_s + t.memory_s + t.exp_s + t.launch_s;
  t.update_s = work.update_bytes / memory / (cluster.shared_state ? devices : 1);
  t.communication_s = all_reduce_seconds(work.gradient_bytes, device, cluster);
  // The last backward pass hides the gradients of the layers above the one it is at; the tail comes after it.
  // What train.zero sends after the update, half as much again, nothing hides.
  const double backward_share = work.flops_backward / (work.flops_forward + work.flops_backward);
  const double hidden = cluster.hides_sums
                            ? std::min((1 - work.tail_share) * t.communication_s, backward_share * t.micro_s)
                            : 0;
  t.exposed_s = t.communication_s - hidden + (cluster.shared_state ? 0.5 * t.communication_s : 0);
  t.step_s = micros * t.micro_s + t.update_s + t.exposed_s;
  const double tokens = work.micro_tokens * micros * devices;
  t.tokens_per_s = tokens / t.step_s;
  t.mfu = useful_flops * t.tokens_per_s / (device.flops * devices);
  return t;
}

}  // namespace ddl
