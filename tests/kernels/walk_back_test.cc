// The backward pass walks the state back through the writes instead of reading stored copies. Over as many
// sublayers as the paper's medium model has, both must give the same gradients to rounding.
#include <cstdint>

#include "kernels/kernel_test.h"
#include "kernels/residual.h"

namespace ddl::walk_back_test {
namespace {

constexpr Index S = 48, N = 5, D = 4, C = 40;

enum class State { kWalked, kStored, kWalkedWrong };

struct Gradients {
  std::vector<double> dh, dbeta, dv, dmix, dnorm, dstate;
};

Gradients run(WriteRule rule, State kind) {
  const Exec ex{.threads = 2};
  const Index size = N * D * C;
  Buffer<float> state(normals(size, 1));
  std::vector<std::vector<double>> stored;  // after each write
  std::vector<Buffer<float>> h, beta, v, readout, kscale, rstd, mix;
  const Buffer<float> norm(normals(C, 2));
  Buffer<float> context(N * C);
  for (Index s = 0; s < S; ++s) {
    const auto seed = static_cast<std::uint64_t>(100 + 10 * s);
    std::vector<double> gate = normals(N, seed);
    for (double& b : gate) b = 2 / (1 + std::exp(-b));
    h.emplace_back(normals(N * C, seed + 1)), beta.emplace_back(gate),
        v.emplace_back(normals(N * D, seed + 2));
    mix.emplace_back(normals(D * C, seed + 3));
    readout.emplace_back(N * D), kscale.emplace_back(N), rstd.emplace_back(N);
    const WriteFwd<float> write{.rule = rule,
                                .h_NC = h[s].data(),
                                .beta_N = beta[s].data(),
                                .v_ND = v[s].data(),
                                .readout_ND = readout[s].data(),
                                .kscale_N = kscale[s].data()};
    const ReadFwd<float> read{.mix_DC = mix[s].data(),
                              .norm_C = norm.data(),
                              .context_NC = context.data(),
                              .rstd_N = rstd[s].data()};
    residual_fwd<float>(state.data(), &write, &read, N, D, C, ex);
    stored.push_back(state.values());
  }
  if (kind == State::kWalkedWrong) readout[S / 2][0] += 0.01f;  // the mutant: one readout of one token is off

  Gradients g;
  Buffer<float> dstate(size), dh(N * C), dbeta(N), dv(N * D), dnorm(C),
      scratch(residual_bwd_scratch(D, C, 0));
  const auto append = [](std::vector<double>& to, const Buffer<float>& from) {
    const auto values = from.values();
    to.insert(to.end(), values.begin(), values.end());
  };
  for (Index s = S - 1; s >= 0; --s) {
    if (kind == State::kStored) state = Buffer<float>(stored[s]);
    const Buffer<float> dcontext(normals(N * C, static_cast<std::uint64_t>(s)));
    Buffer<float> dmix(D * C);
    const ReadBwd<float> read{.mix_DC = mix[s].data(),
                              .norm_C = norm.data(),
                              .rstd_N = rstd[s].data(),
                              .dcontext_NC = dcontext.data(),
                              .dstate_mode = s == S - 1 ? Write::kOverwrite : Write::kAccumulate,
                              .dmix_DC = dmix.data(),
                              .dnorm_C = dnorm.data()};
    const WriteBwd<float> write{.rule = rule,
                                .h_NC = h[s].data(),
                                .beta_N = beta[s].data(),
                                .v_ND = v[s].data(),
                                .readout_ND = readout[s].data(),
                                .kscale_N = kscale[s].data(),
                                .dh_NC = dh.data(),
                                .dbeta_N = dbeta.data(),
                                .dv_ND = dv.data()};
    residual_bwd<float>(state.data(), dstate.data(), &read, &write, scratch.data(), N, D, C, ex);
    append(g.dh, dh), append(g.dbeta, dbeta), append(g.dv, dv), append(g.dmix, dmix);
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

TEST(WalkBack, GivesTheGradientsOfTheStoredState) {
  for (WriteRule rule : {WriteRule::kDelta, WriteRule::kWriteOnly})
    EXPECT_LT(difference(run(rule, State::kWalked), run(rule, State::kStored)), 1) << static_cast<int>(rule);
}

TEST(WalkBack, AWrongReadoutIsSeen) {
  EXPECT_GT(difference(run(WriteRule::kDelta, State::kWalkedWrong), run(WriteRule::kDelta, State::kStored)),
            1);
}

}  // namespace
}  // namespace ddl::walk_back_test
