// How hc and hc-static make a token's mixing numbers. The formula is at the head of hyper_connections.cc.
#pragma once

#include "kernels/hyper_connections.h"

namespace ddl {

// The extra parameters, in this order: m0_D, A0_DD, b0_D, and where there are rows ea, eb.
struct HyperExtra {
  Index D;
  Index read() const { return 0; }
  Index mix() const { return D; }
  Index write() const { return D + D * D; }
  Index mix_scale() const { return 2 * D + D * D; }
  Index write_scale() const { return mix_scale() + 1; }
};

// Learned numbers alone.
class StaticHyperMixer final : public StreamMixer {
 public:
  explicit StaticHyperMixer(Index D) : D_(D) {}
  Index rows() const override { return 0; }
  bool shares_rows() const override { return true; }
  Index extra_count() const override { return HyperExtra{D_}.mix_scale(); }
  void forward(const Forward& token) const override;
  void backward(const Backward& token) const override;

 private:
  const Index D_;
};

// The rows are p, q_0 .. q_{D-1}, t.
class HyperMixer final : public StreamMixer {
 public:
  explicit HyperMixer(Index D) : D_(D), base_(D) {}
  Index rows() const override { return D_ + 2; }
  bool shares_rows() const override { return true; }
  Index extra_count() const override { return HyperExtra{D_}.write_scale() + 1; }
  void forward(const Forward& token) const override;
  void backward(const Backward& token) const override;

 private:
  // What the dot of stream i with row r moves, and which of the extra parameters scales it.
  enum Kind { kRead, kMix, kWrite };
  struct Target {
    Kind kind;
    Index index, scale;
  };
  Target target(Index i, Index r) const;

  const Index D_;
  const StaticHyperMixer base_;
};

}  // namespace ddl
