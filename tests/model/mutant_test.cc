// Every rule's backward with one thing wrong must be told from the oracle's gradients: the check of
// model_test.cc can fail, for each rule.
#include "model/oracle_model.h"
#include "model/residual/wrapped_rule.h"

namespace ddl {
namespace {

enum class Fault { kNone, kOutputTooLarge, kContextDropped, kWrongOutput, kTokenForgotten };

// The rule behind `inner`, with a fault in its backward.
class MutantRule : public WrappedRule {
 public:
  MutantRule(std::unique_ptr<ResidualRule<float>> inner, Fault fault, Index C)
      : WrappedRule(std::move(inner)), fault_(fault), C_(C) {}

  void write_and_read_backward(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
                               const float* h_NC, const Tokens& tokens, const Exec& ex) override {
    const bool here = s == 1;
    std::vector<float> other_h(h_NC, h_NC + tokens.count * C_);
    if (here && fault_ == Fault::kWrongOutput)
      for (float& h : other_h) h *= 1.01f;
    // The first token's
    if (here && fault_ == Fault::kContextDropped) std::fill(dnext_context_NC, dnext_context_NC + C_, 0.0f);
    WrappedRule::write_and_read_backward(s, dh_NC, dnext_context_NC, next_context_NC, other_h.data(), tokens,
                                         ex);
    if (here && fault_ == Fault::kOutputTooLarge)
      for (Index i = 0; i < tokens.count * C_; ++i) dh_NC[i] *= 1.003f;  // a third of a percent
  }
  void start_backward(float* dx_NC, float* dcontext_NC, const float* context_NC, const float* x_NC,
                      const Tokens& tokens, const Exec& ex) override {
    WrappedRule::start_backward(dx_NC, dcontext_NC, context_NC, x_NC, tokens, ex);
    if (fault_ == Fault::kTokenForgotten) std::fill(dx_NC, dx_NC + C_, 0.0f);
  }

 private:
  Fault fault_;
  Index C_;
};

std::string register_mutant(const std::string& rule, Fault fault) {
  const std::string name = fmt::format("mutant-{}-{}", rule, static_cast<int>(fault));
  register_wrapped(name, rule, [fault](auto inner, const ModelConfig& config) {
    return std::make_unique<MutantRule>(std::move(inner), fault, config.width);
  });
  return name;
}

class EveryRuleMutants : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRuleMutants, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(EveryRuleMutants, AreRejected) {
  const std::string rule = GetParam();
  const BatchShape shape{2, 4};
  const auto x = tokens(shape.N(), 1), y = tokens(shape.N(), 2);
  Truth truth;
  const auto error = [&](Fault fault) {
    const auto model = trainable(model_config({.residual = register_mutant(rule, fault)}), shape);
    scramble(*model);
    if (truth.gradients.empty())
      truth = oracle_truth(model_config({.residual = rule}), oracle_parameters(model->weights()), x, y,
                           shape.B, shape.T);
    const double loss = model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
    return worst_error(loss, *model, truth);
  };
  EXPECT_LT(error(Fault::kNone), 1);
  for (const Fault fault : {Fault::kOutputTooLarge, Fault::kContextDropped, Fault::kTokenForgotten})
    EXPECT_GT(error(fault), 1) << static_cast<int>(fault);
  // Where the write is linear in the output, backward does not look at it.
  if (rule != "baseline" && rule != "decay-x0") {
    EXPECT_GT(error(Fault::kWrongOutput), 1);
  }
}

}  // namespace
}  // namespace ddl
