// Sums the gradients of all ranks during the backward pass: what is final is collected in buckets of neighbours, and a
// full bucket is on its way while the layers before it are computed.
#pragma once

#include <span>
#include <vector>

#include "core/index.h"
#include "dist/comm.h"

namespace ddl {

class GradientReducer {
 public:
  // A bucket is full with this many floats. The bits of a sum over more than two ranks depend on it, so it is a constant.
  static constexpr Index kBucketFloats = 1 << 20;

  GradientReducer(Comm& comm, std::span<float> gradients, Index bucket_floats = kBucketFloats)
      : comm_(comm), gradients_(gradients), bucket_floats_(bucket_floats) {}

  // These are final. All ranks say the same in the same order.
  void ready(Index begin, Index end);
  // After all were ready: sends the last bucket and waits for every one. Throws CommError.
  void finish();

 private:
  void send();

  Comm& comm_;
  const std::span<float> gradients_;
  const Index bucket_floats_;
  Index begin_ = 0, end_ = 0;  // of the bucket that is being filled
  std::vector<Comm::Handle> on_their_way_;
};

}  // namespace ddl
