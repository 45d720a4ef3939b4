// The additive residual and the paper's rewrite in all its wirings, with the write-only controls:
//
//   baseline     x <- x + h
//   ddl-*        X <- X + beta k (v^T - k^T X),  k = h / |h|
//   wo-*         X <- X + beta k v^T, what is left without the erase term: same parameters, same starting values
//
//   *-dv1        one channel: the ordinary stream
//   *-cc         D channels, read by mixing the token's own channels
//   *-tc         D channels, read by a short convolution over tokens
//   *-noec       X_0 = x 1^T; without it X_0 comes from a short convolution over the embeddings
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/short_conv.h"
#include "model/residual/delta_coefficients.h"
#include "model/residual/fused_rule.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

// What the nine differ in.
struct Wiring {
  const char *name, *summary;
  Expand expand;
  Read read;
  enum Update { kAdd, kDelta, kWriteOnly } update;
  std::optional<PaperCost> paper;
};

// In the order of the paper's tables, controls last.
const Wiring kWirings[] = {
    {kBaselineRule, "additive residual, the ordinary Transformer", Expand::kIdentity, Read::kIdentity,
     Wiring::kAdd, PaperCost{1, 1, 1}},
    {"ddl-dv1", "delta rewrite of the ordinary stream (d_v = 1)", Expand::kIdentity, Read::kIdentity,
     Wiring::kDelta, PaperCost{0.88, 0.88, 1.00}},
    {"ddl-tc-noec", "expanded state, token compressor, embedding repeated over channels", Expand::kRepeat,
     Read::kToken, Wiring::kDelta, PaperCost{0.45, 0.38, 1.31}},
    {"ddl-cc-noec", "expanded state, channel compressor, embedding repeated over channels", Expand::kRepeat,
     Read::kChannel, Wiring::kDelta, PaperCost{0.68, 0.57, 1.18}},
    {"ddl-tc", "expanded state, token compressor, embedding convolution", Expand::kConv, Read::kToken,
     Wiring::kDelta, PaperCost{0.52, 0.47, 1.15}},
    {"ddl-cc", "expanded state, channel compressor, embedding convolution: the paper's DDL", Expand::kConv,
     Read::kChannel, Wiring::kDelta, PaperCost{0.77, 0.67, 1.05}},
    {"wo-dv1", "write-only control of ddl-dv1: no erase term", Expand::kIdentity, Read::kIdentity,
     Wiring::kWriteOnly, std::nullopt},
    {"wo-tc", "write-only control of ddl-tc: no erase term", Expand::kConv, Read::kToken, Wiring::kWriteOnly,
     std::nullopt},
    {"wo-cc", "write-only control of ddl-cc: no erase term", Expand::kConv, Read::kChannel,
     Wiring::kWriteOnly, std::nullopt},
};

const Wiring& wiring_of(const ModelConfig& config) {
  const Wiring* found = std::find_if(std::begin(kWirings), std::end(kWirings),
                                     [&](const Wiring& w) { return config.residual() == w.name; });
  DDL_CHECK(found != std::end(kWirings), "'{}' is not one of these rules", config.residual());
  return *found;
}

}  // namespace

void describe_expanded_state(Options& o, Index& channels, Compressor& compressor) {
  o.add("model.channels", channels, "value channels per feature (d_v) of the expanded state")
      .range(1, kMaxChannels);
  o.add("model.compressor", compressor, "one compressor per sublayer, or one per block (released code)");
}

void describe_embedding_convolution(Options& o, Index& taps) {
  o.add("model.embed_kernel", taps, "taps of the embedding convolution").range(1, kMaxTaps);
}

