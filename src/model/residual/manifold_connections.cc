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
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/residual/rules.h"
#include "model/residual/streams_rule.h"

namespace ddl {
namespace {

constexpr Index kStreams = 4, kPermutations = 24;
constexpr Index kRows = 2 * kStreams + kPermutations;
constexpr double kManifoldScale = 0.01;

using Permutation = std::array<Index, kStreams>;

// In lexicographic order; the first is the identity.
const std::array<Permutation, kPermutations>& permutations() {
  static const auto all = [] {
    std::array<Permutation, kPermutations> list;
    Permutation p;
    std::iota(p.begin(), p.end(), Index{0});
    for (Permutation& one : list) {
      one = p;
      std::next_permutation(p.begin(), p.end());
    }
    return list;
  }();
  return all;
}

// Rows and biases share an order: read, write, permutations. The three scales follow the biases.
enum Group : Index { kReadGroup, kWriteGroup, kMixGroup };
Group group_of(Index row) {
  return row < kStreams ? kReadGroup : row < 2 * kStreams ? kWriteGroup : kMixGroup;
}
constexpr Index kScales = kRows;

float logistic(float z) { return 1 / (1 + std::exp(-z)); }

// With dot_r = vec X . P_r, z_r = rstd dot_r, y_r = a z_r + b_r. Backward, dy_r from
//   sigma        dy = g y' ,  y' = s (1 - s)  (twice that for the write)
//   softmax      dy_p = w_p (dw_p - sum w dw),  dw_p = sum_j dmix_p(j)j
// then    db_r += dy_r     da += z_r dy_r     dz_r = a dy_r     ddot_r = rstd dz_r
//         dsquare_i = -rstd^2 / (2 D C) sum_r dz_r z_r         for every stream i
class PermutationMixer final : public StreamMixer {
 public:
  Index rows() const override { return kRows; }
  bool shares_rows() const override { return false; }
  Index extra_count() const override { return kScales + 3; }

  void forward(const Forward& token) const override {
    const Values v = values(token);
    std::copy_n(v.y, kStreams, token.read_D);
    for (Index j = 0; j < kStreams; ++j) token.write_D[j] = 2 * v.y[kStreams + j];
    std::fill_n(token.mix_DD, kStreams * kStreams, 0.0f);
    for (Index p = 0; p < kPermutations; ++p)
      for (Index j = 0; j < kStreams; ++j)
        token.mix_DD[permutations()[p][j] * kStreams + j] += v.y[2 * kStreams + p];
  }

  void backward(const Backward& token) const override {
    const Values v = values(token);
    float dy[kRows];
    for (Index i = 0; i < kStreams; ++i) {
      const float read = v.y[i], write = v.y[kStreams + i];
      dy[i] = token.dread_D[i] * read * (1 - read);
      dy[kStreams + i] = 2 * token.dwrite_D[i] * write * (1 - write);
    }
    const float* w = v.y + 2 * kStreams;
    float* dw = dy + 2 * kStreams;
    float mean = 0;
    for (Index p = 0; p < kPermutations; ++p) {
      dw[p] = 0;
      for (Index j = 0; j < kStreams; ++j) dw[p] += token.dmix_DD[permutations()[p][j] * kStreams + j];
      mean += w[p] * dw[p];
    }
    for (Index p = 0; p < kPermutations; ++p) dw[p] = w[p] * (dw[p] - mean);

    float dz_dot_z = 0;
    for (Index r = 0; r < kRows; ++r) {
      const Index scale = kScales + group_of(r);
      const float z = v.rstd * token.dots[r], dz = token.extra[scale] * dy[r];
      token.dextra[r] += dy[r];
      token.dextra[scale] += z * dy[r];
      token.ddots[r] = v.rstd * dz;
      dz_dot_z += dz * z;
    }
    const float dsquare = -v.rstd * v.rstd / (2 * static_cast<float>(kStreams * token.C)) * dz_dot_z;
    std::fill_n(token.dsquare_D, kStreams, dsquare);
  }

