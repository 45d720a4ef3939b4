// The wheel of LibTorch has c10d's headers but not those of Gloo, which they include. Here are the names that
// ProcessGroupGloo.hpp mentions; nothing of ours calls them.
#pragma once

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
}  // namespace transport
}  // namespace gloo
