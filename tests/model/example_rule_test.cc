// A strength a_s on a sublayer's output is the baseline with its output projection W_s replaced by a_s W_s.
// So the oracle's baseline gives the truth:  dL/dW_s = a_s G_s  and  dL/da_s = G_s . W_s,  with G_s its
// gradient at a_s W_s.
#include "model/example_rule.h"

#include "kernels/kernel_test.h"
#include "model/model.h"
#include "ref/model.h"

namespace ddl {
namespace {

TEST(ExampleRule, GradientsAgreeWithTheOracle) {
  register_example_rule();
  ModelConfig m;
  m.layers = 2, m.width = 8, m.heads = 2, m.mlp = 7, m.vocab = 11, m.context = 8, m.precision = "f32";
  m.residual = "example-strength";
  const Index B = 2, T = 4, N = B * T;
  const Exec ex{.threads = 2};
  const auto model = make_model(m, {B, T}, Model::Mode::kTrain, 1, ex);
  std::vector<std::int32_t> x(N), y(N);
  for (Index n = 0; n < N; ++n)
    x[n] = static_cast<std::int32_t>(7 * n % 11), y[n] = static_cast<std::int32_t>(3 * n % 11);

  const Param& strength = model->table().find("strength");
  for (Index s = 0; s < strength.count; ++s)
    model->params()[strength.offset + s] = 0.3f + 0.2f * static_cast<float>(s);
  const auto output_of = [](Index s) {
    return fmt::format("transformer.h.{}.{}.c_proj.weight", s / 2, s % 2 == 0 ? "attn" : "mlp");
  };
  ref::Config r = ref::with_variant(
      {.layers = 2, .heads = 2, .head_size = 4, .width = 8, .mlp = 7, .vocab = 11}, "baseline");
  ref::Parameters<double> scaled;
  for (const Param& p : model->table().list())
    if (p.name != "strength")
      scaled[p.name].assign(model->params().begin() + p.offset, model->params().begin() + p.offset + p.count);
  for (Index s = 0; s < 4; ++s)
    for (double& w : scaled[output_of(s)]) w *= model->params()[strength.offset + s];

  const double loss = model->loss_and_grad({x.data(), y.data()}, 1, ex);
  EXPECT_LT(rounding_ratio({loss}, {ref::loss(r, scaled, x, y, B, T)}, 500), 1);
  auto truth = ref::loss_gradient(r, scaled, x, y, B, T);
  for (Index s = 0; s < 4; ++s) {
    const double a = model->params()[strength.offset + s];
    double da = 0;
    for (std::size_t i = 0; i < truth[output_of(s)].size(); ++i)
      da += truth[output_of(s)][i] * scaled[output_of(s)][i] / a, truth[output_of(s)][i] *= a;
    truth["strength"].push_back(da);
  }
  for (const Param& p : model->table().list()) {
    const std::vector<double> ours(model->grads().begin() + p.offset,
                                   model->grads().begin() + p.offset + p.count);
    EXPECT_LT(rounding_ratio(ours, truth.at(p.name), 2000), 1) << p.name;
  }
  // Mutant: the strength left out of dh would give the projections G_s instead of a_s G_s.
  std::vector<double> mutant = truth.at(output_of(0));
  for (double& g : mutant) g /= model->params()[strength.offset];
  EXPECT_GT(rounding_ratio(mutant, truth.at(output_of(0)), 2000), 1);
}

}  // namespace
}  // namespace ddl
