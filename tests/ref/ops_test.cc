// Each operation of the oracle: its derivative by complex step against a gradient derived by hand
// (docs/math.md) and against finite differences; shapes, causality and the fold of released compressor
// weights.
#include "ref/ops.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ref/complex_step.h"
#include "ref/tiny_model.h"
#include "ref/tolerance.h"

namespace ddl::ref {
namespace {

using Real = std::vector<double>;

// No operation here sends a number through more roundings than this (the longest chain is attention's).
constexpr Index kRoundings = 400;

// L = sum_i g_i y_i: a scalar whose gradient is the vector-Jacobian product with g.
template <class Num>
Num weighted(const Vec<Num>& y, const Real& g) {
  EXPECT_EQ(y.size(), g.size());
  Num sum(0);
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * Num(g[i]);
  return sum;
}

double gradient_tolerance(const Real& truth) { return rounding_tolerance(1 + largest(truth), kRoundings); }

// Holds `derived` and finite differences to the complex step of f at x, and checks that a gradient which is
// off by a thousandth would not have passed. f takes a vector of any number type. Returns the complex-step
// gradient.
template <class F>
Real expect_gradient(const std::string& what, F f, Real x, const Real& derived) {
  const Real truth = gradient(f, x);
  const double tolerance = gradient_tolerance(truth);
  EXPECT_LE(distance(derived, truth), tolerance) << what;
  Real wrong = derived;
  for (double& value : wrong) value *= 1.001;
  EXPECT_GT(distance(wrong, truth), tolerance) << what << ": the check cannot fail";
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Slope slope = central_difference([&] { return f(std::as_const(x)); }, x[i], kRoundings);
    EXPECT_NEAR(slope.value, truth[i], slope.tolerance) << what << "[" << i << "]";
  }
  return truth;
}

// A gradient with a mistake in it must be far outside the tolerance that the right one meets.
void expect_rejected(const std::string& what, const Real& mutant, const Real& truth) {
  EXPECT_GT(distance(mutant, truth), 1e3 * gradient_tolerance(truth)) << what;
}

TEST(ComplexStep, IsExactForElementaryFunctions) {
  const Real x = {-1.3, -0.2, 0.4, 2.1};
  const auto check = [&](auto f, auto derivative) {
    for (const double at : x) {
      const double slope = gradient([&](const auto& p) { return f(p[0]); }, {at})[0];
      EXPECT_NEAR(slope, derivative(at), rounding_tolerance(1 + std::abs(slope), 16)) << at;
    }
  };
  check([](auto z) { return std::exp(z); }, [](double z) { return std::exp(z); });
  check([](auto z) { return std::tanh(z); }, [](double z) { return 1 - std::tanh(z) * std::tanh(z); });
  check([](auto z) { return sigmoid(z); }, [](double z) { return sigmoid(z) * (1 - sigmoid(z)); });
  check([](auto z) { return silu(z); }, [](double z) { return sigmoid(z) * (1 + z * (1 - sigmoid(z))); });
  check([](auto z) { return std::sqrt(z * z + 0.5); }, [](double z) { return z / std::sqrt(z * z + 0.5); });
  EXPECT_NEAR(slope_along([](const auto& p) { return p[0] * p[1]; }, {2.0, 3.0}, {1.0, 10.0}), 23.0,
              rounding_tolerance(23, 4));
}

TEST(RmsNorm, Gradient) {
  const Index N = 3, C = 5;
  const Real x = normals(N * C, "x"), w = normals(C, "w"), g = normals(N * C, "g");
  Real dx(N * C), dw(C, 0.0), centred_dropped(N * C);
  for (Index n = 0; n < N; ++n) {
    double squares = 0, mean = 0;
    for (Index c = 0; c < C; ++c) squares += x[n * C + c] * x[n * C + c];
    const double rstd = 1 / std::sqrt(squares / C + kNormEps);
    for (Index c = 0; c < C; ++c) mean += g[n * C + c] * w[c] * x[n * C + c] * rstd / C;
    for (Index c = 0; c < C; ++c) {
      dx[n * C + c] = rstd * (g[n * C + c] * w[c] - x[n * C + c] * rstd * mean);
      centred_dropped[n * C + c] = rstd * g[n * C + c] * w[c];
      dw[c] += g[n * C + c] * x[n * C + c] * rstd;
    }
  }
  const Real truth = expect_gradient(
      "dx", [&]<class Num>(const Vec<Num>& p) { return weighted(rmsnorm(p, convert<Num>(w), N, C), g); }, x,
      dx);
  expect_gradient(
      "dw", [&]<class Num>(const Vec<Num>& p) { return weighted(rmsnorm(convert<Num>(x), p, N, C), g); }, w,
      dw);
  expect_rejected("dx without its projection", centred_dropped, truth);
}

TEST(Linear, Gradient) {
  const Index N = 3, I = 4, O = 2;
  const Real x = normals(N * I, "x"), w = normals(O * I, "w"), b = normals(O, "b"), g = normals(N * O, "g");
  Real dx(N * I, 0.0), dw(O * I, 0.0), db(O, 0.0);
  for (Index n = 0; n < N; ++n)
    for (Index o = 0; o < O; ++o) {
      db[o] += g[n * O + o];
      for (Index i = 0; i < I; ++i) {
        dx[n * I + i] += g[n * O + o] * w[o * I + i];
        dw[o * I + i] += g[n * O + o] * x[n * I + i];
      }
    }
  const auto f = [&]<class Num>(const Vec<Num>& px, const Vec<Num>& pw, const Vec<Num>& pb) {
    return weighted(linear_bias(px, pw, pb, N, I, O), g);
  };
  expect_gradient(
      "dx", [&]<class Num>(const Vec<Num>& p) { return f(p, convert<Num>(w), convert<Num>(b)); }, x, dx);
  expect_gradient(
      "dw", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(x), p, convert<Num>(b)); }, w, dw);
  expect_gradient(
      "db", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(x), convert<Num>(w), p); }, b, db);
}

