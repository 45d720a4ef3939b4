// How the loss falls with parameters N and tokens D, jointly for all rules (the form of Hoffmann et al., "Training
// compute-optimal large language models", 2022, with what the rules have in common shared):
//
//   L = E + A_rule N^-alpha + B_rule D^-beta        E, A, B >= 0
//
// Fitted by variable projection (Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973): for given alpha and beta the rest is
// linear and solved exactly, so that the search is over two numbers (a grid, then Nelder-Mead from its best point).
// Residuals r are measured by Huber's loss (r^2/2 up to k, k |r| - k^2/2 beyond; Huber, Ann. Math. Statist. 35, 1964)
// by iterated weights min(1, k/|r|), with k = 1.345 times the spread of the residuals (1.4826 times their median
// size), so that a run gone wrong bends nothing.
//
// Bands come from resampling seeds: at every size its seeds are drawn anew with replacement, and with a seed go all
// its runs, of every rule and length. So pairing and the common trunk of cool-down branches are kept. A size with
// one seed contributes no spread: the bands are then too narrow, and the hold-out error says more.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/index.h"
#include "study/paired.h"

namespace ddl {

struct ScalingPoint {
  Index rule;  // 0 ... rules - 1
  Index size;  // models of one size differ a little in their parameters from rule to rule
  double parameters, tokens;
  Index seed;
  double loss;  // runs that diverged are left out by the fit
};

struct ScalingFit {
  double floor = 0, alpha = 0, beta = 0;  // E and the exponents
  std::vector<double> a, b;               // by rule, for N in parameters and D in tokens
  double huber_k = 0;                     // where the residuals' loss turns linear, in nats
  double predict(Index rule, double parameters, double tokens) const;
};

// Throws UserError where the points cannot determine the fit: every rule needs at least two sizes and two numbers of
// tokens, and all together more different (rule, N, D) than there are unknowns.
ScalingFit fit_scaling(std::span<const ScalingPoint> points, Index rules);

struct ScalingBootstrap {
  ScalingFit fit;                     // of all points
  std::vector<ScalingFit> resampled;  // of each draw of seeds
  // Percentiles over the draws, around what `fit` predicts.
  Interval band(Index rule, double parameters, double tokens, double level) const;
  // The same of the difference between two rules: the noise of seeds that they share is no part of it.
  Interval difference_band(Index rule, Index control, double parameters, double tokens, double level) const;
};
ScalingBootstrap bootstrap_scaling(std::span<const ScalingPoint> points, Index rules, Index resamples,
                                   std::uint64_t seed);

}  // namespace ddl