void DeltaOptions::describe(Options& o) {
  if (read_ != Read::kIdentity) {
    describe_expanded_state(o, channels, compressor);
    o.add("model.compressor_start", compressor_start,
          "compressors start as a plain average, or normal as hidden weights do")
        .changes(Options::Changes::kStart);
  }
  if (read_ == Read::kToken)
    o.add("model.state_kernel", state_kernel, "taps of the token compressor").range(1, kMaxTaps);
  if (read_ == Read::kChannel) {
    o.add("model.channel_compressor", channel_compressor,
          "a weight per feature and channel, or a convolution and a read vector");
    o.add("model.channel_kernel", channel_kernel, "taps of that convolution; 0 means as many as channels")
        .range(0, kMaxChannels);
  }
  if (expand_ == Expand::kConv) describe_embedding_convolution(o, embed_kernel);
  o.add("model.gate", gate, "gate branch");
  o.add("model.gate_hidden", gate_hidden, "hidden width of the two-layer gate").range(1, 4096);
  o.add("model.beta_init", beta_init, "the gate's starting value, 0 to 2")
      .range(0, 2)
      .changes(Options::Changes::kStart);
  o.add("model.value", value, "value branch: 4 sigmoid(W x + b), W c + b, or the paper's W c");
  o.add("model.value_bias_start", value_bias_start,
        "b starts at 0 (2 without the sigmoid), or uniform within 1/sqrt(width)")
      .changes(Options::Changes::kStart);
  o.add("model.k_eps", k_eps, "guard of the direction's norm").range(0, 1);
  o.add("model.store_state", store_state, "keep the state of every sublayer instead of walking it back")
      .changes(Options::Changes::kComputing);
}

BranchSpec DeltaOptions::gate_branch(const std::string& name, const ModelConfig& config) const {
  // The bias at the start: 2 sigmoid(bias) = beta_init, kept off the ends where it would be infinite.
  const double p = std::clamp(beta_init / 2, 1e-6, 1 - 1e-6);
  return {.name = name,
          .activation = Activation::kSigmoid,
          .scale = 2,
          .weight = Init::normal(config.hidden_std()),
          .bias = Init::constant(std::log(p / (1 - p))),
          .hidden = gate == GateBranch::kTwoLayer ? gate_hidden : 0};
}

BranchSpec DeltaOptions::value_branch(Index channels_written, const ModelConfig& config) const {
  BranchSpec branch{.name = "v_proj", .rows = channels_written, .weight = Init::normal(config.hidden_std())};
  if (value == ValueBranch::kSigmoid) {
    branch.input = BranchInput::kUnnormed;
    branch.activation = Activation::kSigmoid;
    branch.scale = kValueScale;
    branch.bias = Init::constant(0);
  } else if (value == ValueBranch::kBiased) {
    branch.bias = Init::constant(2);
  }
  if (branch.bias && value_bias_start == ValueBiasStart::kUniform)
    branch.bias = Init::uniform(1 / std::sqrt(static_cast<double>(config.width)));
  return branch;
}

ref::PaperChoices DeltaOptions::oracle_choices(ref::Write write) const {
  ref::PaperChoices c;
  c.channels = read_ == Read::kIdentity ? 1 : channels;
  c.compress_kernel = state_kernel;
  c.embed_kernel = embed_kernel;
  c.expand = expand_ == Expand::kConv     ? ref::Expand::conv
             : expand_ == Expand::kRepeat ? ref::Expand::repeat
                                          : ref::Expand::identity;
  c.read = read_ == Read::kToken     ? ref::Read::token
           : read_ == Read::kChannel ? ref::Read::channel
                                     : ref::Read::identity;
  c.write = write;
  c.gate = gate == GateBranch::kLinear ? ref::Gate::linear : ref::Gate::two_layer;
  c.gate_hidden = gate_hidden;
  c.value = value == ValueBranch::kSigmoid  ? ref::Value::sigmoid
            : value == ValueBranch::kBiased ? ref::Value::biased
                                            : ref::Value::linear;
  c.compressor_per_sublayer = compressor == Compressor::kSublayer;
  c.channel_kernel = channel_taps();
  c.k_eps = k_eps;
  return c;
}

