// Muon against its definition in f64, with mutants, and the property it is made for: orthogonal updates.
#include "model/optimizer/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench.h"

namespace ddl {
namespace {

// Tall, wide, square, narrow, two joined; an embedding, a row and a vector, which are AdamW's. One product is
// large enough to be split over threads.
ParamTable shapes() {
  ParamTable table;
  const Init init = Init::normal(0.02);
  table.add_embedding("embedding", 7, 24, init);
  table.add_matrix("tall", 40, 24, init);
  table.add_matrix("joined", 24, 24, init, ParamTable::kJoined);
  table.add("vector", {24}, Init::constant(1));
  table.add_matrix("wide", 24, 40, init);
  table.add_matrix("row", 1, 24, init);
  table.add_matrix("narrow", 3, 65, init);
  table.add_matrix("large", 96, 160, init);
  return table;
}
bool is_muons(const Param& p) { return p.hidden_matrix && p.shape[0] > 1; }

struct Mutation {
  double a = 3.4445, b = -4.7750, c = 2.0315;
  bool nesterov = true;
  bool decay = true;
  bool scale_by_larger_side = true;
  Index iterations = 5;
};

using Doubles = std::vector<double>;

// x_RC = (a I + b A + c A^2) x, A = x x^T, five times; always on the rows, which changes nothing but the
// work.
Doubles newton_schulz(Doubles x_RC, Index R, Index C, const Mutation& how) {
  double norm = 0;
  for (const double v : x_RC) norm += v * v;
  for (double& v : x_RC) v /= std::sqrt(norm);
  for (Index i = 0; i < how.iterations; ++i) {
    Doubles A_RR(R * R), B_RR(R * R), next_RC(R * C);
    // Plain pointers: tests are not optimised, and this is most of the time of theirs.
    double *A = A_RR.data(), *B = B_RR.data(), *next = next_RC.data();
    const double* x = x_RC.data();
    for (Index r = 0; r < R; ++r)
      for (Index s = 0; s < R; ++s)
        for (Index k = 0; k < C; ++k) A[r * R + s] += x[r * C + k] * x[s * C + k];
    for (Index r = 0; r < R; ++r)
      for (Index s = 0; s < R; ++s) {
        double square = 0;
        for (Index k = 0; k < R; ++k) square += A[r * R + k] * A[k * R + s];
        B[r * R + s] = how.a * (r == s) + how.b * A[r * R + s] + how.c * square;
      }
    for (Index r = 0; r < R; ++r)
      for (Index s = 0; s < R; ++s)
        for (Index k = 0; k < C; ++k) next[r * C + k] += B[r * R + s] * x[s * C + k];
    x_RC = next_RC;
  }
  return x_RC;
}

constexpr double kRate = 0.02, kDecay = 0.1, kMomentum = 0.95, kClip = 0.5;

OptimizerConfig muon_config() {
  OptimizerConfig config;
  config.choose("muon");
  config.weight_decay = kDecay, config.clip = kClip;
  return config;
}

// The largest error of a matrix's parameters after three steps, in units of the tolerance.
//
// Tolerance. One iteration is three products. In f32 a sum of K terms is off by at most K eps times the sum
// of magnitudes, on average by sqrt(K) eps; relative to the norms of the factors that is 3 sqrt(K) eps an
// iteration. The polynomial's slope, at most a = 3.45, carries an earlier iteration's error on; the singular
// values that it still multiplies by a are small, and where they are near 1 the slope is below 1 in
// magnitude, so errors add up rather than multiply: 3 * 5 * sqrt(K) eps of an update whose entries are of
// size rate * 0.2, with a factor of 4 for the largest of many entries. Storing a parameter rounds it by eps /
// 2 of its size, twice a step.
double error_ratio(const Mutation& how, const Exec& ex = {}) {
  OptimizerBench b(shapes(), 1.5, muon_config());
  std::vector<Doubles> m, p;
  for (const Param& t : b.table.list()) {
    m.emplace_back(t.count);
    p.emplace_back(&b.params[t.offset], &b.params[t.offset] + t.count);
  }
  constexpr double kEps = 1.2e-7;
  double worst = 0;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    b.fill_grads(0.3, step);
    const double scale = kClip / b.norm();
    EXPECT_LT(scale, 1);
    for (std::size_t i = 0; i < m.size(); ++i) {
      const Param& t = b.table.list()[i];
      if (!is_muons(t)) continue;
      const Index rows = t.shape[0], cols = t.shape[1];
      Doubles u(t.count);
      for (Index j = 0; j < t.count; ++j) {
        const double g = scale * static_cast<double>(b.grads[t.offset + j]);
        m[i][j] = kMomentum * m[i][j] + g;
        u[j] = how.nesterov ? g + kMomentum * m[i][j] : m[i][j];
      }
      u = newton_schulz(u, rows, cols, how);
      const double lr = kRate * 1.5, larger = static_cast<double>(std::max(rows, cols));
      const double smaller = static_cast<double>(std::min(rows, cols));
      const double factor = lr * 0.2 * std::sqrt(how.scale_by_larger_side ? larger : smaller);
      for (Index j = 0; j < t.count; ++j)
        p[i][j] = p[i][j] * (how.decay ? 1 - lr * kDecay : 1) - factor * u[j];
    }
    b.step(kRate, ex);
    for (std::size_t i = 0; i < m.size(); ++i) {
      const Param& t = b.table.list()[i];
      if (!is_muons(t)) continue;
      const double K = static_cast<double>(std::max(t.shape[0], t.shape[1]));
      const double moved = static_cast<double>(step) * kRate * 1.5 * 0.2;
      for (Index j = 0; j < t.count; ++j) {
        const double tolerance =
            kEps * (4 * 15 * std::sqrt(K) * moved + static_cast<double>(step) * std::abs(p[i][j]));
        worst = std::max(worst, std::abs(static_cast<double>(b.params[t.offset + j]) - p[i][j]) / tolerance);
      }
    }
  }
  return worst;
}

TEST(Muon, MatchesTheDefinition) {
  for (const int threads : {1, 3}) EXPECT_LT(error_ratio({}, Exec{threads}), 1) << threads;
}

TEST(Muon, TheCheckRejectsMutants) {
  EXPECT_GT(error_ratio({.a = 3.4435}), 1) << "a coefficient wrong in its fourth digit";
  EXPECT_GT(error_ratio({.b = -4.7740}), 1);
  EXPECT_GT(error_ratio({.c = 2.0325}), 1);
  EXPECT_GT(error_ratio({.nesterov = false}), 1);
  EXPECT_GT(error_ratio({.decay = false}), 1);
  EXPECT_GT(error_ratio({.scale_by_larger_side = false}), 1);
  EXPECT_GT(error_ratio({.iterations = 4}), 1);
}

// Eigenvalues of a symmetric matrix by Jacobi rotations, until nothing is left beside the diagonal.
Doubles eigenvalues(Doubles A, Index n) {
  for (int sweep = 0; sweep < 30; ++sweep)
    for (Index p = 0; p < n; ++p)
      for (Index q = p + 1; q < n; ++q) {
        const double apq = A[p * n + q];
        if (std::abs(apq) < 1e-14) continue;
        const double theta = (A[q * n + q] - A[p * n + p]) / (2 * apq);
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (Index k = 0; k < n; ++k) {
          const double kp = A[k * n + p], kq = A[k * n + q];
          A[k * n + p] = c * kp - s * kq, A[k * n + q] = s * kp + c * kq;
        }
        for (Index k = 0; k < n; ++k) {
          const double pk = A[p * n + k], qk = A[q * n + k];
          A[p * n + k] = c * pk - s * qk, A[q * n + k] = s * pk + c * qk;
        }
      }
  Doubles values(n);
  for (Index i = 0; i < n; ++i) values[i] = A[i * n + i];
  std::sort(values.begin(), values.end());
  return values;
}

Doubles singular_values(const Doubles& x, Index rows, Index cols) {
  const bool wide = rows <= cols;
  const Index n = std::min(rows, cols), length = std::max(rows, cols);
  const auto at = [&](Index side, Index along) {
    return wide ? x[side * cols + along] : x[along * cols + side];
  };
  Doubles gram(n * n);
  for (Index r = 0; r < n; ++r)
    for (Index s = 0; s < n; ++s)
      for (Index k = 0; k < length; ++k) gram[r * n + s] += at(r, k) * at(s, k);
  Doubles values = eigenvalues(gram, n);
  for (double& v : values) v = std::sqrt(std::max(v, 0.0));
  return values;
}

// What a step moves a matrix by, divided by its scale, is nearly orthogonal, whatever the gradient's
// spectrum: here its singular values cover a factor of 20 and more.
TEST(Muon, UpdatesAreNearlyOrthogonal) {
  OptimizerConfig config = muon_config();
  config.weight_decay = 0;
  OptimizerBench b(shapes(), 1, config);
  std::fill(b.params.begin(), b.params.end(), 0.0f);
  b.fill_grads(0.3);
  for (const Param& t : b.table.list())
    if (is_muons(t))
      for (Index j = 0; j < t.count; ++j)  // a strong common part
        b.grads[t.offset + j] += 0.4f * static_cast<float>(std::cos(static_cast<double>(j % t.shape[1])));
  const std::vector<float> g = b.grads;
  b.step(kRate);
  // x (a + b x^2 + c x^4) has its extremes 1.2025 and 0.6816 where a + 3 b x^2 + 5 c x^4 is zero; the values
  // end between them.
  constexpr double kLeast = 0.681, kMost = 1.203;
  double widest = 0;
  for (const Param& t : b.table.list()) {
    if (!is_muons(t)) continue;
    const Index rows = t.shape[0], cols = t.shape[1];
    const Doubles before = singular_values(Doubles(&g[t.offset], &g[t.offset] + t.count), rows, cols);
    widest = std::max(widest, before.back() / before.front());
    Doubles move(&b.params[t.offset], &b.params[t.offset] + t.count);
    for (double& v : move) v /= -kRate * 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
    const Doubles after = singular_values(move, rows, cols);
    EXPECT_GT(after.front(), kLeast) << t.name;
    EXPECT_LT(after.back(), kMost) << t.name;
    const double along = std::inner_product(move.begin(), move.end(), &g[t.offset], 0.0);
    EXPECT_GT(along, 0) << t.name << " goes uphill";
  }
  EXPECT_GT(widest, 20) << "the gradients are orthogonal already";
}

// The root mean square of an update's entries is 0.2 lr: a learning rate means what it means to AdamW.
TEST(Muon, UpdatesHaveTheSizeOfAdamWs) {
  OptimizerBench b(shapes(), 1, muon_config());
  const std::vector<float> before = b.params;
  b.fill_grads(1);
  b.step(kRate);
  for (const Param& t : b.table.list()) {
    if (!is_muons(t)) continue;
    double sum = 0;
    for (Index j = t.offset; j < t.offset + t.count; ++j) {
      const double move = static_cast<double>(b.params[j]) - static_cast<double>(before[j]);
      sum += move * move;
    }
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(t.count)), 0.2 * kRate, 0.05 * kRate) << t.name;
  }
}

