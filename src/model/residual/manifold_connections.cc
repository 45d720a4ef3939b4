// Manifold-constrained hyper-connections (arXiv 2512.24880) in the exact form of mHC-lite (arXiv 2601.05732): four
// streams, mixed by a convex combination of their 24 permutations, so the mix is doubly stochastic.
//
//   u      = RMSNorm(vec X)                          one norm over all streams, without a weight
//   read   = sigma(a1 u P1 + b1)
//   write  = 2 sigma(a2 u P2 + b2)
//   w      = softmax(a3 u P3 + b3)                   over the permutations
//   x_in   = sum_i read_i X_i        X'_j = sum_p w_p X_p(j) + write_j h
//
// As a mixing matrix, X'_j = sum_i mix_ij X_i + ... with mix_ij = sum over the p with p(j) = i of w_p.
//
// At the start P = 0, a = 0.01; b1 and b2 are +1 at stream s mod 4 and -1 elsewhere; b3 is 0 for the identity and -8
// for the others.
#include <cmath>
#include <memory>
#include <utility>

#include "model/residual/permutation_mixer.h"
#include "model/residual/rules.h"
#include "model/residual/streams_rule.h"

namespace ddl {
namespace {

constexpr double kManifoldScale = 0.01;

MixerParams add_manifold_params(ParamTable& table, const std::string& prefix, Index s, Index C) {
  MixerParams at;
  const Init stream = Init::one_element(s % kPermutedStreams, 1, -1);
  at.extra = table.add(prefix + "read.bias", {kPermutedStreams}, stream);
  table.add(prefix + "write.bias", {kPermutedStreams}, stream, ParamTable::kJoined);
  table.add(prefix + "mix.bias", {kPermutations}, Init::one_element(0, 0, -8), ParamTable::kJoined);
  table.add(prefix + "scales", {3}, Init::constant(kManifoldScale), ParamTable::kJoined);
  const Init zero = Init::constant(0);
  at.rows = table.add_matrix(prefix + "read.weight", kPermutedStreams, kPermutedStreams * C, zero);
  table.add_matrix(prefix + "write.weight", kPermutedStreams, kPermutedStreams * C, zero,
                   ParamTable::kJoined);
  table.add_matrix(prefix + "mix.weight", kPermutations, kPermutedStreams * C, zero, ParamTable::kJoined);
  return at;
}

StreamsSpec manifold_spec(const ModelConfig& config) {
  StreamsSpec spec{.streams = kPermutedStreams, .prefix = "mhc"};
  spec.mixer = std::make_shared<PermutationMixer>();
  spec.add_params = [C = config.width](ParamTable& table, const std::string& prefix, Index s) {
    return add_manifold_params(table, prefix, s, C);
  };
  return spec;
}

// The formula of the head of this file. The permutations are applied to the streams one by one; no matrix is made.
template <class Num>
class ManifoldOracle final : public ref::Rule<Num> {
 public:
  explicit ManifoldOracle(const ModelConfig& config) : C_(config.width), layers_(config.layers) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index i = 0; i < layers_; ++i)
      for (const char* kind : {"attn", "mlp"}) {
        const std::string name = fmt::format("transformer.h.{}.mhc_{}.", i, kind);
        counts[name + "read.bias"] = counts[name + "write.bias"] = kPermutedStreams;
        counts[name + "mix.bias"] = kPermutations;
        counts[name + "scales"] = 3;
        counts[name + "read.weight"] = counts[name + "write.weight"] =
            kPermutedStreams * kPermutedStreams * C_;
        counts[name + "mix.weight"] = kPermutations * kPermutedStreams * C_;
      }
  }

  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index B,
                      Index T) const override {
    return ref::repeat_channels(x_NC, B * T, kPermutedStreams, C_);
  }

  ref::Vec<Num> read(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                     Index B, Index T) const override {
    const Index N = B * T;
    ref::Vec<Num> pre_ND(N * kPermutedStreams, Num(1));  // the readout sums
    if (!place.block.empty()) {
      pre_ND = logits(state_NDC, place, w, "read", 0, kPermutedStreams, N);
      for (Num& pre : pre_ND) pre = ref::sigmoid(pre);
    }
    ref::Vec<Num> x_NC(N * C_, Num(0));
    for (Index n = 0; n < N; ++n)
      for (Index i = 0; i < kPermutedStreams; ++i)
        for (Index c = 0; c < C_; ++c)
          x_NC[n * C_ + c] +=
              pre_ND[n * kPermutedStreams + i] * state_NDC[(n * kPermutedStreams + i) * C_ + c];
    return x_NC;
  }

  ref::Vec<Num> write(const ref::Vec<Num>& state_NDC, ref::SublayerTrace<Num>& sublayer,
                      const ref::Place& place, const ref::Parameters<Num>& w, Index N) const override {
    const ref::Vec<Num> post_ND = logits(state_NDC, place, w, "write", 1, kPermutedStreams, N);
    const ref::Vec<Num> z_NP = logits(state_NDC, place, w, "mix", 2, kPermutations, N);
    const ref::Vec<Num> lse_N = ref::logsumexp(z_NP, N, kPermutations);
    ref::Vec<Num> next_NDC(state_NDC.size(), Num(0));
    using std::exp;
    for (Index n = 0; n < N; ++n) {
      const auto row = [&](Index stream) { return (n * kPermutedStreams + stream) * C_; };
      for (Index j = 0; j < kPermutedStreams; ++j)
        for (Index c = 0; c < C_; ++c)
          next_NDC[row(j) + c] =
              Num(2) * ref::sigmoid(post_ND[n * kPermutedStreams + j]) * sublayer.h_NC[n * C_ + c];
      for (Index p = 0; p < kPermutations; ++p) {
        const Num weight = exp(z_NP[n * kPermutations + p] - lse_N[n]);
        for (Index j = 0; j < kPermutedStreams; ++j)
          for (Index c = 0; c < C_; ++c)
            next_NDC[row(j) + c] += weight * state_NDC[row(PermutationMixer::permutations()[p][j]) + c];
      }
    }
    return next_NDC;
  }

 private:
  // a u P + b
  ref::Vec<Num> logits(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                       const std::string& which, Index scale, Index rows, Index N) const {
    const std::string name = place.block + "mhc_" + place.kind + ".";
    const ref::Vec<Num> ones(kPermutedStreams * C_, Num(1));
    ref::Vec<Num> u = ref::rmsnorm(state_NDC, ones, N, kPermutedStreams * C_);
    for (Num& x : u) x *= ref::find_parameter(w, name + "scales")[scale];
    return ref::linear_bias(u, ref::find_parameter(w, name + which + ".weight"),
                            ref::find_parameter(w, name + which + ".bias"), N, kPermutedStreams * C_, rows);
  }

  const Index C_, layers_;
};

}  // namespace

std::vector<RuleEntry> manifold_connection_rules() {
  return {with_oracle<ManifoldOracle>(
      streams_rule("mhc", "manifold-constrained hyper-connections: four streams, mixed by permutations",
                   OptionSetPtr(NoOptions()), manifold_spec))};
}

}  // namespace ddl
