// The paper's algebra, held by the oracle's rewrite; and for each law a wrong rewrite that must break it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ref/model.h"
#include "ref/ops.h"
#include "tiny_model.h"
#include "tolerance.h"

namespace ddl::ref::algebra {
namespace {

using Real = std::vector<double>;
using Rewrite = std::function<Real(const Real& state_NDC, const Real& k_NC, const Real& beta_N,
                                   const Real& v_ND, Index N, Index D, Index C)>;

constexpr Index N = 4, D = 3, C = 7;
const Real kBetas = {0, 1e-9, 0.1, 0.5, 0.9, 1, 1.1, 1.5, 1.9, 2 - 1e-9, 2};

// Entries are below 8 in size (normal draws, betas up to 2) and no quantity below passes more than C
// products, C sums and a few more roundings on its way.
const double kTolerance = rounding_tolerance(8 * C, 4 * C);
const double kClearlyWrong = 1e-2;

struct Draw {
  Real state_NDC = normals(N * D * C, "state");
  Real k_NC = direction(normals(N * C, "direction"), N, C, 0.0);
  Real v_ND = normals(N * D, "value");
};

Real constant_gate(double beta) { return Real(N, beta); }

const Rewrite kDelta = delta_rewrite<double>;

// Mutants: the rewrite with one mistake each.
const Rewrite kMissingErase = write_only<double>;
const Rewrite kMissingWrite = [](const Real& x, const Real& k, const Real& beta, const Real& v, Index n,
                                 Index d,
                                 Index c) { return delta_rewrite(x, k, beta, Real(v.size(), 0.0), n, d, c); };
const Rewrite kSwappedSign = [](const Real& x, const Real& k, Real beta, const Real& v, Index n, Index d,
                                Index c) {
  for (double& b : beta) b = -b;
  return delta_rewrite(x, k, beta, v, n, d, c);
};
const Rewrite kUngatedErase = [](const Real& x, const Real& k, const Real& beta, const Real& v, Index n,
                                 Index d, Index c) {
  const Real erased = delta_rewrite(x, k, Real(beta.size(), 1.0), Real(v.size(), 0.0), n, d, c);
  return write_only(erased, k, beta, v, n, d, c);
};
const Rewrite kOffDirection = [](const Real& x, Real k, const Real& beta, const Real& v, Index n, Index d,
                                 Index c) {
  Real u = readout(x, k, n, d, c);
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = v[i] - u[i];
  std::rotate(k.begin(), k.begin() + 1, k.end());
  return rank1_step(x, k, beta, u, n, d, c);
};

// the laws, as the size of their violation

double identity_violation(const Rewrite& rewrite) {
  const Draw draw;
  return distance(rewrite(draw.state_NDC, draw.k_NC, constant_gate(0), draw.v_ND, N, D, C), draw.state_NDC);
}

double overwrite_violation(const Rewrite& rewrite) {  // beta = 1: k^T X' = v^T
  const Draw draw;
  const Real next = rewrite(draw.state_NDC, draw.k_NC, constant_gate(1), draw.v_ND, N, D, C);
  return distance(readout(next, draw.k_NC, N, D, C), draw.v_ND);
}

double error_law_violation(const Rewrite& rewrite) {  // k^T X' - v = (1 - beta)(k^T X - v)
  const Draw draw;
  double worst = 0;
  for (const double beta : kBetas) {
    const Real next = rewrite(draw.state_NDC, draw.k_NC, constant_gate(beta), draw.v_ND, N, D, C);
    const Real before = readout(draw.state_NDC, draw.k_NC, N, D, C),
               after = readout(next, draw.k_NC, N, D, C);
    for (Index i = 0; i < N * D; ++i)
      worst = std::max(worst, std::abs((after[i] - draw.v_ND[i]) - (1 - beta) * (before[i] - draw.v_ND[i])));
  }
  return worst;
}

double complement_violation(const Rewrite& rewrite) {  // u orthogonal to k: u^T X' = u^T X
  const Draw draw;
  Real u_NC = normals(N * C, "other");
  for (Index n = 0; n < N; ++n) {
    double along = 0;
    for (Index c = 0; c < C; ++c) along += u_NC[n * C + c] * draw.k_NC[n * C + c];
    for (Index c = 0; c < C; ++c) u_NC[n * C + c] -= along * draw.k_NC[n * C + c];
  }
  double worst = 0;
  for (const double beta : kBetas) {
    const Real next = rewrite(draw.state_NDC, draw.k_NC, constant_gate(beta), draw.v_ND, N, D, C);
    worst = std::max(worst, distance(readout(next, u_NC, N, D, C), readout(draw.state_NDC, u_NC, N, D, C)));
  }
  return worst;
}

TEST(PaperAlgebra, ClosedGateIsTheIdentity) {
  EXPECT_EQ(identity_violation(kDelta), 0);  // exact: adds 0 * something
  EXPECT_EQ(identity_violation(kMissingErase), 0);
  EXPECT_GT(identity_violation(kUngatedErase), kClearlyWrong);
}

TEST(PaperAlgebra, OpenGateOverwritesTheReadout) {
  EXPECT_LE(overwrite_violation(kDelta), kTolerance);
  EXPECT_GT(overwrite_violation(kMissingErase), kClearlyWrong);
  EXPECT_GT(overwrite_violation(kMissingWrite), kClearlyWrong);
  EXPECT_GT(overwrite_violation(kSwappedSign), kClearlyWrong);
  EXPECT_GT(overwrite_violation(kOffDirection), kClearlyWrong);
}

TEST(PaperAlgebra, DiscrepancyShrinksByOneMinusBeta) {
  EXPECT_LE(error_law_violation(kDelta), kTolerance);
  EXPECT_GT(error_law_violation(kMissingErase), kClearlyWrong);
  EXPECT_GT(error_law_violation(kMissingWrite), kClearlyWrong);
  EXPECT_GT(error_law_violation(kSwappedSign), kClearlyWrong);
  EXPECT_GT(error_law_violation(kUngatedErase), kClearlyWrong);
}

TEST(PaperAlgebra, OrthogonalComplementIsUnchanged) {
  EXPECT_LE(complement_violation(kDelta), kTolerance);
  EXPECT_LE(complement_violation(kMissingErase), kTolerance);  // write-only also steps along k alone
  EXPECT_GT(complement_violation(kOffDirection), kClearlyWrong);
}

// the shortcut operator A = I - beta k k^T

// A as the rewrite itself applies it: one token with C planes, plane j = e_j, target 0. A[i][j] = next[j][i].
Real shortcut_matrix(const Rewrite& rewrite, const Real& k_C, double beta) {
  Real basis(C * C, 0.0), matrix(C * C);
  for (Index j = 0; j < C; ++j) basis[j * C + j] = 1;
  const Real next = rewrite(basis, k_C, {beta}, Real(C, 0.0), 1, C, C);
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j < C; ++j) matrix[i * C + j] = next[j * C + i];
  return matrix;
}

Real multiply(const Real& a, const Real& b, Index rows, Index inner, Index columns) {
  Real product(rows * columns, 0.0);
  for (Index i = 0; i < rows; ++i)
    for (Index m = 0; m < inner; ++m)
      for (Index j = 0; j < columns; ++j) product[i * columns + j] += a[i * inner + m] * b[m * columns + j];
  return product;
}

Real transpose(const Real& a, Index rows, Index columns) {
  Real result(a.size());
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) result[j * rows + i] = a[i * columns + j];
  return result;
}