TEST(Rope, GradientIsTheOppositeTurn) {
  const Index B = 2, T = 3, H = 2, K = 4;
  const Real x = normals(B * T * H * K, "x"), g = normals(B * T * H * K, "g");
  // Turning (first, second) by -a is turning (second, first) by +a.
  const auto swap_halves = [&](Real v) {
    for (Index r = 0; r < B * T * H; ++r)
      std::swap_ranges(v.begin() + r * K, v.begin() + r * K + K / 2, v.begin() + r * K + K / 2);
    return v;
  };
  const Real truth = expect_gradient(
      "dx", [&]<class Num>(const Vec<Num>& p) { return weighted(rope(p, B, T, H, K), g); }, x,
      swap_halves(rope(swap_halves(g), B, T, H, K)));
  expect_rejected("the same turn again", rope(g, B, T, H, K), truth);
}

TEST(Rope, KeepsLengthsAndSeesOnlyDistances) {
  const Index T = 6, K = 4;
  const Real q = normals(K, "q"), k = normals(K, "k");
  const auto dot = [&](Index tq, Index tk) {
    const Real a = rope(q, 1, 1, 1, K, kRopeBase, tq), b = rope(k, 1, 1, 1, K, kRopeBase, tk);
    double sum = 0;
    for (Index i = 0; i < K; ++i) sum += a[i] * b[i];
    return sum;
  };
  const double tolerance = rounding_tolerance(8, 8 * T);
  for (Index shift = 0; shift < T; ++shift) EXPECT_NEAR(dot(shift + 2, shift), dot(2, 0), tolerance);
  EXPECT_GT(std::abs(dot(2, 0) - dot(0, 2)), 1e3 * tolerance);  // but their sign matters
  Real repeated;
  for (Index t = 0; t < T; ++t) repeated.insert(repeated.end(), q.begin(), q.end());
  const Real rows = rope(repeated, 1, T, 1, K);
  for (Index t = 0; t < T; ++t) {
    const Real one = rope(q, 1, 1, 1, K, kRopeBase, t);
    EXPECT_EQ(Real(rows.begin() + t * K, rows.begin() + (t + 1) * K), one);
    EXPECT_NEAR(weighted(one, one), weighted(q, q), tolerance);
  }
}

