// A strength a_s on a sublayer's output is the baseline with its output projection W_s replaced by a_s W_s.
// So the oracle's baseline gives the truth:  dL/dW_s = a_s G_s  and  dL/da_s = G_s . W_s,  with G_s its
// gradient at a_s W_s.
#include "model/example_rule.h"

#include "model/oracle_model.h"
#include "model/wrapped_rule.h"

namespace ddl {
namespace {

// The mutant: the strength left out of dh.
class WithoutStrength : public WrappedRule {
 public:
  WithoutStrength(std::unique_ptr<Residual<float>> inner, const ModelConfig& config, BatchShape shape)
      : WrappedRule(std::move(inner)), size_(shape.N() * config.width) {}

  void add_params(ParamTable& table) override {
    WrappedRule::add_params(table);
    strength_ = table.find("strength").offset;
  }
  void bind(const float* params, const float* params_T, float* grads) override {
    WrappedRule::bind(params, params_T, grads);
    params_ = params;
  }
  void retreat(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
               const float* h_NC, const Exec& ex) override {
    WrappedRule::retreat(s, dh_NC, dnext_context_NC, next_context_NC, h_NC, ex);
    for (Index i = 0; i < size_; ++i) dh_NC[i] /= params_[strength_ + s];
  }

 private:
  const Index size_;
  Index strength_ = 0;
  const float* params_ = nullptr;
};

// The largest error of the loss or of any gradient, in units of what rounding explains.
double worst_error(const std::string& rule) {
  ModelConfig m = model_config({.residual = rule});
  const Index B = 2, T = 4, N = B * T, S = m.sublayers();
  const Exec ex{.threads = 2};
  const auto model = make_model(m, {B, T}, Model::Mode::kTrain, 1, ex);
  scramble(*model);
  const auto x = tokens(N, 1), y = tokens(N, 2);
  const auto output_of = [](Index s) {
    return fmt::format("transformer.h.{}.{}.c_proj.weight", s / 2, s % 2 == 0 ? "attn" : "mlp");
  };
  const ref::Config r = oracle_config({.residual = "baseline"});
  ref::Parameters<double> scaled = oracle_parameters(*model);
  const std::vector<double> a = scaled.at("strength");
  scaled.erase("strength");
  for (Index s = 0; s < S; ++s)
    for (double& w : scaled[output_of(s)]) w *= a[s];

  const double loss = model->loss_and_grad({x.data(), y.data()}, 1, ex);
  double worst = rounding_ratio({loss}, {ref::loss(r, scaled, x, y, B, T)}, roundings(m, N));
  auto truth = ref::loss_gradient(r, scaled, x, y, B, T),
       moved = ref::loss_gradient(r, nudged(scaled), x, y, B, T);
  for (auto* gradient : {&truth, &moved})
    for (Index s = 0; s < S; ++s) {
      double da = 0;
      auto& dw = (*gradient)[output_of(s)];
      for (std::size_t i = 0; i < dw.size(); ++i) da += dw[i] * scaled[output_of(s)][i] / a[s], dw[i] *= a[s];
      (*gradient)["strength"].push_back(da);
    }
  for (const Param& p : model->table().list())
    worst = std::max(worst, rounding_ratio(tensor(model->grads(), p), truth.at(p.name), roundings(m, N)) /
                                amplification(truth.at(p.name), moved.at(p.name)));
  return worst;
}

TEST(ExampleRule, GradientsAgreeWithTheOracle) {
  register_example_rule();
  EXPECT_LT(worst_error("example-strength"), 1);
}

TEST(ExampleRule, AWrongBackwardIsRejected) {
  register_example_rule();
  register_wrapped("example-mutant", "example-strength",
                   [](auto inner, const ModelConfig& config, BatchShape shape) {
                     return std::make_unique<WithoutStrength>(std::move(inner), config, shape);
                   });
  EXPECT_GT(worst_error("example-mutant"), 1);
}

}  // namespace
}  // namespace ddl
