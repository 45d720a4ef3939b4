// The two-layer gate against complex-step derivatives of the oracle's.
#include "kernels/two_layer_gate.h"

#include <type_traits>

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::two_layer_gate_test {
namespace {

// One number per token, `stride` floats apart; what lies between is NaN and must stay so.
struct Column {
  const Index stride;
  Buffer<float> rows;

  Column(const std::vector<double>& values_N, Index stride_)
      : stride(stride_), rows(std::ssize(values_N) * stride_) {
    std::fill_n(rows.data(), rows.size(), std::numeric_limits<float>::quiet_NaN());
    for (Index n = 0; n < std::ssize(values_N); ++n) rows[n * stride] = static_cast<float>(values_N[n]);
  }
  std::vector<double> values() const {
    std::vector<double> values_N;
    for (Index i = 0; i < rows.size(); i += stride) values_N.push_back(rows[i]);
    return values_N;
  }
  bool intact() const {
    for (Index i = 0; i < rows.size(); ++i)
      if (i % stride > 0 && !std::isnan(rows[i])) return false;
    return rows.intact();
  }
};

// gate = scale sigmoid(w2 . tanh(hidden) + b2)
template <class T>
void check_two_layer_gate(Index N, Index G, int threads, Index stride = 1, float scale = 2) {
  const Exec ex{.threads = threads};
  const auto hidden = normals(N * G, 1), w2 = normals(G, 2, 0.3), b2 = normals(1, 3), g = normals(N, 4);
  const Buffer<float> hb(hidden), wb(w2), bb(b2);
  Column beta(std::vector<double>(N), stride), dbeta(g, stride);
  Buffer<float> dw2(G), db2(1), scratch(two_layer_gate_scratch(G));
  Buffer<T> dhidden(N * G);
  two_layer_gate_fwd(beta.rows.data(), stride, scale, hb.data(), wb.data(), bb.data(), N, G, ex);
  two_layer_gate_bwd<T>(dhidden.data(), dw2.data(), db2.data(), dbeta.rows.data(), beta.rows.data(), stride,
                        scale, hb.data(), wb.data(), scratch.data(), N, G, ex);
  const auto gate = [&](const auto& h, const auto& w, const auto& b) {
    auto t = h;
    for (auto& x : t) x = std::tanh(x);
    auto gates = ref::gate_linear(t, w, b, N, G);  // 2 sigmoid
    for (auto& x : gates) x *= scale / 2.0;
    return gates;
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
  EXPECT_TRUE(dhidden.intact() && beta.intact() && dbeta.intact() && dw2.intact() && db2.intact() &&
              scratch.intact());
}

TEST(TwoLayerGate, AgreesWithTheOracle) {
  for (Index G : {1, 7, 16, 33})
    for (int threads : {1, 3}) {
      check_two_layer_gate<float>(37, G, threads);
      check_two_layer_gate<bf16>(5, G, threads);
    }
}

TEST(TwoLayerGate, AnyStrideAndScale) {
  for (Index stride : {1, 2, 5})
    for (float scale : {0.5f, 1.0f, 4.0f}) {
      check_two_layer_gate<float>(37, 17, 2, stride, scale);
      check_two_layer_gate<bf16>(5, 17, 2, stride, scale);
    }
}

}  // namespace
}  // namespace ddl::two_layer_gate_test
