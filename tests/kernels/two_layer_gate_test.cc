// The two-layer gate against complex-step derivatives of the oracle's.
#include "kernels/two_layer_gate.h"

#include <type_traits>

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::two_layer_gate_test {
namespace {

template <class T>
void check_two_layer_gate(Index N, Index G, int threads) {
  const Exec ex{.threads = threads};
  const auto hidden = normals(N * G, 1), w2 = normals(G, 2, 0.3), b2 = normals(1, 3), g = normals(N, 4);
  const Buffer<float> hb(hidden), wb(w2), bb(b2), gb(g);
  Buffer<float> beta(N), dw2(G), db2(1), scratch(two_layer_gate_scratch(G));
  Buffer<T> dhidden(N * G);
  two_layer_gate_fwd(beta.data(), hb.data(), wb.data(), bb.data(), N, G, ex);
  two_layer_gate_bwd<T>(dhidden.data(), dw2.data(), db2.data(), gb.data(), beta.data(), hb.data(), wb.data(),
                        scratch.data(), N, G, ex);
  const auto gate = [&](const auto& h, const auto& w, const auto& b) {
    auto t = h;
    for (auto& x : t) x = std::tanh(x);
    return ref::gate_linear(t, w, b, N, G);
  };
  const Index r = 4 * G + N + 64;
  const auto ch = complexify(hidden), cw = complexify(w2), cb = complexify(b2);
  EXPECT_LT(rounding_ratio(beta.values(), gate(hidden, w2, b2), r), 1);
  const auto dh = oracle_gradient(hidden, [&](const auto& z) { return weighted_sum(gate(z, cw, cb), g); });
  const double storage = std::is_same_v<T, bf16> ? kBf16Epsilon : 0;
  EXPECT_LT(rounding_ratio(dhidden.values(), dh, r, storage), 1);
  EXPECT_LT(
      rounding_ratio(dw2.values(),
                     oracle_gradient(w2, [&](const auto& z) { return weighted_sum(gate(ch, z, cb), g); }), r),
      1);
  EXPECT_LT(
      rounding_ratio(db2.values(),
                     oracle_gradient(b2, [&](const auto& z) { return weighted_sum(gate(ch, cw, z), g); }), r),
      1);
  std::vector<double> no_slope = dhidden.values();  // mutant: tanh's slope left out
  for (Index i = 0; i < N * G; ++i) no_slope[i] /= 1 - std::tanh(hidden[i]) * std::tanh(hidden[i]);
  EXPECT_GT(rounding_ratio(no_slope, dh, r, storage), 1);
  EXPECT_TRUE(dhidden.intact() && beta.intact() && dw2.intact() && scratch.intact());
}

TEST(TwoLayerGate, AgreesWithTheOracle) {
  for (Index G : {1, 7, 16, 33})
    for (int threads : {1, 3}) {
      check_two_layer_gate<float>(37, G, threads);
      check_two_layer_gate<bf16>(5, G, threads);
    }
}

}  // namespace
}  // namespace ddl::two_layer_gate_test
