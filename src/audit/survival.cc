#include "audit/survival.h"

#include <algorithm>
#include <cmath>

namespace ddl {
namespace {

// u = u_0 + sum_l coef_l k_l goes through one erase of sublayer j:
//   u <- u - e (k_j . u) k_j        |u|^2 <- |u|^2 - e (2 - e |k_j|^2) (k_j . u)^2
// `dot` is k_j . u_0; coef_l is 0 for l < first and l >= j.
void erase(double* coef_S, double& square, double dot, const TokenWrites& t, Index first, Index j) {
  const double* gram_S = t.gram_SS.data() + j * t.sublayers;
  for (Index l = first; l < j; ++l) dot += coef_S[l] * gram_S[l];
  const double e = t.erase_S[j];
  coef_S[j] = -e * dot;
  square = std::max(0.0, square - e * (2 - e * gram_S[j]) * dot * dot);
}

}  // namespace

void find_surviving(const TokenWrites& t, Surviving& out) {
  const Index S = t.sublayers, D = t.channels;
  out.left_SS.assign(static_cast<std::size_t>(S * S), 0.0);
  out.write_SS.assign(static_cast<std::size_t>(S * S), 0.0);
  out.start_DS.assign(static_cast<std::size_t>(D * S), 0.0);
  out.start_left_S.assign(static_cast<std::size_t>(S), 0.0);
  for (Index m = 0; m < S; ++m) {
    double* coef_S = out.write_SS.data() + m * S;
    double square = t.gram_SS[m * S + m];
    coef_S[m] = 1;
    out.left_SS[m * S + m] = std::sqrt(square);
    for (Index j = m + 1; j < S; ++j) {
      erase(coef_S, square, 0, t, m, j);
      out.left_SS[m * S + j] = std::sqrt(square);
    }
  }
  for (Index d = 0; d < D; ++d) {
    double square = t.start_square_D[d];
    for (Index j = 0; j < S; ++j) {
      erase(out.start_DS.data() + d * S, square, t.start_dot_SD[j * D + d], t, 0, j);
      out.start_left_S[j] += square;
    }
  }
  for (double& left : out.start_left_S) left = std::sqrt(left);
}

}  // namespace ddl