// Eigenvalues and orthonormal eigenvectors (column j of `vectors`) of a symmetric matrix by cyclic Jacobi
// rotations.
struct Eigen {
  Real values, vectors;
};

Eigen symmetric_eigen(Real a, Index n) {
  Real q(n * n, 0.0);
  for (Index i = 0; i < n; ++i) q[i * n + i] = 1;
  for (Index sweep = 0; sweep < 30; ++sweep)
    for (Index i = 0; i < n; ++i)
      for (Index j = i + 1; j < n; ++j) {
        if (a[i * n + j] == 0) continue;
        const double angle = 0.5 * std::atan2(2 * a[i * n + j], a[j * n + j] - a[i * n + i]);
        const double cosine = std::cos(angle), sine = std::sin(angle);
        const auto turn = [&](double& x, double& y) {
          const double old = x;
          x = cosine * old - sine * y;
          y = sine * old + cosine * y;
        };
        for (Index m = 0; m < n; ++m) turn(a[m * n + i], a[m * n + j]);
        for (Index m = 0; m < n; ++m) turn(a[i * n + m], a[j * n + m]);
        for (Index m = 0; m < n; ++m) turn(q[m * n + i], q[m * n + j]);
      }
  Eigen result{Real(n), q};
  for (Index i = 0; i < n; ++i) result.values[i] = a[i * n + i];
  return result;
}