 private:
  struct Values {
    float rstd;
    float y[kRows];  // sigma, sigma, softmax
  };
  template <class Token>
  static Values values(const Token& token) {
    Values v;
    const float square = token.square_D[0] + token.square_D[1] + token.square_D[2] + token.square_D[3];
    v.rstd = 1 / std::sqrt(square / static_cast<float>(kStreams * token.C) + 1e-5f);
    for (Index r = 0; r < kRows; ++r)
      v.y[r] = token.extra[kScales + group_of(r)] * (v.rstd * token.dots[r]) + token.extra[r];
    for (Index r = 0; r < 2 * kStreams; ++r) v.y[r] = logistic(v.y[r]);
    float* w = v.y + 2 * kStreams;
    const float largest = *std::max_element(w, w + kPermutations);
    float total = 0;
    for (Index p = 0; p < kPermutations; ++p) total += w[p] = std::exp(w[p] - largest);
    for (Index p = 0; p < kPermutations; ++p) w[p] /= total;
    return v;
  }
};

MixerParams add_manifold_params(ParamTable& table, const std::string& prefix, Index s, Index C) {
  MixerParams at;
  const Init stream = Init::one_element(s % kStreams, 1, -1);
  at.extra = table.add(prefix + "read.bias", {kStreams}, stream);
  table.add(prefix + "write.bias", {kStreams}, stream, ParamTable::kJoined);
  table.add(prefix + "mix.bias", {kPermutations}, Init::one_element(0, 0, -8), ParamTable::kJoined);
  table.add(prefix + "scales", {3}, Init::constant(kManifoldScale), ParamTable::kJoined);
  const Init zero = Init::constant(0);
  at.rows = table.add_matrix(prefix + "read.weight", kStreams, kStreams * C, zero);
  table.add_matrix(prefix + "write.weight", kStreams, kStreams * C, zero, ParamTable::kJoined);
  table.add_matrix(prefix + "mix.weight", kPermutations, kStreams * C, zero, ParamTable::kJoined);
  return at;
}

StreamsSpec manifold_spec(const ModelConfig& config) {
  StreamsSpec spec{.streams = kStreams, .prefix = "mhc"};
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
        counts[name + "read.bias"] = counts[name + "write.bias"] = kStreams;
        counts[name + "mix.bias"] = kPermutations;
        counts[name + "scales"] = 3;
        counts[name + "read.weight"] = counts[name + "write.weight"] = kStreams * kStreams * C_;
        counts[name + "mix.weight"] = kPermutations * kStreams * C_;
      }
  }

  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index B,
                      Index T) const override {
    return ref::repeat_channels(x_NC, B * T, kStreams, C_);
  }

  ref::Vec<Num> read(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                     Index B, Index T) const override {
    const Index N = B * T;
    ref::Vec<Num> pre_ND(N * kStreams, Num(1));  // the readout sums
    if (!place.block.empty()) {
      pre_ND = logits(state_NDC, place, w, "read", 0, kStreams, N);
      for (Num& pre : pre_ND) pre = ref::sigmoid(pre);
    }
    ref::Vec<Num> x_NC(N * C_, Num(0));
    for (Index n = 0; n < N; ++n)
      for (Index i = 0; i < kStreams; ++i)
        for (Index c = 0; c < C_; ++c)
          x_NC[n * C_ + c] += pre_ND[n * kStreams + i] * state_NDC[(n * kStreams + i) * C_ + c];
    return x_NC;
  }

  ref::Vec<Num> write(const ref::Vec<Num>& state_NDC, ref::SublayerTrace<Num>& sublayer,
                      const ref::Place& place, const ref::Parameters<Num>& w, Index N) const override {
    const ref::Vec<Num> post_ND = logits(state_NDC, place, w, "write", 1, kStreams, N);
    const ref::Vec<Num> z_NP = logits(state_NDC, place, w, "mix", 2, kPermutations, N);
    const ref::Vec<Num> lse_N = ref::logsumexp(z_NP, N, kPermutations);
    ref::Vec<Num> next_NDC(state_NDC.size(), Num(0));
    using std::exp;
    for (Index n = 0; n < N; ++n) {
      const auto row = [&](Index stream) { return (n * kStreams + stream) * C_; };
      for (Index j = 0; j < kStreams; ++j)
        for (Index c = 0; c < C_; ++c)
          next_NDC[row(j) + c] = Num(2) * ref::sigmoid(post_ND[n * kStreams + j]) * sublayer.h_NC[n * C_ + c];
      for (Index p = 0; p < kPermutations; ++p) {
        const Num weight = exp(z_NP[n * kPermutations + p] - lse_N[n]);
        for (Index j = 0; j < kStreams; ++j)
          for (Index c = 0; c < C_; ++c)
            next_NDC[row(j) + c] += weight * state_NDC[row(permutations()[p][j]) + c];
      }
    }
    return next_NDC;
  }

 private:
  // a u P + b
  ref::Vec<Num> logits(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                       const std::string& which, Index scale, Index rows, Index N) const {
    const std::string name = place.block + "mhc_" + place.kind + ".";
    const ref::Vec<Num> ones(kStreams * C_, Num(1));
    ref::Vec<Num> u = ref::rmsnorm(state_NDC, ones, N, kStreams * C_);
    for (Num& x : u) x *= ref::find_parameter(w, name + "scales")[scale];
    return ref::linear_bias(u, ref::find_parameter(w, name + which + ".weight"),
                            ref::find_parameter(w, name + which + ".bias"), N, kStreams * C_, rows);
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