TEST(RopeQkNorm, NormalisesAfterTurning) {
  const Index B = 1, T = 3, H = 2, K = 4;
  const Real x = normals(B * T * H * K, "x"), w = {0.5, 1, 2, 3};
  const Real turned_first = rmsnorm(rope(x, B, T, H, K), w, B * T * H, K);
  const Real normed_first = rope(rmsnorm(x, w, B * T * H, K), B, T, H, K);
  EXPECT_EQ(rope_qknorm(x, w, B, T, H, K), turned_first);
  EXPECT_GT(distance(turned_first, normed_first), 0.1);  // with unequal weights the order matters
}

TEST(Attention, Gradient) {
  const Index B = 2, T = 4, H = 2, K = 4, size = B * T * H * K;
  const Real q = normals(size, "q"), k = normals(size, "k"), v = normals(size, "v"), g = normals(size, "g");
  const double scale = 1 / std::sqrt(static_cast<double>(K));
  const auto row = [&](Index b, Index t, Index h) { return ((b * T + t) * H + h) * K; };
  const auto dot = [&](const Real& a, Index i, const Real& b, Index j) {
    double sum = 0;
    for (Index m = 0; m < K; ++m) sum += a[i + m] * b[j + m];
    return sum;
  };
  // With the saved lse_t and delta_t = dO_t.O_t:  P = exp(scale q.k - lse), dS = P (dO.v - delta),
  // dq = scale sum dS k,  dk = scale sum dS q,  dv = sum P dO.
  const Real o = attention(q, k, v, B, T, H, K);
  Real dq(size, 0.0), dk(size, 0.0), dv(size, 0.0), dq_without_delta(size, 0.0);
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index t = 0; t < T; ++t) {
        const Index at = row(b, t, h);
        double total = 0;
        for (Index s = 0; s <= t; ++s) total += std::exp(scale * dot(q, at, k, row(b, s, h)));
        const double lse = std::log(total), delta = dot(g, at, o, at);
        for (Index s = 0; s <= t; ++s) {
          const Index from = row(b, s, h);
          const double p = std::exp(scale * dot(q, at, k, from) - lse);
          const double ds = p * (dot(g, at, v, from) - delta);
          for (Index m = 0; m < K; ++m) {
            dq[at + m] += scale * ds * k[from + m];
            dk[from + m] += scale * ds * q[at + m];
            dv[from + m] += p * g[at + m];
            dq_without_delta[at + m] += scale * p * dot(g, at, v, from) * k[from + m];
          }
        }
      }
  const auto f = [&]<class Num>(const Vec<Num>& pq, const Vec<Num>& pk, const Vec<Num>& pv) {
    return weighted(attention(pq, pk, pv, B, T, H, K), g);
  };
  const Real truth = expect_gradient(
      "dq", [&]<class Num>(const Vec<Num>& p) { return f(p, convert<Num>(k), convert<Num>(v)); }, q, dq);
  expect_gradient(
      "dk", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(q), p, convert<Num>(v)); }, k, dk);
  expect_gradient(
      "dv", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(q), convert<Num>(k), p); }, v, dv);
  expect_rejected("dq without delta", dq_without_delta, truth);
}

TEST(Attention, DoesNotDependOnTheShiftAndSurvivesLargeScores) {
  const Index T = 3, K = 2;
  const Real q = normals(T * K, "q", 100), k = normals(T * K, "k", 100), v = normals(T * K, "v");
  for (const double o : attention(q, k, v, 1, T, 1, K)) EXPECT_TRUE(std::isfinite(o));
  const Real first = attention(q, k, v, 1, T, 1, K);
  EXPECT_NEAR(first[0], v[0], rounding_tolerance(4, 4));  // the first token sees only itself
  EXPECT_NEAR(first[1], v[1], rounding_tolerance(4, 4));
}

TEST(SwiGlu, Gradient) {
  const Real a = normals(9, "a"), b = normals(9, "b"), g = normals(9, "g");
  Real da(9), db(9);
  for (std::size_t i = 0; i < 9; ++i) {
    const double s = sigmoid(a[i]);
    da[i] = g[i] * b[i] * s * (1 + a[i] * (1 - s));
    db[i] = g[i] * a[i] * s;
  }
  expect_gradient(
      "da", [&]<class Num>(const Vec<Num>& p) { return weighted(swiglu(p, convert<Num>(b)), g); }, a, da);
  expect_gradient(
      "db", [&]<class Num>(const Vec<Num>& p) { return weighted(swiglu(convert<Num>(a), p), g); }, b, db);
}

