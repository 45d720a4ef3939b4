// The worked example holds to its oracle, and a wrong backward would not.
#include "model/residual/example_rule.h"

#include "model/oracle_model.h"
#include "model/residual/wrapped_rule.h"

namespace ddl {
namespace {

// The mutant: the strength left out of dh.
class WithoutStrength : public WrappedRule {
 public:
  WithoutStrength(std::unique_ptr<ResidualRule<float>> inner, Index C)
      : WrappedRule(std::move(inner)), C_(C) {}

  void add_params(ParamTable& table) override {
    WrappedRule::add_params(table);
    strength_ = table.find("strength").offset;
  }
  void bind(const Numbers<float>& numbers) override {
    WrappedRule::bind(numbers);
    params_ = numbers.params;
  }
  void write_and_read_backward(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
                               const float* h_NC, const Tokens& tokens, const Exec& ex) override {
    WrappedRule::write_and_read_backward(s, dh_NC, dnext_context_NC, next_context_NC, h_NC, tokens, ex);
    for (Index i = 0; i < tokens.count * C_; ++i) dh_NC[i] /= params_[strength_ + s];
  }

 private:
  const Index C_;
  Index strength_ = 0;
  const float* params_ = nullptr;
};

TEST(ExampleRule, LossAndGradientsAgreeWithTheOracle) {
  register_example_rule();
  EXPECT_LT(worst_error(model_config({.residual = "example-strength"})), 1);
}

TEST(ExampleRule, AWrongBackwardIsRejected) {
  register_example_rule();
  register_wrapped("example-mutant", "example-strength", [](auto inner, const ModelConfig& config) {
    return std::make_unique<WithoutStrength>(std::move(inner), config.width);
  });
  EXPECT_GT(worst_error(model_config({.residual = "example-mutant"})), 1);
}

TEST(ExampleRule, DecodesAsAFullForwardPass) {
  register_example_rule();
  for (const Index step : {1, 3, 12})
    EXPECT_LT(worst_decoding_error(model_config({.residual = "example-strength"}), 12, step), 1) << step;
}

// The oracle against another truth: a strength on a sublayer's output is the baseline with its output
// projection W_s replaced by a_s W_s.
TEST(ExampleRule, TheOracleIsTheBaselineWithScaledProjections) {
  register_example_rule();
  const ModelConfig example = model_config({.residual = "example-strength"});
  const auto x = tokens(8, 1);
  ref::Parameters<double> w = oracle_parameters(scrambled_weights(example));
  const std::vector<double> expected = oracle_logits(example, w, x, 2, 4), a = w.at("strength");
  w.erase("strength");
  for (Index s = 0; s < example.sublayers(); ++s)
    for (double& v : w[fmt::format("transformer.h.{}.{}.c_proj.weight", s / 2, s % 2 == 0 ? "attn" : "mlp")])
      v *= a[s];
  const std::vector<double> scaled = oracle_logits(model_config({.residual = "baseline"}), w, x, 2, 4);
  for (std::size_t i = 0; i < scaled.size(); ++i) EXPECT_NEAR(scaled[i], expected[i], 1e-12 * rms(expected));
}

}  // namespace
}  // namespace ddl
