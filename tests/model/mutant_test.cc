// Every rule's backward with one thing wrong must be told from the oracle's gradients: the check of
// model_test.cc can fail, for each rule.
#include "model/oracle_model.h"
#include "model/wrapped_rule.h"

namespace ddl {
namespace {

enum class Fault { kNone, kOutputTooLarge, kContextDropped, kWrongOutput, kTokenForgotten };

// The rule behind `inner`, with a fault in its backward.
class MutantRule : public WrappedRule {
 public:
  MutantRule(std::unique_ptr<Residual<float>> inner, Fault fault, BatchShape shape, Index C)
      : WrappedRule(std::move(inner)), fault_(fault), N_(shape.N()), C_(C) {}

  void retreat(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
               const float* h_NC, const Exec& ex) override {
    const bool here = s == 1;
    std::vector<float> other_h(h_NC, h_NC + N_ * C_);
    if (here && fault_ == Fault::kWrongOutput)
      for (float& h : other_h) h *= 1.01f;
    if (here && fault_ == Fault::kContextDropped)
      std::fill(dnext_context_NC, dnext_context_NC + C_, 0.0f);  // the first token's
    WrappedRule::retreat(s, dh_NC, dnext_context_NC, next_context_NC, other_h.data(), ex);
    if (here && fault_ == Fault::kOutputTooLarge)
      for (Index i = 0; i < N_ * C_; ++i) dh_NC[i] *= 1.001f;
  }
  void close(float* dx_NC, float* dcontext_NC, const float* context_NC, const float* x_NC,
             const Exec& ex) override {
    WrappedRule::close(dx_NC, dcontext_NC, context_NC, x_NC, ex);
    if (fault_ == Fault::kTokenForgotten) std::fill(dx_NC, dx_NC + C_, 0.0f);
  }

 private:
  Fault fault_;
  Index N_, C_;
};

std::string register_mutant(const std::string& rule, Fault fault) {
  const std::string name = fmt::format("mutant-{}-{}", rule, static_cast<int>(fault));
  register_wrapped(name, rule, [fault](auto inner, const ModelConfig& config, BatchShape shape) {
    return std::make_unique<MutantRule>(std::move(inner), fault, shape, config.width);
  });
  return name;
}

// The largest error of any tensor's gradient, in units of what rounding may do (model_test.cc asks for less
// than 1).
double worst_error(const Case& c, const std::string& implementation) {
  ModelConfig m = model_config(c);
  m.residual = implementation;
  const Exec ex{};
  const Index N = c.B * c.T;
  const auto model = make_model(m, {c.B, c.T}, Model::Mode::kTrain, 1, ex);
  scramble(*model);
  const auto x = tokens(N, 1), y = tokens(N, 2);
  model->loss_and_grad({x.data(), y.data()}, 1, ex);
  const ref::Config r = oracle_config(c);
  const auto parameters = oracle_parameters(*model);
  static std::map<std::string, std::pair<ref::Parameters<double>, ref::Parameters<double>>> truths;
  auto& [gradients, moved] = truths[c.residual];
  if (gradients.empty()) {
    gradients = ref::loss_gradient(r, parameters, x, y, c.B, c.T);
    moved = ref::loss_gradient(r, nudged(parameters), x, y, c.B, c.T);
  }
  double worst = 0;
  for (const Param& p : model->table().list())
    worst = std::max(worst, rounding_ratio(tensor(model->grads(), p), gradients.at(p.name), roundings(m, N)) /
                                amplification(gradients.at(p.name), moved.at(p.name)));
  return worst;
}

class EveryRuleMutants : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRuleMutants, testing::ValuesIn(rule_names()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(EveryRuleMutants, AreRejected) {
  const Case c{.residual = GetParam()};
  EXPECT_LT(worst_error(c, register_mutant(GetParam(), Fault::kNone)), 1);
  for (const Fault fault : {Fault::kOutputTooLarge, Fault::kContextDropped, Fault::kTokenForgotten})
    EXPECT_GT(worst_error(c, register_mutant(GetParam(), fault)), 1) << static_cast<int>(fault);
  // The baseline's write is linear in the output: its backward does not look at it.
  if (GetParam() != "baseline") {
    EXPECT_GT(worst_error(c, register_mutant(GetParam(), Fault::kWrongOutput)), 1);
  }
}

}  // namespace
}  // namespace ddl