TEST(CrossEntropy, Gradient) {
  const Index N = 3, V = 5;
  const Real z = normals(N * V, "z", 3);
  const std::vector<std::int32_t> target = {4, 0, 2};
  const Real lse = logsumexp(z, N, V);
  Real dz(N * V), soft_only(N * V);
  for (Index n = 0; n < N; ++n)
    for (Index v = 0; v < V; ++v) {
      soft_only[n * V + v] = std::exp(z[n * V + v] - lse[n]) / N;
      dz[n * V + v] = soft_only[n * V + v] - (v == target[n] ? 1.0 / N : 0);
    }
  const Real truth = expect_gradient(
      "dz", [&]<class Num>(const Vec<Num>& p) { return cross_entropy(p, target, N, V); }, z, dz);
  expect_rejected("dz without the target", soft_only, truth);
  EXPECT_NEAR(cross_entropy(Real(N * V, 700.0), target, N, V), std::log(5.0), rounding_tolerance(700, 4));
}

TEST(Embedding, GradientIsAScatter) {
  const Index N = 4, V = 3, C = 2;
  const std::vector<std::int32_t> token = {2, 0, 2, 2};
  const Real w = normals(V * C, "w"), g = normals(N * C, "g");
  Real dw(V * C, 0.0);
  for (Index n = 0; n < N; ++n)
    for (Index c = 0; c < C; ++c) dw[token[n] * C + c] += g[n * C + c];
  expect_gradient(
      "dw", [&]<class Num>(const Vec<Num>& p) { return weighted(embedding(p, token, N, V, C), g); }, w, dw);
}

TEST(EmbeddingConv, Gradient) {
  const Index B = 2, T = 4, D = 2, C = 3, E = 3;
  const Real x = normals(B * T * C, "x"), w = normals(E * D * C, "w"), g = normals(B * T * D * C, "g");
  Real dx(B * T * C, 0.0), dw(E * D * C, 0.0), dx_wrong_tap(B * T * C, 0.0);
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index e = 0; e < E; ++e)
        for (Index d = 0; d < D; ++d)
          for (Index c = 0; c < C; ++c) {
            const Index from = t - (E - 1) + e;
            if (from < 0) continue;
            const double gy = g[((b * T + t) * D + d) * C + c];
            dx[(b * T + from) * C + c] += w[(e * D + d) * C + c] * gy;
            dx_wrong_tap[(b * T + from) * C + c] += w[((E - 1 - e) * D + d) * C + c] * gy;
            dw[(e * D + d) * C + c] += x[(b * T + from) * C + c] * gy;
          }
  const Real truth = expect_gradient(
      "dx",
      [&]<class Num>(const Vec<Num>& p) {
        return weighted(embedding_conv(p, convert<Num>(w), B, T, D, C, E), g);
      },
      x, dx);
  expect_gradient(
      "dw",
      [&]<class Num>(const Vec<Num>& p) {
        return weighted(embedding_conv(convert<Num>(x), p, B, T, D, C, E), g);
      },
      w, dw);
  expect_rejected("taps reversed", dx_wrong_tap, truth);
}

TEST(ChannelCompress, Gradient) {
  const Index N = 3, D = 4, C = 5;
  const Real x = normals(N * D * C, "x"), w = normals(D * C, "w"), g = normals(N * C, "g");
  Real dx(N * D * C), dw(D * C, 0.0);
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) {
        dx[(n * D + d) * C + c] = w[d * C + c] * g[n * C + c];
        dw[d * C + c] += x[(n * D + d) * C + c] * g[n * C + c];
      }
  expect_gradient(
      "dx",
      [&]<class Num>(const Vec<Num>& p) {
        return weighted(channel_compress(p, convert<Num>(w), N, D, C), g);
      },
      x, dx);
  expect_gradient(
      "dw",
      [&]<class Num>(const Vec<Num>& p) {
        return weighted(channel_compress(convert<Num>(x), p, N, D, C), g);
      },
      w, dw);
}

