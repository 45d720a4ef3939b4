// How mhc makes a token's mixing numbers: a convex combination of the permutations of four streams, which is doubly
// stochastic. The formula is at the head of manifold_connections.cc.
#pragma once

#include <array>

#include "kernels/hyper_connections.h"

namespace ddl {

inline constexpr Index kPermutedStreams = 4, kPermutations = 24;

class PermutationMixer final : public StreamMixer {
 public:
  using Permutation = std::array<Index, kPermutedStreams>;
  // In lexicographic order; the first is the identity.
  static const std::array<Permutation, kPermutations>& permutations();

  // Rows, and the extra parameters in front of the scales, share an order: read, write, permutations. Three scales
  // follow, one of each.
  static constexpr Index kRows = 2 * kPermutedStreams + kPermutations, kScales = kRows;

  Index rows() const override { return kRows; }
  bool shares_rows() const override { return false; }
  Index extra_count() const override { return kScales + 3; }
  void forward(const Forward& token) const override;
  void backward(const Backward& token) const override;
};

}  // namespace ddl
