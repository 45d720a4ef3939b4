#include "model/residual/hyper_mixer.h"

#include <cmath>

namespace ddl {
namespace {

float stream_rstd(float square, Index C) { return 1 / std::sqrt(square / static_cast<float>(C) + 1e-5f); }

}  // namespace

void StaticHyperMixer::forward(const Forward& token) const {
  const HyperExtra at{D_};
  for (Index i = 0; i < D_; ++i) token.read_D[i] = token.extra[at.read() + i];
  for (Index i = 0; i < D_ * D_; ++i) token.mix_DD[i] = token.extra[at.mix() + i];
  for (Index i = 0; i < D_; ++i) token.write_D[i] = token.extra[at.write() + i];
}

void StaticHyperMixer::backward(const Backward& token) const {
  const HyperExtra at{D_};
  for (Index i = 0; i < D_; ++i) token.dextra[at.read() + i] += token.dread_D[i];
  for (Index i = 0; i < D_ * D_; ++i) token.dextra[at.mix() + i] += token.dmix_DD[i];
  for (Index i = 0; i < D_; ++i) token.dextra[at.write() + i] += token.dwrite_D[i];
}

HyperMixer::Target HyperMixer::target(Index i, Index r) const {
  const HyperExtra at{D_};
  if (r == 0) return {kRead, i, at.mix_scale()};
  if (r == D_ + 1) return {kWrite, i, at.write_scale()};
  return {kMix, i * D_ + r - 1, at.mix_scale()};
}

// With dot_ir = X_i . w_r:
//   z_ir  = rstd_i dot_ir,  rstd_i = 1 / sqrt(square_i / C + eps)
//   value = value0 + e tanh(z_ir)
void HyperMixer::forward(const Forward& token) const {
  base_.forward(token);
  for (Index i = 0; i < D_; ++i) {
    const float rstd = stream_rstd(token.square_D[i], token.C);
    for (Index r = 0; r < rows(); ++r) {
      const Target at = target(i, r);
      float* value = at.kind == kRead ? token.read_D : at.kind == kMix ? token.mix_DD : token.write_D;
      value[at.index] += token.extra[at.scale] * std::tanh(rstd * token.dots[i * rows() + r]);
    }
  }
}

// With tau = tanh(z_ir) and g the gradient of the value:
//   de += tau g        dz_ir = e (1 - tau^2) g        ddot_ir = rstd_i dz_ir
//   dsquare_i = -rstd_i^2 / (2 C) sum_r dz_ir z_ir
void HyperMixer::backward(const Backward& token) const {
  base_.backward(token);
  for (Index i = 0; i < D_; ++i) {
    const float rstd = stream_rstd(token.square_D[i], token.C);
    float dz_dot_z = 0;
    for (Index r = 0; r < rows(); ++r) {
      const Target at = target(i, r);
      const float* dvalue = at.kind == kRead  ? token.dread_D
                            : at.kind == kMix ? token.dmix_DD
                                              : token.dwrite_D;
      const float z = rstd * token.dots[i * rows() + r], tau = std::tanh(z), g = dvalue[at.index];
      const float dz = token.extra[at.scale] * (1 - tau * tau) * g;
      token.dextra[at.scale] += tau * g;
      token.ddots[i * rows() + r] = rstd * dz;
      dz_dot_z += dz * z;
    }
    token.dsquare_D[i] = -rstd * rstd / (2 * static_cast<float>(token.C)) * dz_dot_z;
  }
}

}  // namespace ddl