double determinant(Real a, Index n) {
  double result = 1;
  for (Index i = 0; i < n; ++i) {
    Index pivot = i;
    for (Index r = i + 1; r < n; ++r)
      if (std::abs(a[r * n + i]) > std::abs(a[pivot * n + i])) pivot = r;
    if (a[pivot * n + i] == 0) return 0;
    if (pivot != i) {
      result = -result;
      for (Index c = 0; c < n; ++c) std::swap(a[i * n + c], a[pivot * n + c]);
    }
    result *= a[i * n + i];
    for (Index r = i + 1; r < n; ++r) {
      const double factor = a[r * n + i] / a[i * n + i];
      for (Index c = i; c < n; ++c) a[r * n + c] -= factor * a[i * n + c];
    }
  }
  return result;
}

// A Jacobi sweep rotates each entry about 2n times; a dozen sweeps are more than enough here.
const double kEigenTolerance = rounding_tolerance(8, 12 * 2 * C);

TEST(EigenSolver, ReconstructsASymmetricMatrix) {
  const Real half = normals(C * C, "symmetric");
  Real matrix(C * C);
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j < C; ++j) matrix[i * C + j] = half[i * C + j] + half[j * C + i];
  const Eigen eigen = symmetric_eigen(matrix, C);
  Real scaled = eigen.vectors;
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j < C; ++j) scaled[i * C + j] *= eigen.values[j];
  EXPECT_LE(distance(multiply(scaled, transpose(eigen.vectors, C, C), C, C, C), matrix), C * kEigenTolerance);
  EXPECT_NEAR(determinant(matrix, C),
              std::accumulate(eigen.values.begin(), eigen.values.end(), 1.0, std::multiplies<>()),
              rounding_tolerance(std::pow(8.0, C), 12 * C));
}

// The largest departure of the numerical spectrum from the proposition: eigenvalue 1 on all of k's complement
// and 1 - beta on k; for beta = 0 the whole space.
double spectrum_violation(const Rewrite& rewrite, const Real& k_C, double beta) {
  const Eigen eigen = symmetric_eigen(shortcut_matrix(rewrite, k_C, beta), C);
  Real values = eigen.values, expected(C, 1.0);
  expected[0] = 1 - beta;
  std::sort(values.begin(), values.end());
  double worst = distance(values, expected);
  if (std::abs(beta) < 1e-3) return worst;  // eigenvectors of (nearly) equal eigenvalues are arbitrary
  Real unit_projector(C * C, 0.0), complement(C * C);
  for (Index j = 0; j < C; ++j) {
    double along = 0;
    for (Index c = 0; c < C; ++c) along += eigen.vectors[c * C + j] * k_C[c];
    const bool unit = std::abs(eigen.values[j] - 1) < std::abs(beta) / 2;
    worst = std::max(worst, unit ? std::abs(along) : std::abs(std::abs(along) - 1));
    if (!unit) continue;
    for (Index a = 0; a < C; ++a)
      for (Index b = 0; b < C; ++b)
        unit_projector[a * C + b] += eigen.vectors[a * C + j] * eigen.vectors[b * C + j];
  }
  for (Index a = 0; a < C; ++a)
    for (Index b = 0; b < C; ++b) complement[a * C + b] = (a == b ? 1 : 0) - k_C[a] * k_C[b];
  return std::max(worst, distance(unit_projector, complement));
}