// The rest moves as with AdamW alone, bit for bit, and no float of state is kept for nothing.
TEST(Muon, LeavesTheRestToAdamW) {
  OptimizerConfig adamw;
  adamw.weight_decay = kDecay, adamw.clip = kClip;
  OptimizerBench a(shapes(), 1.5, adamw), m(shapes(), 1.5, muon_config());
  for (std::uint64_t step = 1; step <= 3; ++step) {
    a.fill_grads(1, step), m.fill_grads(1, step);
    a.step(kRate), m.step(kRate);
  }
  std::vector<std::string> names;
  for (const Param& t : a.table.list()) {
    const bool same = std::equal(&a.params[t.offset], &a.params[t.offset] + t.count, &m.params[t.offset]);
    EXPECT_EQ(same, !is_muons(t)) << t.name;
    if (same) names.push_back(t.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "vector", "row"}));
  for (const NamedArray& array : m.optimizer->state()) {
    EXPECT_EQ(array.tensors.size(), array.name == "momentum" ? 5u : 3u) << array.name;
    Index floats = 0;
    for (const NamedArray::Tensor& t : array.tensors) floats += m.table.list()[t.param].count;
    EXPECT_LT(array.floats - floats, 16 * std::ssize(array.tensors)) << array.name;
  }
}

TEST(Muon, WithoutADirectionWeightsOnlyDecay) {
  OptimizerBench b(shapes(), 1, muon_config());
  const Param& wide = b.table.find("wide");
  const std::vector<float> before = b.params;
  b.fill_grads(1);
  std::fill_n(&b.grads[wide.offset], wide.count, 0.0f);
  EXPECT_TRUE(b.step(kRate).applied);
  for (Index j = wide.offset; j < wide.offset + wide.count; ++j)
    ASSERT_FLOAT_EQ(b.params[j], before[j] * static_cast<float>(1 - kRate * kDecay));
}

}  // namespace
}  // namespace ddl
