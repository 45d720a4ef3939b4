// Hyper-Connections (Zhu et al., arXiv 2409.19606): D streams, read by a mix and mixed anew by every write.
//
//   x_in = sum_i m_i X_i        X'_j = b_j h + sum_i A_ij X_i
//
//   hc-static    m, A and b are learned numbers, m0, A0 and b0
//   hc           with u_i = RMSNorm(X_i):
//                m_i  = m0_i  + ea tanh(u_i . p)
//                A_ij = A0_ij + ea tanh(u_i . q_j)
//                b_i  = b0_i  + eb tanh(u_i . t)
//
// At the start m0 is the unit vector of stream s mod D, A0 the identity, b0 = 1, p = q = t = 0 and ea = eb = 0.01:
// all streams are equal, and the model is the additive one.
#include <cmath>
#include <utility>

#include "model/residual/hyper_mixer.h"
#include "model/residual/rules.h"
#include "model/residual/streams_rule.h"

namespace ddl {

void HyperOptions::describe(Options& o) {
  o.add("model.channels", channels, "parallel streams of the state").range(2, kMaxStreams);
}

namespace {

constexpr double kHyperScale = 0.01;  // ea, eb

Index streams_of(const ModelConfig& config) { return config.rule<HyperOptions>().channels; }

MixerParams add_hyper_params(ParamTable& table, const std::string& prefix, Index s, Index D, Index C,
                             bool dynamic) {
  MixerParams at;
  // Static parts do not decay: decay would pull the mix from the identity to zero, and the state with it.
  at.extra = table.add(prefix + "static_read", {D}, Init::one_element(s % D, 1, 0));
  table.add(prefix + "static_mix", {D, D}, Init::identity(), ParamTable::kJoined);
  table.add(prefix + "static_write", {D}, Init::constant(1), ParamTable::kJoined);
  if (!dynamic) return at;
  table.add(prefix + "mix_scale", {1}, Init::constant(kHyperScale), ParamTable::kJoined);
  table.add(prefix + "write_scale", {1}, Init::constant(kHyperScale), ParamTable::kJoined);
  at.row_norm = table.add_norm(prefix + "norm.weight", C);
  at.rows = table.add_matrix(prefix + "read.weight", 1, C, Init::constant(0));
  table.add_matrix(prefix + "mix.weight", D, C, Init::constant(0), ParamTable::kJoined);
  table.add_matrix(prefix + "write.weight", 1, C, Init::constant(0), ParamTable::kJoined);
  return at;
}

StreamsSpec hyper_spec(const ModelConfig& config, bool dynamic) {
  const Index D = streams_of(config), C = config.width;
  StreamsSpec spec{.streams = D, .prefix = "hc"};
  if (dynamic)
    spec.mixer = std::make_shared<HyperMixer>(D);
  else
    spec.mixer = std::make_shared<StaticHyperMixer>(D);
  spec.add_params = [D, C, dynamic](ParamTable& table, const std::string& prefix, Index s) {
    return add_hyper_params(table, prefix, s, D, C, dynamic);
  };
  return spec;
}

// The formula of the head of this file, word for word.
template <class Num, bool kDynamic>
class HyperOracle : public ref::Rule<Num> {
 public:
  explicit HyperOracle(const ModelConfig& config)
      : D_(streams_of(config)), C_(config.width), layers_(config.layers) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index i = 0; i < layers_; ++i)
      for (const char* kind : {"attn", "mlp"}) {
        const std::string name = fmt::format("transformer.h.{}.hc_{}.", i, kind);
        counts[name + "static_read"] = counts[name + "static_write"] = D_;
        counts[name + "static_mix"] = D_ * D_;
        if (!kDynamic) continue;
        counts[name + "mix_scale"] = counts[name + "write_scale"] = 1;
        counts[name + "norm.weight"] = counts[name + "read.weight"] = counts[name + "write.weight"] = C_;
        counts[name + "mix.weight"] = D_ * C_;
      }
  }

  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index B,
                      Index T) const override {
    return ref::repeat_channels(x_NC, B * T, D_, C_);
  }

  ref::Vec<Num> read(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                     Index B, Index T) const override {
    ref::Vec<Num> x_NC(B * T * C_, Num(0));
    const ref::Vec<Num> u_NDC = normed(state_NDC, place, w, B * T);
    for (Index n = 0; n < B * T; ++n)
      for (Index i = 0; i < D_; ++i) {
        const Num m = place.block.empty() ? Num(1)
                                          : at(w, place, "static_read")[i] +
                                                shift(u_NDC, n, i, "mix_scale", "read.weight", 0, place, w);
        for (Index c = 0; c < C_; ++c) x_NC[n * C_ + c] += m * state_NDC[(n * D_ + i) * C_ + c];
      }
    return x_NC;
  }

  ref::Vec<Num> write(const ref::Vec<Num>& state_NDC, ref::SublayerTrace<Num>& sublayer,
                      const ref::Place& place, const ref::Parameters<Num>& w, Index N) const override {
    ref::Vec<Num> next_NDC(state_NDC.size(), Num(0));
    const ref::Vec<Num> u_NDC = normed(state_NDC, place, w, N);
    for (Index n = 0; n < N; ++n)
      for (Index j = 0; j < D_; ++j) {
        const Num b =
            at(w, place, "static_write")[j] + shift(u_NDC, n, j, "write_scale", "write.weight", 0, place, w);
        for (Index c = 0; c < C_; ++c) next_NDC[(n * D_ + j) * C_ + c] = b * sublayer.h_NC[n * C_ + c];
        for (Index i = 0; i < D_; ++i) {
          const Num A = at(w, place, "static_mix")[i * D_ + j] +
                        shift(u_NDC, n, i, "mix_scale", "mix.weight", j, place, w);
          for (Index c = 0; c < C_; ++c)
            next_NDC[(n * D_ + j) * C_ + c] += A * state_NDC[(n * D_ + i) * C_ + c];
        }
      }
    return next_NDC;
  }

 private:
  const ref::Vec<Num>& at(const ref::Parameters<Num>& w, const ref::Place& place,
                          const std::string& name) const {
    return ref::find_parameter(w, place.block + "hc_" + place.kind + "." + name);
  }
  // u_i = RMSNorm(X_i)
  ref::Vec<Num> normed(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                       Index N) const {
    if (!kDynamic || place.block.empty()) return {};
    return ref::rmsnorm(state_NDC, at(w, place, "norm.weight"), N * D_, C_);
  }
  // e tanh(u_i . w_row)
  Num shift(const ref::Vec<Num>& u_NDC, Index n, Index i, const char* scale, const char* rows, Index row,
            const ref::Place& place, const ref::Parameters<Num>& w) const {
    if (!kDynamic) return Num(0);
    using std::tanh;
    Num z(0);
    for (Index c = 0; c < C_; ++c) z += u_NDC[(n * D_ + i) * C_ + c] * at(w, place, rows)[row * C_ + c];
    return at(w, place, scale)[0] * tanh(z);
  }

  const Index D_, C_, layers_;
};