TEST(ChannelCompress, ReleasedWeightsFold) {
  const Index N = 3, C = 5;
  for (const Index D : {1, 2, 3, 4, 7})
    for (const Index E : {1, 2, 3, 4, 5, 8}) {
      const Real x = normals(N * D * C, "x"), w = normals(C * E, "w"), read = normals(D, "read");
      const Real direct = released_channel_compress(x, w, read, N, D, C, E);
      const Real folded = channel_compress(x, fold_released_channel_compress(w, read, D, C, E), N, D, C);
      const double tolerance = rounding_tolerance(30 * static_cast<double>(D * E), 2 * D * E);
      EXPECT_LE(distance(folded, direct), tolerance) << "D " << D << " E " << E;
      if (E == 1 || (D == 1 && E % 2 == 1)) continue;  // only the middle tap counts
      Real reversed = w;                               // taps read in the wrong order
      for (Index c = 0; c < C; ++c) std::reverse(reversed.begin() + c * E, reversed.begin() + (c + 1) * E);
      const Real wrong =
          channel_compress(x, fold_released_channel_compress(reversed, read, D, C, E), N, D, C);
      EXPECT_GT(distance(wrong, direct), 1e3 * tolerance) << "D " << D << " E " << E;
    }
  // By hand, D = 3, E = 3, left pad 1: w_0 = read_0 w[1] + read_1 w[0], and so on.
  const Real folded = fold_released_channel_compress<double>({2, 3, 5}, {7, 11, 13}, 3, 1, 3);
  EXPECT_EQ(folded, (Real{7 * 3 + 11 * 2, 7 * 5 + 11 * 3 + 13 * 2, 11 * 5 + 13 * 3}));
  // By hand, D = 2, E = 4, left pad 1: channel d meets read_j at tap d - j + 1.
  EXPECT_EQ(fold_released_channel_compress<double>({2, 3, 5, 7}, {11, 13}, 2, 1, 4),
            (Real{11 * 3 + 13 * 2, 11 * 5 + 13 * 3}));
}

TEST(TokenCompress, Gradient) {
  const Index B = 2, T = 4, D = 2, C = 3, E = 3;
  const Real x = normals(B * T * D * C, "x"), w = normals(E * D * C, "w"), read = normals(D, "read"),
             g = normals(B * T * C, "g");
  Real dx(x.size(), 0.0), dw(w.size(), 0.0), dread(D, 0.0);
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index e = 0; e < E; ++e)
        for (Index d = 0; d < D; ++d)
          for (Index c = 0; c < C; ++c) {
            const Index from = t - (E - 1) + e;
            if (from < 0) continue;
            const double gy = g[(b * T + t) * C + c], tap = w[(e * D + d) * C + c];
            const Index at = ((b * T + from) * D + d) * C + c;
            dx[at] += read[d] * tap * gy;
            dw[(e * D + d) * C + c] += read[d] * x[at] * gy;
            dread[d] += tap * x[at] * gy;
          }
  const auto f = [&]<class Num>(const Vec<Num>& px, const Vec<Num>& pw, const Vec<Num>& pr) {
    return weighted(token_compress(px, pw, pr, B, T, D, C, E), g);
  };
  expect_gradient(
      "dx", [&]<class Num>(const Vec<Num>& p) { return f(p, convert<Num>(w), convert<Num>(read)); }, x, dx);
  expect_gradient(
      "dw", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(x), p, convert<Num>(read)); }, w, dw);
  expect_gradient(
      "dread", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(x), convert<Num>(w), p); }, read,
      dread);
}

TEST(Direction, Gradient) {
  const Index N = 3, C = 5;
  const Real h = normals(N * C, "h"), g = normals(N * C, "g");
  for (const double eps : {0.0, 1e-5, 0.7}) {
    const Real k = direction(h, N, C, eps);
    Real dh(N * C), unprojected(N * C);
    for (Index n = 0; n < N; ++n) {
      double squares = eps * eps, along = 0;
      for (Index c = 0; c < C; ++c)
        squares += h[n * C + c] * h[n * C + c], along += k[n * C + c] * g[n * C + c];
      for (Index c = 0; c < C; ++c) {
        unprojected[n * C + c] = g[n * C + c] / std::sqrt(squares);
        dh[n * C + c] = (g[n * C + c] - k[n * C + c] * along) / std::sqrt(squares);
      }
    }
    const Real truth = expect_gradient(
        "dh", [&](const auto& p) { return weighted(direction(p, N, C, eps), g); }, h, dh);
    expect_rejected("dh without its projection", unprojected, truth);
  }
}

