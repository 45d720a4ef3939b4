#include "model/residual/permutation_mixer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ddl {
namespace {

constexpr Index kMixerRows = PermutationMixer::kRows;
constexpr float kMixerNormEps = 1e-5f;  // of the norm over all streams, as in every norm of a rule's own

// The parameter that scales a row.
Index scale_of(Index row) {
  return PermutationMixer::kScales + (row < kPermutedStreams ? 0 : row < 2 * kPermutedStreams ? 1 : 2);
}

// With dot_r = vec X . P_r, z_r = rstd dot_r, y_r = a z_r + b_r; then sigma(y) of read and write, softmax(y) of the rest.
struct MixerValues {
  float rstd;
  float value[kMixerRows];
};
template <class Token>
MixerValues mixer_values(const Token& token) {
  MixerValues v;
  const float square = token.square_D[0] + token.square_D[1] + token.square_D[2] + token.square_D[3];
  v.rstd = 1 / std::sqrt(square / static_cast<float>(kPermutedStreams * token.C) + kMixerNormEps);
  for (Index r = 0; r < kMixerRows; ++r)
    v.value[r] = token.extra[scale_of(r)] * (v.rstd * token.dots[r]) + token.extra[r];
  for (Index r = 0; r < 2 * kPermutedStreams; ++r) v.value[r] = 1 / (1 + std::exp(-v.value[r]));
  float* w = v.value + 2 * kPermutedStreams;
  const float largest = *std::max_element(w, w + kPermutations);
  float total = 0;
  for (Index p = 0; p < kPermutations; ++p) total += w[p] = std::exp(w[p] - largest);
  for (Index p = 0; p < kPermutations; ++p) w[p] /= total;
  return v;
}

}  // namespace

const std::array<PermutationMixer::Permutation, kPermutations>& PermutationMixer::permutations() {
  static const auto all = [] {
    std::array<Permutation, kPermutations> list;
    Permutation p;
    std::iota(p.begin(), p.end(), Index{0});
    for (Permutation& one : list) {
      one = p;
      std::next_permutation(p.begin(), p.end());
    }
    return list;
  }();
  return all;
}

void PermutationMixer::forward(const Forward& token) const {
  const MixerValues v = mixer_values(token);
  const float *read = v.value, *write = read + kPermutedStreams, *w = write + kPermutedStreams;
  std::copy_n(read, kPermutedStreams, token.read_D);
  for (Index j = 0; j < kPermutedStreams; ++j) token.write_D[j] = 2 * write[j];
  std::fill_n(token.mix_DD, kPermutedStreams * kPermutedStreams, 0.0f);
  for (Index p = 0; p < kPermutations; ++p)
    for (Index j = 0; j < kPermutedStreams; ++j)
      token.mix_DD[permutations()[p][j] * kPermutedStreams + j] += w[p];
}

// Gradients of y, with g the gradient of the value:
//   sigma        dy = g s (1 - s)                     (twice that for the write)
//   softmax      dy_p = w_p (dw_p - sum w dw),  dw_p = sum_j dmix_p(j)j
// then    db_r += dy_r     da += z_r dy_r     dz_r = a dy_r     ddot_r = rstd dz_r
//         dsquare_i = -rstd^2 / (2 D C) sum_r dz_r z_r         for every stream i
void PermutationMixer::backward(const Backward& token) const {
  const MixerValues v = mixer_values(token);
  const float *read = v.value, *write = read + kPermutedStreams, *w = write + kPermutedStreams;
  float dy[kMixerRows];
  for (Index i = 0; i < kPermutedStreams; ++i) {
    dy[i] = token.dread_D[i] * read[i] * (1 - read[i]);
    dy[kPermutedStreams + i] = 2 * token.dwrite_D[i] * write[i] * (1 - write[i]);
  }
  float* dw = dy + 2 * kPermutedStreams;
  float mean = 0;
  for (Index p = 0; p < kPermutations; ++p) {
    dw[p] = 0;
    for (Index j = 0; j < kPermutedStreams; ++j)
      dw[p] += token.dmix_DD[permutations()[p][j] * kPermutedStreams + j];
    mean += w[p] * dw[p];
  }
  for (Index p = 0; p < kPermutations; ++p) dw[p] = w[p] * (dw[p] - mean);

  float dz_dot_z = 0;
  for (Index r = 0; r < kMixerRows; ++r) {
    const Index scale = scale_of(r);
    const float z = v.rstd * token.dots[r], dz = token.extra[scale] * dy[r];
    token.dextra[r] += dy[r];
    token.dextra[scale] += z * dy[r];
    token.ddots[r] = v.rstd * dz;
    dz_dot_z += dz * z;
  }
  const float dsquare = -v.rstd * v.rstd / (2 * static_cast<float>(kPermutedStreams * token.C)) * dz_dot_z;
  std::fill_n(token.dsquare_D, kPermutedStreams, dsquare);
}

}  // namespace ddl
