// Numbers of this process's memory on their way to a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <vector>

namespace ddl {

inline at::Tensor to_device(const std::vector<std::int64_t>& numbers, const at::Device& device) {
  return at::from_blob(const_cast<std::int64_t*>(numbers.data()), {std::ssize(numbers)}, at::kLong)
      .to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace ddl
