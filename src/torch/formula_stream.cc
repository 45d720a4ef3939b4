// The residual rules in ATen's operations, one function each for how the state starts, is read and is written; autograd
// differentiates them. X is [B, T, D, C], or what the rule keeps instead. Formulas: the heads of model/residual/*.cc.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "model/residual/channel_conv.h"
#include "model/residual/fused_rule.h"
#include "model/residual/permutation_mixer.h"
#include "model/residual/rules.h"
#include "model/residual/stages.h"
#include "torch/fused_formulas.h"
#include "torch/residual_stream.h"

namespace ddl {
namespace {

constexpr double kOwnNormEps = 1e-5;  // of norms that belong to a rule

// What a formula is made from.
struct FormulaInputs {
  const ModelConfig& config;
  FlatParameters& parameters;
  at::ScalarType activations;
  EarlierTokens& earlier;
};

// What every formula has: parameters by name, the norm in front of each sublayer.
class FormulaStream : public ResidualStream {
 public:
  explicit FormulaStream(const FormulaInputs& in)
      : config_(in.config),
        parameters_(in.parameters),
        activations_(in.activations),
        S_(in.config.sublayers()) {}

  at::Tensor start(const at::Tensor& x) override {
    begin(x);
    return context(0);
  }
  at::Tensor write_and_read(Index s, const at::Tensor& h) override {
    write(s, h.to(at::kFloat));
    return context(s + 1);
  }

 protected:
  virtual void begin(const at::Tensor& x) = 0;
  virtual at::Tensor read(Index s) = 0;  // x_in of sublayer s, S being the head
  virtual void write(Index s, const at::Tensor& h) = 0;
  // Something to do with the unrounded context of sublayer s, and with x_in.
  virtual void steer(Index /*s*/, const at::Tensor& /*x_in*/, const at::Tensor& /*context*/) {}

  at::Tensor parameter(const std::string& name) { return parameters_.leaf(name); }
  std::string prefix(const char* name, Index s) const { return branch_prefix(name, s); }
  Index sublayers() const { return S_; }
  const ModelConfig& config() const { return config_; }

 private:
  at::Tensor context(Index s) {
    const std::string name =
        s == S_ ? "ln_f.weight" : fmt::format("transformer.h.{}.ln_{}.weight", s / 2, s % 2 + 1);
    const at::Tensor x_in = read(s);
    const at::Tensor c = at::rms_norm(x_in, {x_in.size(-1)}, parameter(name), config_.norm_eps);
    if (s < S_) steer(s, x_in, c);
    return c.to(activations_);
  }

  const ModelConfig config_;
  FlatParameters& parameters_;
  const at::ScalarType activations_;
  const Index S_;
};

// How a rule of the fused pass writes, X_d += coef_d h (fused_rule.h).
enum class FusedWrite { kPlain, kNormalised, kAdditive, kDelta, kWriteOnly, kEraseAndWrite };

class FusedFormula final : public FormulaStream {
 public:
  FusedFormula(const FormulaInputs& in, FusedSpec spec, FusedWrite write)
      : FormulaStream(in), write_(write), parts_(in.config, std::move(spec), in.parameters, in.earlier) {}

 private:
  void begin(const at::Tensor& x) override { X_ = parts_.expand(x); }
  at::Tensor read(Index s) override { return parts_.read(s, X_); }
  void steer(Index s, const at::Tensor& x_in, const at::Tensor& context) override {
    steer_.clear();
    for (std::size_t i = 0; i < parts_.spec().branches.size(); ++i)
      steer_.push_back(parts_.branch(s, i, x_in, context));
  }
  void write(Index, const at::Tensor& h) override {
    if (write_ == FusedWrite::kPlain) {
      X_ = X_ + h.unsqueeze(2);
      return;
    }
    X_ = X_ + coefficients(h).unsqueeze(3) * h.unsqueeze(2);
  }

  // [B, T, D]
  at::Tensor coefficients(const at::Tensor& h) const {
    if (write_ == FusedWrite::kNormalised)
      return steer_[0] * (h.square().mean(-1, true) + kOwnNormEps).rsqrt();
    if (write_ == FusedWrite::kAdditive) return steer_[0] + steer_[2] * steer_[1];
    const double k_eps = config().rule<DeltaOptions>().k_eps;
    const at::Tensor scale = (h.square().sum(-1, true) + k_eps * k_eps).rsqrt();
    const auto readout = [&] { return (X_ * h.unsqueeze(2)).sum(-1) * scale; };
    if (write_ == FusedWrite::kEraseAndWrite) return (steer_[1] * steer_[2] - steer_[0] * readout()) * scale;
    if (write_ == FusedWrite::kWriteOnly) return steer_[0] * steer_[1] * scale;
    return steer_[0] * (steer_[1] - readout()) * scale;
  }