TEST(PaperAlgebra, ShortcutSpectrum) {
  const Real k_C = direction(normals(C, "axis"), 1, C, 0.0);
  for (const double beta : {0.0, 0.25, 0.5, 1.0, 1.5, 1.75, 2.0}) {
    EXPECT_LE(spectrum_violation(kDelta, k_C, beta), C * kEigenTolerance) << "beta " << beta;
    if (beta > 0) {
      EXPECT_GT(spectrum_violation(kMissingErase, k_C, beta), kClearlyWrong) << "beta " << beta;
      EXPECT_GT(spectrum_violation(kSwappedSign, k_C, beta), kClearlyWrong) << "beta " << beta;
    }
    Real longer = k_C;  // a direction that is not a unit vector breaks the proposition
    for (double& x : longer) x *= 1.1;
    if (beta > 0) {
      EXPECT_GT(spectrum_violation(kDelta, longer, beta), kClearlyWrong) << "beta " << beta;
    }
  }
}

TEST(PaperAlgebra, ShortcutAtClosedGateIsTheUnitMatrix) {
  const Real k_C = direction(normals(C, "axis"), 1, C, 0.0);
  const Real matrix = shortcut_matrix(kDelta, k_C, 0);
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j < C; ++j) EXPECT_EQ(matrix[i * C + j], i == j ? 1 : 0);
  for (const double value : symmetric_eigen(matrix, C).values) EXPECT_EQ(value, 1);
}

TEST(PaperAlgebra, ShortcutDeterminant) {
  const Real k_C = direction(normals(C, "axis"), 1, C, 0.0);
  for (const double beta : kBetas) {
    EXPECT_NEAR(determinant(shortcut_matrix(kDelta, k_C, beta), C), 1 - beta, rounding_tolerance(8, C * C));
    if (beta < 0.05) continue;
    EXPECT_GT(std::abs(determinant(shortcut_matrix(kMissingErase, k_C, beta), C) - (1 - beta)),
              kClearlyWrong);
  }
}

TEST(PaperAlgebra, HouseholderLimit) {
  const Real k_C = direction(normals(C, "axis"), 1, C, 0.0);
  Real reflector(C * C), unit(C * C), minus_k = k_C;
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j < C; ++j) {
      unit[i * C + j] = i == j;
      reflector[i * C + j] = unit[i * C + j] - 2 * k_C[i] * k_C[j];
    }
  for (double& x : minus_k) x = -x;
  const Real at_two = shortcut_matrix(kDelta, k_C, 2);
  EXPECT_LE(distance(at_two, reflector), kTolerance);
  EXPECT_LE(distance(multiply(at_two, k_C, C, C, 1), minus_k), kTolerance);
  EXPECT_LE(distance(multiply(transpose(at_two, C, C), at_two, C, C, C), unit), kTolerance);  // orthogonal
  EXPECT_LE(distance(multiply(at_two, at_two, C, C, C), unit), kTolerance);  // its own inverse
  EXPECT_GT(
      distance(multiply(shortcut_matrix(kDelta, k_C, 1.9), shortcut_matrix(kDelta, k_C, 1.9), C, C, C), unit),
      kClearlyWrong);
  // The approach is linear: |A(beta) - H| = (2 - beta) |k k^T|; and a saturated gate reaches the end point.
  double largest_outer = 0;
  for (const double x : k_C) largest_outer = std::max(largest_outer, x * x);
  for (const double gap : {1e-1, 1e-3, 1e-6})
    EXPECT_NEAR(distance(shortcut_matrix(kDelta, k_C, 2 - gap), reflector), gap * largest_outer, kTolerance);
  EXPECT_EQ(gate_linear(Real(C, 0.0), Real(C, 0.0), {40.0}, 1, C)[0], 2);
  EXPECT_NEAR(gate_linear(Real(C, 0.0), Real(C, 0.0), {-40.0}, 1, C)[0], 0, 2 * std::exp(-40));
}

