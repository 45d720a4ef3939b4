// The paper's rewrite as coefficients of h, and the write-only control.
#pragma once

#include <cmath>

#include "kernels/residual_pass.h"

namespace ddl {

// With the direction k = s h, s = 1 / sqrt(|h|^2 + k_eps^2), the readout r_d = k . X_d, the gate beta and the
// target v_d, and e = 1, or e = 0 for the control without the erase term:
//
//   X_d += beta (v_d - e r_d) k         so        coef_d = beta (v_d - e r_d) s
//
// Backward, with a_d = k . G_d:
//   dv_d    = beta a_d                            dbeta   = sum_d (v_d - e r_d) a_d
//   erase_d = e beta a_d s                        along   = s^2 (k . dk)
//   dk      = sum_d beta (v_d - e r_d) G_d - e beta a_d X_d
//   k . dk  = sum_d beta a_d (v_d - 2 e r_d)      since k . X_d = r_d
//
// Steering numbers of a token: beta, v_0, ..., v_{D-1}. Saved: s, and with the erase term r_0, ..., r_{D-1}.
// std::fma where the compiler would contract on machines that can: so the bits do not depend on it.
class DeltaCoefficients final : public Coefficients {
 public:
  enum class Erase { kNo, kYes };
  static constexpr float kDefaultEps = 1e-5f;
  explicit DeltaCoefficients(Erase erase, float k_eps = kDefaultEps)
      : erase_(erase == Erase::kYes), k_eps_(k_eps) {}

  bool reads_state() const override { return erase_; }
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index D) const override { return erase_ ? 1 + D : 1; }

  void forward(const Forward& t) const override {
    const float beta = t.steer[0], *v = t.steer + 1;
    const float s = 1 / std::sqrt(std::fma(k_eps_, k_eps_, t.h_square));
    t.saved[0] = s;
    for (Index d = 0; d < t.D; ++d) {
      const float r = erase_ ? t.h_dot_X_D[d] * s : 0;
      if (erase_) t.saved[1 + d] = r;
      t.coef_D[d] = beta * (v[d] - r) * s;
    }
  }

  void backward(Backward& t) const override {
    const float beta = t.steer[0], *v = t.steer + 1, s = t.saved[0];
    float dbeta = 0, k_dk = 0;
    for (Index d = 0; d < t.D; ++d) {
      const float r = erase_ ? t.saved[1 + d] : 0, a = t.h_dot_G_D[d] * s, change = beta * a;
      t.dsteer[1 + d] = change;
      dbeta = std::fma(v[d] - r, a, dbeta);
      k_dk = std::fma(change, v[d] - 2 * r, k_dk);
      t.coef_D[d] = beta * (v[d] - r) * s;
      t.erase_D[d] = erase_ ? change * s : 0;
    }
    t.dsteer[0] = dbeta;
    t.along = s * s * k_dk;
  }

 private:
  const bool erase_;
  const float k_eps_;
};

}  // namespace ddl