  const FusedWrite write_;
  FusedFormulas parts_;
  at::Tensor X_;
  std::vector<at::Tensor> steer_;  // one for each branch: [B, T, rows]
};

// x' = a x + b x_0 + h
class DecayFormula final : public FormulaStream {
  using FormulaStream::FormulaStream;
  void begin(const at::Tensor& x) override { x_ = x0_ = x; }
  at::Tensor read(Index) override { return x_; }
  void write(Index s, const at::Tensor& h) override {
    const std::string at = prefix("decay", s);
    x_ = parameter(at + "state") * x_ + parameter(at + "embedding") * x0_ + h;
  }
  at::Tensor x_, x0_;
};

// x' = x + gate * (h - x)
class HighwayFormula final : public FormulaStream {
  using FormulaStream::FormulaStream;
  void begin(const at::Tensor& x) override { x_ = x; }
  at::Tensor read(Index) override { return x_; }
  void steer(Index s, const at::Tensor&, const at::Tensor& context) override {
    const std::string at = prefix("highway", s);
    gate_ = at::sigmoid(parameter(at + "weight") * context + parameter(at + "bias"));
  }
  void write(Index, const at::Tensor& h) override { x_ = x_ + gate_ * (h - x_); }
  at::Tensor x_, gate_;
};

// x_in = sum_i alpha_i V_i, alpha = softmax(rho_i q . V_i); sources are outputs, or their sums over blocks.
class DepthFormula final : public FormulaStream {
 public:
  DepthFormula(const FormulaInputs& in, Index block) : FormulaStream(in), block_(block) {}

 private:
  void begin(const at::Tensor& x) override { sources_ = {x}; }
  at::Tensor read(Index s) override {
    if (s == 0) return sources_[0];
    const std::string at = s == sublayers() ? "readout." : prefix("depth", s);
    const at::Tensor q = parameter(at + "query") * parameter(at + "gain"), V = at::stack(sources_);
    const at::Tensor rho = (V.square().mean(-1) + kOwnNormEps).rsqrt();
    const at::Tensor alpha = ((V * q).sum(-1) * rho).softmax(0);
    return (alpha.unsqueeze(-1) * V).sum(0);
  }
  void write(Index s, const at::Tensor& h) override {
    if (s % block_ == 0)
      sources_.push_back(h);
    else
      sources_.back() = sources_.back() + h;
  }
  const Index block_;
  std::vector<at::Tensor> sources_;
};

// X'_j = write_j h + sum_i mix_ij X_i, read by a mix; the readout sums the streams.
class StreamsFormula : public FormulaStream {
 public:
  StreamsFormula(const FormulaInputs& in, Index D) : FormulaStream(in), D_(D) {}

 protected:
  struct Mixing {
    at::Tensor read_D, mix_DD, write_D;  // with or without tokens in front
  };
  virtual Mixing mixing(Index s, const at::Tensor& X) = 0;
  Index streams() const { return D_; }

 private:
  void begin(const at::Tensor& x) override {
    X_ = x.unsqueeze(2).expand({x.size(0), x.size(1), D_, x.size(2)});
  }
  at::Tensor read(Index s) override {
    if (s == sublayers()) return X_.sum(2);
    now_ = mixing(s, X_);
    return (now_.read_D.unsqueeze(-1) * X_).sum(-2);
  }
  void write(Index, const at::Tensor& h) override {
    X_ = now_.write_D.unsqueeze(-1) * h.unsqueeze(2) + now_.mix_DD.transpose(-1, -2).matmul(X_);
  }
  const Index D_;
  at::Tensor X_;
  Mixing now_;
};

class HyperFormula final : public StreamsFormula {
 public:
  HyperFormula(const FormulaInputs& in, bool dynamic)
      : StreamsFormula(in, in.config.rule<HyperOptions>().channels), dynamic_(dynamic) {}