TEST(PaperAlgebra, OnColumnsTheShortcutIsAKroneckerProduct) {
  const Draw draw;
  const Real k_C(draw.k_NC.begin(), draw.k_NC.begin() + C);
  const Real state_DC(draw.state_NDC.begin(),
                      draw.state_NDC.begin() + D * C);  // vec(X): its columns one by one
  for (const double beta : kBetas) {
    const auto product = [&](const Real& a, bool channels_outside) {  // (I (x) A) vec X, or (A (x) I) vec X
      Real big(D * C * D * C, 0.0);
      const auto at = [&](Index d, Index i) { return channels_outside ? d * C + i : i * D + d; };
      for (Index d = 0; d < D; ++d)
        for (Index i = 0; i < C; ++i)
          for (Index j = 0; j < C; ++j) big[at(d, i) * D * C + at(d, j)] = a[i * C + j];
      return multiply(big, state_DC, D * C, D * C, 1);
    };
    const Real next = delta_rewrite(state_DC, k_C, {beta}, Real(D, 0.0), 1, D, C);
    Real a(C * C);
    for (Index i = 0; i < C; ++i)
      for (Index j = 0; j < C; ++j) a[i * C + j] = (i == j ? 1 : 0) - beta * k_C[i] * k_C[j];
    EXPECT_LE(distance(next, product(a, true)), kTolerance);
    if (beta < 0.05) continue;
    EXPECT_GT(distance(next, product(a, false)), kClearlyWrong);
  }
}

// DeltaNet, Appendix B

TEST(PaperAlgebra, EqualsTheDeltaNetRecurrenceInBothConventions) {
  constexpr Index steps = 6;
  const Real keys = direction(normals(steps * C, "keys"), steps, C, 0.0),
             values = normals(steps * D, "values");
  Real state_DC = normals(D * C, "memory");
  Real s_CD = transpose(state_DC, D, C);  // S = X,   S <- (I - beta k k^T) S + beta k v^T
  Real m_DC = state_DC;                   // M = X^T, M <- M + beta (v - M k) k^T
  Real write_DC = state_DC;               // mutant: the same writes, nothing erased
  for (Index t = 0; t < steps; ++t) {
    const double beta = 0.3 * static_cast<double>(t + 1);
    const Real k(keys.begin() + t * C, keys.begin() + (t + 1) * C);
    const Real v(values.begin() + t * D, values.begin() + (t + 1) * D);
    state_DC = delta_rewrite(state_DC, k, {beta}, v, 1, D, C);
    write_DC = write_only(write_DC, k, {beta}, v, 1, D, C);

    Real a(C * C);
    for (Index i = 0; i < C; ++i)
      for (Index j = 0; j < C; ++j) a[i * C + j] = (i == j ? 1 : 0) - beta * k[i] * k[j];
    s_CD = multiply(a, s_CD, C, C, D);
    for (Index i = 0; i < C; ++i)
      for (Index d = 0; d < D; ++d) s_CD[i * D + d] += beta * k[i] * v[d];

    const Real recalled = multiply(m_DC, k, D, C, 1);
    for (Index d = 0; d < D; ++d)
      for (Index i = 0; i < C; ++i) m_DC[d * C + i] += beta * (v[d] - recalled[d]) * k[i];

    const double tolerance = static_cast<double>(t + 1) * kTolerance;
    EXPECT_LE(distance(transpose(state_DC, D, C), s_CD), tolerance) << "step " << t;
    EXPECT_LE(distance(state_DC, m_DC), tolerance) << "step " << t;
    EXPECT_GT(distance(write_DC, m_DC), kClearlyWrong) << "step " << t;
  }
}

// the direction