template <class Num>
class StaticOracle final : public HyperOracle<Num, false> {
  using HyperOracle<Num, false>::HyperOracle;
};
template <class Num>
class DynamicOracle final : public HyperOracle<Num, true> {
  using HyperOracle<Num, true>::HyperOracle;
};

// The readout sums D equal streams; outputs that start sqrt(D) larger keep the paper's balance of embedding and
// outputs in that sum.
double hyper_output_std(const ModelConfig& config) {
  return std::sqrt(static_cast<double>(streams_of(config)));
}

}  // namespace

std::vector<RuleEntry> hyper_connection_rules() {
  RuleEntry dynamic = streams_rule(
      "hc", "hyper-connections: streams mixed by learned, input-dependent numbers",
      OptionSetPtr(HyperOptions()), [](const ModelConfig& config) { return hyper_spec(config, true); });
  RuleEntry fixed =
      streams_rule("hc-static", "hyper-connections with learned numbers alone", OptionSetPtr(HyperOptions()),
                   [](const ModelConfig& config) { return hyper_spec(config, false); });
  dynamic.output_std_factor = fixed.output_std_factor = hyper_output_std;
  return {with_oracle<DynamicOracle>(std::move(dynamic)), with_oracle<StaticOracle>(std::move(fixed))};
}

}  // namespace ddl
