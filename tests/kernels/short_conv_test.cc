#include "kernels/short_conv.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::short_conv_test {
namespace {

struct Shape {
  Index B, T, D, C, E;
  Index N() const { return B * T; }
  Index roundings() const { return 2 * E * D * C + N() + 32; }
};
// Odd widths, sequences shorter than the kernel, one tap, one channel.
const Shape kShapes[] = {
    {1, 1, 1, 1, 1}, {2, 5, 4, 9, 4}, {3, 2, 2, 16, 4}, {1, 7, 3, 17, 2}, {2, 20, 1, 8, 3}};

TEST(Repeat, CopiesAndSums) {
  for (const Shape& s : kShapes) {
    const auto x = normals(s.N() * s.C, 1), g = normals(s.N() * s.D * s.C, 2);
    const Buffer<float> xb(x), gb(g);
    Buffer<float> state(s.N() * s.D * s.C), dx(s.N() * s.C);
    repeat_fwd(state.data(), xb.data(), s.N(), s.D, s.C, Exec{.threads = 2});
    repeat_bwd(dx.data(), gb.data(), s.N(), s.D, s.C, Exec{.threads = 2});
    EXPECT_EQ(state.values(), ref::repeat_channels(x, s.N(), s.D, s.C));
    const auto truth = oracle_gradient(
        x, [&](const auto& z) { return weighted_sum(ref::repeat_channels(z, s.N(), s.D, s.C), g); });
    EXPECT_LT(rounding_ratio(dx.values(), truth, s.D), 1);
    EXPECT_TRUE(state.intact() && dx.intact());
    if (s.D == 1) continue;
    std::vector<double> first(s.N() * s.C);  // mutant: one channel's gradient in place of the sum
    for (Index n = 0; n < s.N(); ++n)
      for (Index c = 0; c < s.C; ++c) first[n * s.C + c] = g[n * s.D * s.C + c];
    EXPECT_GT(rounding_ratio(dx.values(), first, s.D), 1);
  }
}

TEST(EmbeddingConv, AgreesWithTheOracle) {
  for (const Shape& s : kShapes)
    for (int threads : {1, 3}) {
      const Exec ex{.threads = threads};
      const auto x = normals(s.N() * s.C, 1), w = normals(s.E * s.D * s.C, 2),
                 g = normals(s.N() * s.D * s.C, 3);
      const Buffer<float> xb(x), wb(w), gb(g);
      Buffer<float> state(s.N() * s.D * s.C), dx(s.N() * s.C), dw(s.E * s.D * s.C);
      Buffer<float> scratch(short_conv_scratch(s.D, s.C, s.E));
      embedding_conv_fwd(state.data(), xb.data(), wb.data(), s.N(), s.T, s.D, s.C, s.E, ex);
      embedding_conv_bwd(dx.data(), dw.data(), gb.data(), xb.data(), wb.data(), scratch.data(), s.N(), s.T,
                         s.D, s.C, s.E, ex);
      const auto conv = [&](const auto& in, const auto& weights) {
        return ref::embedding_conv(in, weights, s.B, s.T, s.D, s.C, s.E);
      };
      const auto cx = complexify(x), cw = complexify(w);
      const auto true_dx = oracle_gradient(x, [&](const auto& z) { return weighted_sum(conv(z, cw), g); });
      const auto true_dw = oracle_gradient(w, [&](const auto& z) { return weighted_sum(conv(cx, z), g); });
      EXPECT_LT(rounding_ratio(state.values(), conv(x, w), s.roundings()), 1);
      EXPECT_LT(rounding_ratio(dx.values(), true_dx, s.roundings()), 1);
      EXPECT_LT(rounding_ratio(dw.values(), true_dw, s.roundings()), 1);
      EXPECT_TRUE(state.intact() && dx.intact() && dw.intact() && scratch.intact());

      if (s.E < 2 || s.T < 2) continue;
      // Mutants: taps in the wrong order; a sequence that looks into its neighbour.
      auto reversed = w;
      std::reverse(reversed.begin(), reversed.end());
      EXPECT_GT(rounding_ratio(state.values(), conv(x, reversed), s.roundings()), 1);
      if (s.B > 1) {
        const auto leaking = ref::embedding_conv(x, w, 1, s.N(), s.D, s.C, s.E);
        EXPECT_GT(rounding_ratio(state.values(), leaking, s.roundings()), 1);
        const auto leaking_conv = [&](const auto& in, const auto& weights) {
          return ref::embedding_conv(in, weights, 1, s.N(), s.D, s.C, s.E);
        };
        const auto leaking_dx =
            oracle_gradient(x, [&](const auto& z) { return weighted_sum(leaking_conv(z, cw), g); });
        const auto leaking_dw =
            oracle_gradient(w, [&](const auto& z) { return weighted_sum(leaking_conv(cx, z), g); });
        EXPECT_GT(rounding_ratio(dx.values(), leaking_dx, s.roundings()), 1);
        EXPECT_GT(rounding_ratio(dw.values(), leaking_dw, s.roundings()), 1);
      }
    }
}

TEST(TokenCompress, AgreesWithTheOracle) {
  for (const Shape& s : kShapes)
    for (int threads : {1, 3}) {
      const Exec ex{.threads = threads};
      const auto X = normals(s.N() * s.D * s.C, 1), w = normals(s.E * s.D * s.C, 2), read = normals(s.D, 3);
      const auto g = normals(s.N() * s.C, 4), before = normals(s.N() * s.D * s.C, 5);
      const Buffer<float> Xb(X), wb(w), rb(read), gb(g);
      Buffer<float> x(s.N() * s.C), dX(s.N() * s.D * s.C), added(before), dw(s.E * s.D * s.C), dread(s.D);
      Buffer<float> scratch(short_conv_scratch(s.D, s.C, s.E));
      token_compress_fwd(x.data(), Xb.data(), wb.data(), rb.data(), s.N(), s.T, s.D, s.C, s.E, ex);
      token_compress_bwd(dX.data(), Write::kOverwrite, dw.data(), dread.data(), gb.data(), Xb.data(),
                         wb.data(), rb.data(), scratch.data(), s.N(), s.T, s.D, s.C, s.E, ex);
      const auto compress = [&](const auto& state, const auto& weights, const auto& r) {
        return ref::token_compress(state, weights, r, s.B, s.T, s.D, s.C, s.E);
      };
      const auto cX = complexify(X), cw = complexify(w), cr = complexify(read);
      const auto true_dX =
          oracle_gradient(X, [&](const auto& z) { return weighted_sum(compress(z, cw, cr), g); });
      const auto true_dw =
          oracle_gradient(w, [&](const auto& z) { return weighted_sum(compress(cX, z, cr), g); });
      const auto true_dr =
          oracle_gradient(read, [&](const auto& z) { return weighted_sum(compress(cX, cw, z), g); });
      EXPECT_LT(rounding_ratio(x.values(), compress(X, w, read), s.roundings()), 1);
      EXPECT_LT(rounding_ratio(dX.values(), true_dX, s.roundings()), 1);
      EXPECT_LT(rounding_ratio(dw.values(), true_dw, s.roundings()), 1);
      EXPECT_LT(rounding_ratio(dread.values(), true_dr, s.roundings()), 1);

      const auto dw_once = dw.values(), dread_once = dread.values();

      // Accumulating adds to what was there.
      std::vector<double> sum = before;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += true_dX[i];
      token_compress_bwd(added.data(), Write::kAccumulate, dw.data(), dread.data(), gb.data(), Xb.data(),
                         wb.data(), rb.data(), scratch.data(), s.N(), s.T, s.D, s.C, s.E, ex);
      EXPECT_LT(rounding_ratio(added.values(), sum, s.roundings()), 1);
      EXPECT_TRUE(x.intact() && dX.intact() && added.intact() && dw.intact() && dread.intact() &&
                  scratch.intact());

      if (s.E < 2 || s.T < 2) continue;
      // Mutants: the read vector left out of the gradient; the taps of the future read instead of the past.
      if (s.D > 1) {
        const auto no_read = oracle_gradient(
            X, [&](const auto& z) { return weighted_sum(compress(z, cw, std::vector<Complex>(s.D, 1)), g); });
        EXPECT_GT(rounding_ratio(dX.values(), no_read, s.roundings()), 1);
      }
      auto reversed = w;
      std::reverse(reversed.begin(), reversed.end());
      EXPECT_GT(rounding_ratio(x.values(), compress(X, reversed, read), s.roundings()), 1);
      // A token left out of the sums over tokens.
      auto without_first = g;
      std::fill_n(without_first.begin(), s.C, 0.0);
      const auto short_dw =
          oracle_gradient(w, [&](const auto& z) { return weighted_sum(compress(cX, z, cr), without_first); });
      const auto short_dr = oracle_gradient(
          read, [&](const auto& z) { return weighted_sum(compress(cX, cw, z), without_first); });
      EXPECT_GT(rounding_ratio(dw_once, short_dw, s.roundings()), 1);
      EXPECT_GT(rounding_ratio(dread_once, short_dr, s.roundings()), 1);
    }
}

TEST(ShortConv, BitsDoNotDependOnThreads) {
  const Shape s{2, 40, 4, 24, 4};
  const Buffer<float> X(normals(s.N() * s.D * s.C, 1)), w(normals(s.E * s.D * s.C, 2)), r(normals(s.D, 3)),
      g(normals(s.N() * s.C, 4));
  std::vector<std::vector<double>> results;
  for (int threads : {1, 2, 3, 8}) {
    Buffer<float> dX(s.N() * s.D * s.C), dw(s.E * s.D * s.C), dr(s.D),
        scratch(short_conv_scratch(s.D, s.C, s.E));
    token_compress_bwd(dX.data(), Write::kOverwrite, dw.data(), dr.data(), g.data(), X.data(), w.data(),
                       r.data(), scratch.data(), s.N(), s.T, s.D, s.C, s.E, Exec{.threads = threads});
    results.push_back(dw.values());
    EXPECT_EQ(results.back(), results.front());
  }
}

// A sequence in spans of any length: the same bits as at once, and a look back that is off by one is noticed.
TEST(Spans, GiveTheBitsOfTheWholeSequence) {
  const Index T = 19, D = 3, C = 9;
  const auto x = normals(T * C, 1), X = normals(T * D * C, 2), read = normals(D, 4);
  const Buffer<float> xb(x), Xb(X), rb(read);
  for (Index E : {1, 2, 4, 7})
    for (const std::vector<Index>& spans : {std::vector<Index>{19},
                                            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                            {2, 17},
                                            {3, 1, 7, 2, 6},
                                            {18, 1}}) {
      const Exec ex{.threads = 2};
      const Buffer<float> w(normals(E * D * C, 3));
      Buffer<float> state(T * D * C), whole_state(T * D * C), row(T * C), whole_row(T * C);
      embedding_conv_fwd(whole_state.data(), xb.data(), w.data(), T, T, D, C, E, ex);
      token_compress_fwd(whole_row.data(), Xb.data(), w.data(), rb.data(), T, T, D, C, E, ex);
      const auto run = [&](Index shift) {
        Index t = 0;
        for (const Index n : spans) {
          std::vector<const float*> x_before, state_before;
          for (Index s = 1; s <= std::min(E - 1, t); ++s) {
            const Index at = std::max<Index>(0, t - s - shift);
            x_before.push_back(xb.data() + at * C), state_before.push_back(Xb.data() + at * D * C);
          }
          embedding_conv_span(state.data() + t * D * C, xb.data() + t * C, x_before, w.data(), n, D, C, E,
                              ex);
          token_compress_span(row.data() + t * C, Xb.data() + t * D * C, state_before, w.data(), rb.data(), n,
                              D, C, E, ex);
          t += n;
        }
      };
      run(0);
      EXPECT_EQ(state.values(), whole_state.values()) << E;
      EXPECT_EQ(row.values(), whole_row.values()) << E;
      EXPECT_TRUE(state.intact() && row.intact());
      if (E < 2 || spans.size() < 2) continue;
      run(1);
      EXPECT_NE(state.values(), whole_state.values()) << E;
      EXPECT_NE(row.values(), whole_row.values()) << E;
    }
}

}  // namespace
}  // namespace ddl::short_conv_test
