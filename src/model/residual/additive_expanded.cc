// The additive residual on an expanded state:
//
//   ihc     X_d <- X_d + b_d h,  b_d = B_d + e tanh(w_d . c),  read by the channel compressor
//
// It is the control that the paper says it lacks: the capacity of D channels with the start and the compressor of
// ddl-cc, but no direction, no readout and no erase.
#include <memory>

#include "model/residual/fused_rule.h"
#include "model/residual/rules.h"
#include "ref/paper_rule.h"

namespace ddl {
namespace {

struct AdditiveExpandedOptions final : OptionSetOf<AdditiveExpandedOptions> {
  Index channels = 4;
  Index embed_kernel = 4;
  Compressor compressor = Compressor::kSublayer;
  void describe(Options& o) override {
    describe_expanded_state(o, channels, compressor);
    describe_embedding_convolution(o, embed_kernel);
  }
};

// coef_d = B_d + e tau_d      dB_d = A_d      dtau_d = e A_d      de = sum_d tau_d A_d
// Steering numbers: B_0, ..., B_{D-1}, tau_0, ..., tau_{D-1}, e. Nothing is saved.
class AdditiveExpandedCoefficients final : public Coefficients {
 public:
  Index saved_per_token(Index) const override { return 0; }
  void forward(const Forward& t) const override { coefficients(t.coef_D, t.steer, t.D); }
  void backward(Backward& t) const override {
    const float *tau = t.steer + t.D, e = t.steer[2 * t.D];
    float de = 0;
    for (Index d = 0; d < t.D; ++d) {
      const float A = t.h_dot_G_D[d];
      t.dsteer[d] = A;
      t.dsteer[t.D + d] = e * A;
      de += tau[d] * A;
      t.erase_D[d] = 0;
    }
    t.dsteer[2 * t.D] = de;
    coefficients(t.coef_D, t.steer, t.D);
    t.along = 0;
  }

 private:
  static void coefficients(float* coef_D, const float* steer, Index D) {
    for (Index d = 0; d < D; ++d) coef_D[d] = steer[d] + steer[2 * D] * steer[D + d];
  }
};

// The planes start equal. With w = 0, the starting value of Hyper-Connections, they would also get equal gradients
// and stay equal for ever; so w is drawn like a gate's weight, and e keeps its effect small.
FusedSpec additive_expanded_spec(const ModelConfig& config) {
  const auto& options = config.rule<AdditiveExpandedOptions>();
  const Index D = options.channels;
  FusedSpec spec{.expand = Expand::kConv,
                 .read = Read::kChannel,
                 .channels = D,
                 .embed_taps = options.embed_kernel,
                 .compressor_per_block = options.compressor == Compressor::kBlock};
  spec.write = std::make_shared<AdditiveExpandedCoefficients>();
  spec.branch_prefix = "write";
  spec.branches = {{.name = "static", .rows = D, .input = BranchInput::kNone, .bias = Init::constant(1)},
                   {.name = "dynamic",
                    .rows = D,
                    .activation = Activation::kTanh,
                    .weight = Init::normal(config.hidden_std())},
                   {.name = "scale", .input = BranchInput::kNone, .bias = Init::constant(0.01)}};
  spec.series = {{.name = "write weight", .first = 0, .count = D}};
  return spec;
}

template <class Num>
class AdditiveExpandedOracle : public ref::PaperRule<Num> {
 public:
  explicit AdditiveExpandedOracle(const ModelConfig& config)
      : ref::PaperRule<Num>(config.width, config.layers, choices_of(config.rule<AdditiveExpandedOptions>())),
        layers_(config.layers) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    ref::PaperRule<Num>::add_counts(counts);
    const Index D = this->choices().channels;
    for (Index i = 0; i < layers_; ++i)
      for (const char* kind : {"attn", "mlp"}) {
        const std::string name = fmt::format("transformer.h.{}.write_{}.", i, kind);
        counts[name + "static.bias"] = D;
        counts[name + "dynamic.weight"] = D * this->width();
        counts[name + "scale.bias"] = 1;
      }
  }
  ref::Vec<Num> write(const ref::Vec<Num>& state, ref::SublayerTrace<Num>& s, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index N) const override {
    const Index C = this->width(), D = this->choices().channels;
    const std::string name = place.block + "write_" + place.kind + ".";
    const ref::Vec<Num>& B = ref::find_parameter(w, name + "static.bias");
    const Num e = ref::find_parameter(w, name + "scale.bias")[0];
    const ref::Vec<Num> u = ref::linear(s.c_NC, ref::find_parameter(w, name + "dynamic.weight"), N, C, D);
    ref::Vec<Num> next = state;
    for (Index n = 0; n < N; ++n)
      for (Index d = 0; d < D; ++d) {
        using std::tanh;
        const Num b = B[d] + e * tanh(u[n * D + d]);
        for (Index c = 0; c < C; ++c) next[(n * D + d) * C + c] += b * s.h_NC[n * C + c];
      }
    return next;
  }

 private:
  // Reads and starts as ddl-cc does; its own write and its own parameters replace the paper's.
  static ref::PaperChoices choices_of(const AdditiveExpandedOptions& options) {
    return {.channels = options.channels,
            .embed_kernel = options.embed_kernel,
            .expand = ref::Expand::conv,
            .read = ref::Read::channel,
            .write = ref::Write::own,
            .compressor_per_sublayer = options.compressor == Compressor::kSublayer};
  }
  const Index layers_;
};

}  // namespace

std::vector<RuleEntry> additive_expanded_rules() {
  return {with_oracle<AdditiveExpandedOracle>(
      fused_rule("ihc", "additive residual on an expanded state: ddl-cc without direction, readout and erase",
                 OptionSetPtr(AdditiveExpandedOptions()), additive_expanded_spec))};
}

}  // namespace ddl
