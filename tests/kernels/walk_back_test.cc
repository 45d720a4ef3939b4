// The backward pass walks the state back through the writes instead of reading stored copies. Over as many
// sublayers as the paper's medium model has, both must give the same gradients to rounding.
#include <cstdint>

#include "kernels/kernel_test.h"
#include "kernels/residual_pass.h"
#include "model/residual/delta_coefficients.h"

namespace ddl::walk_back_test {
namespace {

constexpr Index S = 48, N = 5, D = 4, C = 40;
constexpr Index R = 1 + D;  // steering numbers: beta, v_0, ..., v_{D-1}

enum class State {
  kWalked,       // only the last is there
  kStored,       // the state after each write is put back before the backward pass of its sublayer
  kGiven,        // the backward pass is given the state before each write (stored_state_NDC)
  kWalkedWrong,  // the mutant: walked, but one readout of one token is off
};

struct Gradients {
  std::vector<double> dh, dbeta, dv, dmix, dnorm, dstate;
};

Gradients run(DeltaCoefficients::Erase erase, State kind) {
  const Exec ex{.threads = 2};
  const DeltaCoefficients rule(erase);
  const Index Q = rule.saved_per_token(D);
  const Index size = N * D * C;
  Buffer<float> state(normals(size, 1));
  std::vector<std::vector<double>> stored;  // before the first write, then after each
  stored.push_back(state.values());
  std::vector<Buffer<float>> h, steer, saved, rstd, mix;
  const Buffer<float> norm(normals(C, 2));
  Buffer<float> context(N * C);
  for (Index s = 0; s < S; ++s) {
    const auto seed = static_cast<std::uint64_t>(100 + 10 * s);
    std::vector<double> gate = normals(N, seed);
    for (double& b : gate) b = 2 / (1 + std::exp(-b));
    const std::vector<double> value = normals(N * D, seed + 2);
    h.emplace_back(normals(N * C, seed + 1));
    mix.emplace_back(normals(D * C, seed + 3));
    steer.emplace_back(N * R), saved.emplace_back(N * Q), rstd.emplace_back(N);
    for (Index n = 0; n < N; ++n) {
      steer[s][n * R] = static_cast<float>(gate[n]);
      for (Index d = 0; d < D; ++d) steer[s][n * R + 1 + d] = static_cast<float>(value[n * D + d]);
    }
    const WriteFwd<float> write{.coefficients = &rule,
                                .h_NC = h[s].data(),
                                .steer_NR = steer[s].data(),
                                .steer_stride = R,
                                .saved_NQ = saved[s].data()};
    const ReadFwd<float> read{.mix_DC = mix[s].data(),
                              .norm_C = norm.data(),
                              .context_NC = context.data(),
                              .rstd_N = rstd[s].data()};
    residual_fwd<float>(state.data(), &write, &read, N, D, C, ex);
    stored.push_back(state.values());
  }
  if (kind == State::kWalkedWrong) saved[S / 2][1] += 0.01f;  // r_0 of token 0

  Gradients g;
  Buffer<float> dstate(size), dh(N * C), dsteer(N * R), dnorm(C), scratch(residual_bwd_scratch(D, C, 0));
  const auto append = [](std::vector<double>& to, const Buffer<float>& from) {
    const auto values = from.values();
    to.insert(to.end(), values.begin(), values.end());
  };
  for (Index s = S - 1; s >= 0; --s) {
    const Buffer<float> before(stored[s]);
    if (kind == State::kStored) state = Buffer<float>(stored[s + 1]);
    const Buffer<float> dcontext(normals(N * C, static_cast<std::uint64_t>(s)));
    Buffer<float> dmix(D * C);
    const ReadBwd<float> read{.mix_DC = mix[s].data(),
                              .norm_C = norm.data(),
                              .rstd_N = rstd[s].data(),
                              .dcontext_NC = dcontext.data(),
                              .dstate_mode = s == S - 1 ? Write::kOverwrite : Write::kAccumulate,
                              .dmix_DC = dmix.data(),
                              .dnorm_C = dnorm.data()};
    const WriteBwd<float> write{.coefficients = &rule,
                                .h_NC = h[s].data(),
                                .steer_NR = steer[s].data(),
                                .steer_stride = R,
                                .saved_NQ = saved[s].data(),
                                .stored_state_NDC = kind == State::kGiven ? before.data() : nullptr,
                                .dh_NC = dh.data(),
                                .dsteer_NR = dsteer.data()};
    residual_bwd<float>(state.data(), dstate.data(), &read, &write, scratch.data(), N, D, C, ex);
    append(g.dh, dh), append(g.dmix, dmix);
    for (Index n = 0; n < N; ++n) {
      g.dbeta.push_back(dsteer[n * R]);
      for (Index d = 0; d < D; ++d) g.dv.push_back(dsteer[n * R + 1 + d]);
    }
  }
  append(g.dnorm, dnorm), append(g.dstate, dstate);
  return g;
}

// Walking back through a write rounds each element of the state once, so after S writes it is off like a
// random walk of S steps; a gradient sums up to D * C of its elements.
double difference(const Gradients& a, const Gradients& b) {
  const Index roundings = S * D * C;
  double worst = 0;
  for (auto part : {&Gradients::dh, &Gradients::dbeta, &Gradients::dv, &Gradients::dmix, &Gradients::dnorm,
                    &Gradients::dstate})
    worst = std::max(worst, rounding_ratio(a.*part, b.*part, roundings));
  return worst;
}

constexpr auto kDelta = DeltaCoefficients::Erase::kYes, kWriteOnly = DeltaCoefficients::Erase::kNo;

TEST(WalkBack, GivesTheGradientsOfTheStoredState) {
  for (auto erase : {kDelta, kWriteOnly})
    EXPECT_LT(difference(run(erase, State::kWalked), run(erase, State::kStored)), 1) << int(erase);
}

TEST(WalkBack, GivesTheGradientsOfTheGivenState) {
  for (auto erase : {kDelta, kWriteOnly})
    EXPECT_LT(difference(run(erase, State::kWalked), run(erase, State::kGiven)), 1) << int(erase);
}

TEST(WalkBack, AWrongReadoutIsSeen) {
  EXPECT_GT(difference(run(kDelta, State::kWalkedWrong), run(kDelta, State::kStored)), 1);
}

}  // namespace
}  // namespace ddl::walk_back_test