TEST(Gate, LinearGradient) {
  const Index N = 3, C = 4;
  const Real c = normals(N * C, "c"), w = normals(C, "w"), b = {0.3}, g = normals(N, "g");
  const Real beta = gate_linear(c, w, b, N, C);
  Real dc(N * C), dw(C, 0.0), db(1, 0.0);
  for (Index n = 0; n < N; ++n) {
    const double dz = g[n] * beta[n] * (1 - beta[n] / 2);  // beta = 2 s: d beta / dz = 2 s (1 - s)
    db[0] += dz;
    for (Index i = 0; i < C; ++i) dc[n * C + i] = dz * w[i], dw[i] += dz * c[n * C + i];
  }
  const auto f = [&]<class Num>(const Vec<Num>& pc, const Vec<Num>& pw, const Vec<Num>& pb) {
    return weighted(gate_linear(pc, pw, pb, N, C), g);
  };
  expect_gradient(
      "dc", [&]<class Num>(const Vec<Num>& p) { return f(p, convert<Num>(w), convert<Num>(b)); }, c, dc);
  expect_gradient(
      "dw", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(c), p, convert<Num>(b)); }, w, dw);
  expect_gradient(
      "db", [&]<class Num>(const Vec<Num>& p) { return f(convert<Num>(c), convert<Num>(w), p); }, b, db);
}

TEST(Gate, TwoLayerGradient) {
  const Index N = 3, C = 4, G = 5;
  const Real c = normals(N * C, "c"), w1 = normals(G * C, "w1"), w2 = normals(G, "w2"), b = {0.3},
             g = normals(N, "g");
  const Real beta = gate_two_layer(c, w1, w2, b, N, C, G);
  Real dc(N * C, 0.0), dw1(G * C, 0.0), dw2(G, 0.0), db(1, 0.0);
  for (Index n = 0; n < N; ++n) {
    const double dz = g[n] * beta[n] * (1 - beta[n] / 2);
    db[0] += dz;
    for (Index j = 0; j < G; ++j) {
      double inner = 0;
      for (Index i = 0; i < C; ++i) inner += w1[j * C + i] * c[n * C + i];
      const double t = std::tanh(inner), du = dz * w2[j] * (1 - t * t);
      dw2[j] += dz * t;
      for (Index i = 0; i < C; ++i) dc[n * C + i] += du * w1[j * C + i], dw1[j * C + i] += du * c[n * C + i];
    }
  }
  const auto f = [&]<class Num>(const Vec<Num>& pc, const Vec<Num>& p1, const Vec<Num>& p2,
                                const Vec<Num>& pb) {
    return weighted(gate_two_layer(pc, p1, p2, pb, N, C, G), g);
  };
  const auto as = []<class Num>(const Vec<Num>&, const Real& x) { return convert<Num>(x); };
  expect_gradient(
      "dc", [&](const auto& p) { return f(p, as(p, w1), as(p, w2), as(p, b)); }, c, dc);
  expect_gradient(
      "dw1", [&](const auto& p) { return f(as(p, c), p, as(p, w2), as(p, b)); }, w1, dw1);
  expect_gradient(
      "dw2", [&](const auto& p) { return f(as(p, c), as(p, w1), p, as(p, b)); }, w2, dw2);
  expect_gradient(
      "db", [&](const auto& p) { return f(as(p, c), as(p, w1), as(p, w2), p); }, b, db);
}

TEST(Value, SigmoidGradient) {
  const Index N = 3, C = 4, D = 2;
  const Real x = normals(N * C, "x"), w = normals(D * C, "w"), b = normals(D, "b"), g = normals(N * D, "g");
  const Real v = value_sigmoid(x, w, b, N, C, D);
  Real dx(N * C, 0.0), dw(D * C, 0.0), db(D, 0.0);
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d) {
      const double dz = g[n * D + d] * v[n * D + d] * (1 - v[n * D + d] / 4);  // v = 4 s
      db[d] += dz;
      for (Index i = 0; i < C; ++i) dx[n * C + i] += dz * w[d * C + i], dw[d * C + i] += dz * x[n * C + i];
    }
  const auto f = [&]<class Num>(const Vec<Num>& px, const Vec<Num>& pw, const Vec<Num>& pb) {
    return weighted(value_sigmoid(px, pw, pb, N, C, D), g);
  };
  const auto as = []<class Num>(const Vec<Num>&, const Real& y) { return convert<Num>(y); };
  expect_gradient(
      "dx", [&](const auto& p) { return f(p, as(p, w), as(p, b)); }, x, dx);
  expect_gradient(
      "dw", [&](const auto& p) { return f(as(p, x), p, as(p, b)); }, w, dw);
  expect_gradient(
      "db", [&](const auto& p) { return f(as(p, x), as(p, w), p); }, b, db);
}

