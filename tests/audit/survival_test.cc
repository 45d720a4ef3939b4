// Surviving writes and the surviving embedding against products of whole matrices.
#include "audit/survival.h"

#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "core/rng.h"

namespace ddl {
namespace {

using Vector = std::vector<double>;

double dot_of(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
double length(const Vector& a) { return std::sqrt(dot_of(a, a)); }

// One token with S sublayers of C features and D planes; directions that are not of unit length, gates in [0, 2].
struct Token {
  static constexpr Index S = 5, C = 7, D = 3;
  std::vector<Vector> k, start;
  Vector erase, write;
  std::vector<Vector> target;  // [s][d]

  Token() {
    const Random random(3, "survival");
    std::uint64_t i = 0;
    const auto vector = [&](Index n, double scale) {
      Vector v;
      for (Index j = 0; j < n; ++j) v.push_back(scale * random.normal(i++));
      return v;
    };
    for (Index s = 0; s < S; ++s) k.push_back(vector(C, 0.4)), target.push_back(vector(D, 1));
    for (Index d = 0; d < D; ++d) start.push_back(vector(C, 1));
    for (Index s = 0; s < S; ++s)
      erase.push_back(std::abs(vector(1, 1)[0])), write.push_back(std::abs(vector(1, 1)[0]));
  }

  // (I - e k k^T) u
  Vector erased(Vector u, Index s) const {
    const double r = dot_of(k[s], u);
    for (Index c = 0; c < C; ++c) u[c] -= erase[s] * r * k[s][c];
    return u;
  }
  // X_S by the rule itself, sublayer after sublayer.
  std::vector<Vector> end() const {
    std::vector<Vector> X = start;
    for (Index s = 0; s < S; ++s)
      for (Index d = 0; d < D; ++d) {
        X[d] = erased(X[d], s);
        for (Index c = 0; c < C; ++c) X[d][c] += write[s] * target[s][d] * k[s][c];
      }
    return X;
  }

  TokenWrites writes() const {
    TokenWrites w;
    w.sublayers = S, w.channels = D, w.erase_S = erase;
    for (Index l = 0; l < S; ++l) {
      for (Index m = 0; m < S; ++m) w.gram_SS.push_back(dot_of(k[l], k[m]));
      for (Index d = 0; d < D; ++d) w.start_dot_SD.push_back(dot_of(k[l], start[d]));
    }
    for (Index d = 0; d < D; ++d) w.start_square_D.push_back(dot_of(start[d], start[d]));
    return w;
  }
  // The parts put together.
  std::vector<Vector> rebuilt(const Surviving& left) const {
    std::vector<Vector> X = start;
    for (Index d = 0; d < D; ++d)
      for (Index l = 0; l < S; ++l) {
        double coef = left.start_DS[d * S + l];
        for (Index m = 0; m < S; ++m) coef += write[m] * target[m][d] * left.write_SS[m * S + l];
        for (Index c = 0; c < C; ++c) X[d][c] += coef * k[l][c];
      }
    return X;
  }
};

double distance(const std::vector<Vector>& a, const std::vector<Vector>& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d)
    for (std::size_t c = 0; c < a[d].size(); ++c) sum += (a[d][c] - b[d][c]) * (a[d][c] - b[d][c]);
  return std::sqrt(sum);
}

TEST(Survival, PartsAddUpToTheFinalState) {
  const Token token;
  Surviving left;
  find_surviving(token.writes(), left);
  EXPECT_LT(distance(token.rebuilt(left), token.end()), 1e-13);

  TokenWrites wrong = token.writes();  // mutants: an erase gate and a product of directions slightly off
  wrong.erase_S[2] *= 1.001;
  find_surviving(wrong, left);
  EXPECT_GT(distance(token.rebuilt(left), token.end()), 1e-6);
  wrong = token.writes();
  wrong.gram_SS[3 * Token::S + 1] *= 1.001;
  find_surviving(wrong, left);
  EXPECT_GT(distance(token.rebuilt(left), token.end()), 1e-6);
}

TEST(Survival, LengthsAreThoseOfTheProducts) {
  const Token token;
  constexpr Index S = Token::S;
  Surviving left;
  find_surviving(token.writes(), left);
  for (Index m = 0; m < S; ++m) {
    Vector u = token.k[m];
    EXPECT_NEAR(left.left_SS[m * S + m], length(u), 1e-13);
    for (Index j = m + 1; j < S; ++j) {
      u = token.erased(u, j);
      EXPECT_NEAR(left.left_SS[m * S + j], length(u), 1e-13) << m << " " << j;
    }
  }
  std::vector<Vector> X = token.start;
  for (Index j = 0; j < S; ++j) {
    double square = 0;
    for (Vector& plane : X) plane = token.erased(plane, j), square += dot_of(plane, plane);
    EXPECT_NEAR(left.start_left_S[j], std::sqrt(square), 1e-13) << j;
  }
}

// In the models themselves: what the audit puts together is the state that the engine computed.
TEST(Survival, PartsAddUpInEveryRuleThatErases) {
  for (const char* rule :
       {"ddl-dv1", "ddl-cc", "ddl-tc", "ddl-cc-noec", "ddl-tc-noec", "ddl-ew-dv1", "ddl-ew-cc"}) {
    const ModelConfig config = model_config({.residual = rule});
    const Json audit = tiny_audit(rule, 6, 8);
    const double rounding =
        16 * 0x1p-24 * std::sqrt(static_cast<double>(config.sublayers() * config.width * 4));
    EXPECT_LT(audit["survival"]["decomposition_error"].get<double>(), rounding) << rule;
  }
  for (const char* rule : {"baseline", "wo-cc", "ihc", "hc", "attnres"})
    EXPECT_TRUE(tiny_audit(rule, 2, 8)["survival"].is_null()) << rule;
}

}  // namespace
}  // namespace ddl