 private:
  Mixing mixing(Index s, const at::Tensor& X) override {
    const std::string at = prefix("hc", s);
    Mixing m{parameter(at + "static_read"), parameter(at + "static_mix"), parameter(at + "static_write")};
    if (!dynamic_) return m;
    const at::Tensor u = at::rms_norm(X, {X.size(-1)}, parameter(at + "norm.weight"), kOwnNormEps);
    const at::Tensor ea = parameter(at + "mix_scale"), eb = parameter(at + "write_scale");
    const auto shift = [&](const char* rows) { return at::tanh(at::linear(u, parameter(at + rows))); };
    m.read_D = m.read_D + ea * shift("read.weight").squeeze(-1);
    m.mix_DD = m.mix_DD + ea * shift("mix.weight");
    m.write_D = m.write_D + eb * shift("write.weight").squeeze(-1);
    return m;
  }
  const bool dynamic_;
};

class ManifoldFormula final : public StreamsFormula {
 public:
  explicit ManifoldFormula(const FormulaInputs& in) : StreamsFormula(in, kPermutedStreams) {
    // [P, D, D]: permutation p takes stream p(j) to j.
    at::Tensor all = at::zeros_like(in.parameters.values().narrow(0, 0, 1), at::kCPU)
                         .repeat({kPermutations * kPermutedStreams * kPermutedStreams});
    auto* one = static_cast<float*>(all.data_ptr());
    for (Index p = 0; p < kPermutations; ++p)
      for (Index j = 0; j < kPermutedStreams; ++j)
        one[(p * kPermutedStreams + PermutationMixer::permutations()[p][j]) * kPermutedStreams + j] = 1;
    permutations_ = all.view({kPermutations, kPermutedStreams * kPermutedStreams}).to(in.parameters.device());
  }

 private:
  Mixing mixing(Index s, const at::Tensor& X) override {
    const std::string at = prefix("mhc", s);
    const at::Tensor u = at::rms_norm(X.flatten(2), {X.size(2) * X.size(3)}, {}, kOwnNormEps);
    const at::Tensor scales = parameter(at + "scales");
    const auto logits = [&](const char* which, Index scale) {
      return scales.select(0, scale) * at::linear(u, parameter(at + which + std::string(".weight"))) +
             parameter(at + which + std::string(".bias"));
    };
    const at::Tensor w = logits("mix", 2).softmax(-1);
    return {at::sigmoid(logits("read", 0)),
            w.matmul(permutations_).view({X.size(0), X.size(1), kPermutedStreams, kPermutedStreams}),
            2 * at::sigmoid(logits("write", 1))};
  }
  at::Tensor permutations_;
};

// Null where a rule that is not of the fused pass has taken the name.
using MakeFormula = std::function<std::unique_ptr<ResidualStream>(const FormulaInputs&)>;
MakeFormula fused_formula(FusedWrite write) {
  return [write](const FormulaInputs& in) -> std::unique_ptr<ResidualStream> {
    std::optional<FusedSpec> spec = fused_spec(in.config);
    if (!spec) return nullptr;
    return std::make_unique<FusedFormula>(in, std::move(*spec), write);
  };
}
template <class Formula, class... Choice>
MakeFormula formula_of(Choice... choice) {
  return [=](const FormulaInputs& in) { return std::make_unique<Formula>(in, choice...); };
}

// The formula of each rule; a rule that is not here has none yet.
const std::map<std::string, MakeFormula>& formulas() {
  using enum FusedWrite;
  static const std::map<std::string, MakeFormula> kFormulas = {
      {"baseline", fused_formula(kPlain)},
      {"norm-write", fused_formula(kNormalised)},
      {"ihc", fused_formula(kAdditive)},
      {"ddl-dv1", fused_formula(kDelta)},
      {"ddl-tc-noec", fused_formula(kDelta)},
      {"ddl-cc-noec", fused_formula(kDelta)},
      {"ddl-tc", fused_formula(kDelta)},
      {"ddl-cc", fused_formula(kDelta)},
      {"wo-dv1", fused_formula(kWriteOnly)},
      {"wo-tc", fused_formula(kWriteOnly)},
      {"wo-cc", fused_formula(kWriteOnly)},
      {"ddl-ew-dv1", fused_formula(kEraseAndWrite)},
      {"ddl-ew-cc", fused_formula(kEraseAndWrite)},
      {"decay-x0", formula_of<DecayFormula>()},
      {"highway", formula_of<HighwayFormula>()},
      {"attnres", formula_of<DepthFormula>(1)},
      {"attnres-block",
       [](const FormulaInputs& in) {
         return std::make_unique<DepthFormula>(in, in.config.rule<DepthBlockOptions>().block_size);
       }},
      {"hc", formula_of<HyperFormula>(true)},
      {"hc-static", formula_of<HyperFormula>(false)},
      {"mhc", formula_of<ManifoldFormula>()}};
  return kFormulas;
}

}  // namespace

std::unique_ptr<ResidualStream> make_formula_stream(const ModelConfig& config, FlatParameters& parameters,
                                                    at::ScalarType activations, EarlierTokens& earlier) {
  const auto formula = formulas().find(config.residual());
  std::unique_ptr<ResidualStream> stream;
  if (formula != formulas().end()) stream = formula->second({config, parameters, activations, earlier});
  if (!stream)
    throw UserError(
        "nobody has written the formula of {} for GPUs (src/torch/formula_stream.cc); --device cpu trains it",
        config.residual());
  return stream;
}

}  // namespace ddl