// the rewrite

struct RewriteDraw {
  Index N = 2, D = 3, C = 5;
  Real x = normals(N * D * C, "x"), k = normals(N * C, "k"), beta = {0.4, 1.7}, v = normals(N * D, "v"),
       g = normals(N * D * C, "g");
};

struct RewriteGradient {
  Real dx, dk, dbeta, dv;
};

// With r = k^T X and a_d = k.g_d (k any vector, not only a unit one; erase = 1 is delta, erase = 0 is
// write-only):
//   dX_d = g_d - beta a_d k      dv_d = beta a_d      dbeta = sum_d (v_d - r_d) a_d
//   dk = beta sum_d [ (v_d - r_d) g_d - a_d X_d ]
RewriteGradient rewrite_gradient(const RewriteDraw& s, double erase) {
  const auto [N, D, C] = std::tuple(s.N, s.D, s.C);
  RewriteGradient out{s.g, Real(N * C, 0.0), Real(N, 0.0), Real(N * D)};
  const Real r = readout(s.x, s.k, N, D, C), a = readout(s.g, s.k, N, D, C);
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d) {
      const double u = s.v[n * D + d] - erase * r[n * D + d], along = a[n * D + d];
      out.dv[n * D + d] = s.beta[n] * along;
      out.dbeta[n] += u * along;
      for (Index c = 0; c < C; ++c) {
        const Index at = (n * D + d) * C + c;
        out.dx[at] -= erase * s.beta[n] * along * s.k[n * C + c];
        out.dk[n * C + c] += s.beta[n] * (u * s.g[at] - erase * along * s.x[at]);
      }
    }
  return out;
}

template <class Rule>
RewriteGradient expect_rewrite_gradient(Rule rule, double erase) {
  const RewriteDraw s;
  const RewriteGradient derived = rewrite_gradient(s, erase);
  const auto as = []<class Num>(const Vec<Num>&, const Real& y) { return convert<Num>(y); };
  RewriteGradient truth;
  truth.dx = expect_gradient(
      "dx", [&](const auto& p) { return weighted(rule(p, as(p, s.k), as(p, s.beta), as(p, s.v), s), s.g); },
      s.x, derived.dx);
  truth.dk = expect_gradient(
      "dk", [&](const auto& p) { return weighted(rule(as(p, s.x), p, as(p, s.beta), as(p, s.v), s), s.g); },
      s.k, derived.dk);
  truth.dbeta = expect_gradient(
      "dbeta", [&](const auto& p) { return weighted(rule(as(p, s.x), as(p, s.k), p, as(p, s.v), s), s.g); },
      s.beta, derived.dbeta);
  truth.dv = expect_gradient(
      "dv", [&](const auto& p) { return weighted(rule(as(p, s.x), as(p, s.k), as(p, s.beta), p, s), s.g); },
      s.v, derived.dv);
  return truth;
}

TEST(DeltaRewrite, Gradient) {
  const RewriteGradient truth = expect_rewrite_gradient(
      []<class Num>(const Vec<Num>& x, const Vec<Num>& k, const Vec<Num>& beta, const Vec<Num>& v,
                    const RewriteDraw& s) { return delta_rewrite(x, k, beta, v, s.N, s.D, s.C); },
      1);
  // k . dk without another pass over the features: beta sum_d a_d (v_d - 2 r_d)
  const RewriteDraw s;
  const Real r = readout(s.x, s.k, s.N, s.D, s.C), a = readout(s.g, s.k, s.N, s.D, s.C);
  const Real along = readout(truth.dk, s.k, s.N, 1, s.C);
  for (Index n = 0; n < s.N; ++n) {
    double sum = 0;
    for (Index i = n * s.D; i < (n + 1) * s.D; ++i) sum += s.beta[n] * a[i] * (s.v[i] - 2 * r[i]);
    EXPECT_NEAR(along[n], sum, rounding_tolerance(100 + std::abs(sum), kRoundings));
  }
  // Mutants: the gradient of the rule without its erase term, and with the erase term's sign swapped.
  for (const double erase : {0.0, -1.0}) {
    const RewriteGradient mutant = rewrite_gradient(RewriteDraw(), erase);
    expect_rejected("dx", mutant.dx, truth.dx);
    expect_rejected("dk", mutant.dk, truth.dk);
    expect_rejected("dbeta", mutant.dbeta, truth.dbeta);
  }
}