TEST(PaperAlgebra, RmsFormOfTheDirectionEqualsTheGuardedNorm) {
  for (const double eps : {0.0, 1e-8, 1e-5, 1e-3, 0.1, 1.0, 10.0})
    for (const double scale : {1e-6, 1e-3, 1.0, 1e3}) {
      const Real h_NC = normals(N * C, "sublayer output", scale);
      const auto rms_form = [&](double guard) {
        Real k_NC = rmsnorm(h_NC, Real(C, 1.0), N, C, guard);
        for (double& k : k_NC) k /= std::sqrt(static_cast<double>(C));
        return k_NC;
      };
      const double tolerance = rounding_tolerance(1, 2 * C);  // |k_c| <= 1
      EXPECT_LE(distance(direction(h_NC, N, C, eps), rms_form(eps * eps / C)), tolerance)
          << eps << " " << scale;
      EXPECT_LE(distance(direction(h_NC, N, C, eps, true), rms_form(eps * eps)), tolerance)
          << eps << " " << scale;
      if (eps != scale) continue;
      EXPECT_GT(distance(direction(h_NC, N, C, eps), rms_form(eps * eps)), kClearlyWrong);
    }
}

TEST(PaperAlgebra, TheTwoGuardsDifferOnlyForTinyOutputs) {
  const Index wide = 768;
  const auto length = [&](double entry, bool times_width) {
    double sum = 0;
    for (const double k : direction(Real(wide, entry), 1, wide, 1e-5, times_width)) sum += k * k;
    return std::sqrt(sum);
  };
  const double tolerance = rounding_tolerance(1, 2 * wide);
  EXPECT_NEAR(length(1e-5, false), std::sqrt(768.0 / 769.0), tolerance);
  EXPECT_NEAR(length(1e-5, true), std::sqrt(0.5), tolerance);
  EXPECT_NEAR(length(1.0, true), 1 / std::sqrt(1 + 1e-10), tolerance);
}

// one channel, first state

TEST(PaperAlgebra, OneChannelIsTheScalarFormula) {
  const Draw draw;
  const Real beta_N = {0.2, 0.9, 1.4, 1.99};
  const Real x_NC(draw.state_NDC.begin(), draw.state_NDC.begin() + N * C),
      v_N(draw.v_ND.begin(), draw.v_ND.begin() + N);
  Real expected = x_NC, mutant = x_NC;  // x + beta (v - k.x) k, and the same with v + k.x
  for (Index n = 0; n < N; ++n) {
    double along = 0;
    for (Index c = 0; c < C; ++c) along += draw.k_NC[n * C + c] * x_NC[n * C + c];
    for (Index c = 0; c < C; ++c) {
      expected[n * C + c] += beta_N[n] * (v_N[n] - along) * draw.k_NC[n * C + c];
      mutant[n * C + c] += beta_N[n] * (v_N[n] + along) * draw.k_NC[n * C + c];
    }
  }
  const Real next = delta_rewrite(x_NC, draw.k_NC, beta_N, v_N, N, 1, C);
  EXPECT_LE(distance(next, expected), kTolerance);
  EXPECT_GT(distance(next, mutant), kClearlyWrong);
}

TEST(PaperAlgebra, FirstStateIsTheEmbeddingInEveryChannel) {
  constexpr Index B = 2, T = 2, E = 4;
  const Real x_NC = normals(N * C, "embedding");
  const Real repeated = repeat_channels(x_NC, N, D, C);
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) EXPECT_EQ(repeated[(n * D + d) * C + c], x_NC[n * C + c]);
  // Exact: times 1, plus 0.
  EXPECT_EQ(distance(embedding_conv(x_NC, identity_embedding_conv<double>(D, C, E), B, T, D, C, E), repeated),
            0);
  Real reversed = identity_embedding_conv<double>(D, C, E);  // the 1 on the oldest tap instead
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_GT(distance(embedding_conv(x_NC, reversed, B, T, D, C, E), repeated), kClearlyWrong);
}

}  // namespace
}  // namespace ddl::ref::algebra