FusedSpec DeltaOptions::stream() const {
  return {.expand = expand_,
          .read = read_,
          .channels = read_ == Read::kIdentity ? 1 : channels,
          .embed_taps = embed_kernel,
          .state_taps = state_kernel,
          .channel_taps = channel_taps(),
          .compressor_normal = compressor_start == CompressorStart::kNormal,
          .compressor_per_block = compressor == Compressor::kBlock,
          .store_state = store_state};
}

namespace {

FusedSpec spec_of(const ModelConfig& config) {
  const Wiring& wiring = wiring_of(config);
  if (wiring.update == Wiring::kAdd) return {};
  const auto& options = config.rule<DeltaOptions>();
  const bool erases = wiring.update == Wiring::kDelta;
  FusedSpec spec = options.stream();
  const Index D = spec.channels;
  spec.write = std::make_shared<DeltaCoefficients>(
      erases ? DeltaCoefficients::Erase::kYes : DeltaCoefficients::Erase::kNo,
      static_cast<float>(options.k_eps));
  spec.branches = {options.gate_branch("beta", config), options.value_branch(D, config)};
  using enum SeriesRole;
  spec.series = {{.name = "gate", .role = kGate, .first = 0, .high = 2},
                 {.name = "target", .role = kTarget, .first = 1, .count = D},
                 {.name = "direction scale", .role = kDirectionScale, .source = SeriesSpec::kSaved}};
  if (erases)
    spec.series.push_back(
        {.name = "readout", .role = kReadout, .source = SeriesSpec::kSaved, .first = 1, .count = D});
  return spec;
}

// The released code has the paper's rules only, one compressor per block, and the sigmoid value.
std::string why_not_released(const ModelConfig& config) {
  const Wiring& wiring = wiring_of(config);
  if (wiring.update == Wiring::kAdd) return "";
  if (wiring.update == Wiring::kWriteOnly) return "a write-only rule";
  const auto& options = config.rule<DeltaOptions>();
  if (wiring.read != Read::kIdentity && options.compressor != Compressor::kBlock)
    return "model.compressor is \"sublayer\"; its blocks have one compressor for both sublayers "
           "(model.compressor=block trains such a model)";
  if (config.norm_eps != 1e-5)
    return fmt::format("model.norm_eps is {}; its delta rules have norms with 1e-5", config.norm_eps);
  if (wiring.read == Read::kChannel && options.channel_taps() > options.channels)
    return fmt::format("model.channel_kernel is {}, more than its {} channels", options.channel_taps(),
                       options.channels);
  if (options.value != ValueBranch::kSigmoid)
    return fmt::format("model.value is \"{}\"; its value branch is 4 sigmoid(W x + b)",
                       name_of(options.value));
  return "";
}

template <class Num>
class DeltaOracle : public ref::PaperRule<Num> {
 public:
  explicit DeltaOracle(const ModelConfig& config)
      : ref::PaperRule<Num>(config.width, config.layers, choices(config)) {}

 private:
  static ref::PaperChoices choices(const ModelConfig& config) {
    const Wiring& wiring = wiring_of(config);
    if (wiring.update == Wiring::kAdd) return {};
    return config.rule<DeltaOptions>().oracle_choices(
        wiring.update == Wiring::kDelta ? ref::Write::delta : ref::Write::write_only);
  }
};

}  // namespace

std::vector<RuleEntry> delta_rules() {
  std::vector<RuleEntry> entries;
  for (const Wiring& wiring : kWirings) {
    const OptionSetPtr options = wiring.update == Wiring::kAdd
                                     ? OptionSetPtr(NoOptions())
                                     : OptionSetPtr(DeltaOptions(wiring.expand, wiring.read));
    RuleEntry entry = fused_rule(wiring.name, wiring.summary, options, spec_of);
    entry.paper = wiring.paper;
    entry.why_not_in_reference = why_not_released;
    entries.push_back(with_oracle<DeltaOracle>(std::move(entry)));
  }
  return entries;
}

}  // namespace ddl