TEST(WriteOnly, Gradient) {
  const RewriteGradient truth = expect_rewrite_gradient(
      []<class Num>(const Vec<Num>& x, const Vec<Num>& k, const Vec<Num>& beta, const Vec<Num>& v,
                    const RewriteDraw& s) { return write_only(x, k, beta, v, s.N, s.D, s.C); },
      0);
  const RewriteGradient mutant = rewrite_gradient(RewriteDraw(), 1);
  expect_rejected("dx", mutant.dx, truth.dx);
  expect_rejected("dk", mutant.dk, truth.dk);
}

TEST(DeltaRewrite, WalksBackWithTheSavedReadout) {
  const RewriteDraw s;
  const Real next = delta_rewrite(s.x, s.k, s.beta, s.v, s.N, s.D, s.C);
  const auto walk_back = [&](const Real& r) {  // X = X' - beta k (v - r)^T
    Real u = s.v, minus = s.beta;
    for (std::size_t i = 0; i < u.size(); ++i) u[i] -= r[i];
    for (double& beta : minus) beta = -beta;
    return rank1_step(next, s.k, minus, u, s.N, s.D, s.C);
  };
  EXPECT_LE(distance(walk_back(readout(s.x, s.k, s.N, s.D, s.C)), s.x),
            rounding_tolerance(largest(next) + 32, 8));
  EXPECT_GT(distance(walk_back(readout(next, s.k, s.N, s.D, s.C)), s.x),
            0.1);  // the readout of the wrong state
}

// causality, operation by operation

// The first position whose output changes when the input at position `at` changes; T when none does.
template <class F>
Index first_change(F f, Index T, Index width_in, Index width_out, Index at) {
  Real x = normals(T * width_in, "x");
  const Real before = f(x);
  for (Index i = 0; i < width_in; ++i) x[at * width_in + i] += 1;
  const Real after = f(x);
  for (Index i = 0; i < T * width_out; ++i)
    if (before[i] != after[i]) return i / width_out;
  return T;
}

TEST(Causality, EveryTokenMixingOperation) {
  const Index T = 6, D = 2, C = 3, E = 3, H = 1, K = 4;
  const Real w = normals(E * D * C, "w"), read = normals(D, "read"), q = normals(T * K, "q");
  const auto conv = [&](const Real& x) { return embedding_conv(x, w, 1, T, D, C, E); };
  const auto compress = [&](const Real& x) { return token_compress(x, w, read, 1, T, D, C, E); };
  const auto keys = [&](const Real& x) { return attention(q, x, q, 1, T, H, K); };
  const auto values = [&](const Real& x) { return attention(q, q, x, 1, T, H, K); };
  const auto anticausal = [&](const Real& x) {  // mutant: the same compressor run from the end
    const auto reverse_time = [&](const Real& y, Index width) {
      Real z(y.size());
      for (Index t = 0; t < T; ++t)
        std::copy_n(y.begin() + t * width, width, z.begin() + (T - 1 - t) * width);
      return z;
    };
    return reverse_time(compress(reverse_time(x, D * C)), C);
  };
  for (Index at = 0; at < T; ++at) {
    EXPECT_EQ(first_change(conv, T, C, D * C, at), at);
    EXPECT_EQ(first_change(compress, T, D * C, C, at), at);
    EXPECT_EQ(first_change(keys, T, K, K, at),
              at == 0 ? 1 : at);  // token 0 sees one key: its weight is always 1
    EXPECT_EQ(first_change(values, T, K, K, at), at);
    EXPECT_LT(first_change(anticausal, T, D * C, C, at), std::max<Index>(at, 1));
  }
}

}  // namespace
}  // namespace ddl::ref
