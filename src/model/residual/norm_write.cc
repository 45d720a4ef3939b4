// A normalised additive write:
//
//   norm-write     x <- x + a_s RMSNorm(h),  a_s one learned number per sublayer
//
// The write has a size that does not depend on h, as in ddl, but nothing is read and nothing is erased. It asks
// whether a normalised write alone explains what ddl gains.
#include <cmath>
#include <memory>

#include "model/residual/fused_rule.h"
#include "model/residual/rules.h"
#include "ref/rule.h"

namespace ddl {
namespace {

constexpr float kEps = 1e-5f;  // inside RMSNorm, as everywhere

struct NormWriteOptions final : OptionSetOf<NormWriteOptions> {
  double write_init = 0;
  void describe(Options& o) override {
    o.add("model.write_init", write_init, "starting value of the write's size; 0 means 1 / sqrt(sublayers)")
        .range(0, 100)
        .changes(Options::Changes::kStart);
  }
  double start(const ModelConfig& config) const {
    return write_init > 0 ? write_init : 1 / std::sqrt(static_cast<double>(config.sublayers()));
  }
};

// With s = 1 / sqrt(|h|^2 / C + eps):
//
//   coef  = a s      da = A s      along = - 2 A d coef / d |h|^2 = A a s^3 / C
//
// Steering number: a. Saved: s.
class NormWriteCoefficients final : public Coefficients {
 public:
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index) const override { return 1; }
  void forward(const Forward& t) const override {
    const float s = 1 / std::sqrt(t.h_square / static_cast<float>(t.C) + kEps);
    t.saved[0] = s;
    t.coef_D[0] = t.steer[0] * s;
  }
  void backward(Backward& t) const override {
    const float a = t.steer[0], s = t.saved[0], A = t.h_dot_G_D[0];
    t.dsteer[0] = A * s;
    t.coef_D[0] = a * s;
    t.erase_D[0] = 0;
    t.along = A * a * s * s * s / static_cast<float>(t.C);
  }
};

FusedSpec norm_write_spec(const ModelConfig& config) {
  FusedSpec spec;
  spec.write = std::make_shared<NormWriteCoefficients>();
  spec.branch_prefix = "write";
  spec.branches = {{.name = "scale",
                    .input = BranchInput::kNone,
                    .bias = Init::constant(config.rule<NormWriteOptions>().start(config))}};
  spec.series = {{.name = "write size", .first = 0}};
  return spec;
}

template <class Num>
class NormWriteOracle : public ref::Rule<Num> {
 public:
  explicit NormWriteOracle(const ModelConfig& config) : width_(config.width), layers_(config.layers) {}
  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index i = 0; i < layers_; ++i)
      for (const char* kind : {"attn", "mlp"})
        counts[fmt::format("transformer.h.{}.write_{}.scale.bias", i, kind)] = 1;
  }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index, Index) const override {
    return x_NC;
  }
  ref::Vec<Num> read(const ref::Vec<Num>& state, const ref::Place&, const ref::Parameters<Num>&, Index,
                     Index) const override {
    return state;
  }
  ref::Vec<Num> write(const ref::Vec<Num>& state, ref::SublayerTrace<Num>& s, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index N) const override {
    const Num a = ref::find_parameter(w, place.block + "write_" + place.kind + ".scale.bias")[0];
    const ref::Vec<Num> ones(static_cast<std::size_t>(width_), Num(1));
    const ref::Vec<Num> normed = ref::rmsnorm(s.h_NC, ones, N, width_);
    ref::Vec<Num> next = state;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] += a * normed[i];
    return next;
  }

 private:
  const Index width_, layers_;
};

}  // namespace

std::vector<RuleEntry> norm_write_rules() {
  return {with_oracle<NormWriteOracle>(
      fused_rule("norm-write", "additive residual of normalised outputs, a learned size each",
                 OptionSetPtr(NormWriteOptions()), norm_write_spec))};
}

}  // namespace ddl
