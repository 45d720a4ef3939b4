#include "study/scaling_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/rng.h"
#include "study/nelder_mead.h"
#include "study/nonnegative_least_squares.h"

namespace ddl {
namespace {

constexpr double kSmallestExponent = 0.02, kLargestExponent = 2;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Points with N and D relative to their geometric means, so that the columns of the linear problem are of size one.
struct ScaledPoints {
  Index rules;
  double typical_parameters = 1, typical_tokens = 1;
  std::vector<ScalingPoint> points;
  std::vector<double> losses;
};

ScaledPoints scaled(std::span<const ScalingPoint> points, Index rules) {
  ScaledPoints data{rules, 1, 1, {}, {}};
  double log_parameters = 0, log_tokens = 0;
  for (const ScalingPoint& p : points) {
    DDL_CHECK(p.rule >= 0 && p.rule < rules && p.parameters > 0 && p.tokens > 0, "rule {} of {}, N {}, D {}",
              p.rule, rules, p.parameters, p.tokens);
    if (!std::isfinite(p.loss)) continue;
    data.points.push_back(p);
    data.losses.push_back(p.loss);
    log_parameters += std::log(p.parameters);
    log_tokens += std::log(p.tokens);
  }
  if (data.points.empty()) return data;
  const auto n = static_cast<double>(data.points.size());
  data.typical_parameters = std::exp(log_parameters / n);
  data.typical_tokens = std::exp(log_tokens / n);
  for (ScalingPoint& p : data.points) {
    p.parameters /= data.typical_parameters;
    p.tokens /= data.typical_tokens;
  }
  return data;
}

void check_determined(const ScaledPoints& data) {
  std::set<std::tuple<Index, double, double>> cells;
  std::vector<std::set<double>> sizes(static_cast<std::size_t>(data.rules)), lengths(sizes.size());
  for (const ScalingPoint& p : data.points) {
    cells.emplace(p.rule, p.parameters, p.tokens);
    sizes[p.rule].insert(p.parameters);
    lengths[p.rule].insert(p.tokens);
  }
  for (Index r = 0; r < data.rules; ++r)
    if (sizes[r].size() < 2 || lengths[r].size() < 2)
      throw UserError(
          "scaling fit: expected at least two sizes and two numbers of tokens of every rule; rule {} has {} "
          "and "
          "{}. Add sizes or cool-downs, or leave the rule out",
          r, sizes[r].size(), lengths[r].size());
  const Index unknowns = 3 + 2 * data.rules;
  if (std::ssize(cells) <= unknowns)
    throw UserError(
        "scaling fit: {} unknowns for {} rules need more than {} different (rule, size, tokens), found {}",
        unknowns, data.rules, unknowns, cells.size());
}

// The linear part for given exponents: coefficients E, A_0, B_0, A_1, B_1, ... and the residuals' total Huber loss.
struct LinearFit {
  std::vector<double> coefficients, residuals;
  double objective = 0;
};

double huber(double r, double k) {
  const double size = std::abs(r);
  return size <= k ? r * r / 2 : k * size - k * k / 2;
}

// `weights` are where the iteration begins and where it ended: a neighbour's are a good beginning.
LinearFit fit_linear(const ScaledPoints& data, double alpha, double beta, double k,
                     std::vector<double>& weights) {
  const Index unknowns = 1 + 2 * data.rules, n = std::ssize(data.points);
  std::vector<double> rows(static_cast<std::size_t>(n * unknowns));
  for (Index i = 0; i < n; ++i) {
    const ScalingPoint& p = data.points[i];
    rows[i * unknowns] = 1;
    rows[i * unknowns + 1 + 2 * p.rule] = std::pow(p.parameters, -alpha);
    rows[i * unknowns + 2 + 2 * p.rule] = std::pow(p.tokens, -beta);
  }
  LinearFit fit;
  fit.residuals.resize(data.points.size());
  double before = kUnbounded;
  for (int iteration = 0; iteration < 100; ++iteration) {
    fit.coefficients = nonnegative_least_squares(rows, data.losses, weights, unknowns);
    fit.objective = 0;
    for (Index i = 0; i < n; ++i) {
      double predicted = 0;
      for (Index j = 0; j < unknowns; ++j) predicted += rows[i * unknowns + j] * fit.coefficients[j];
      fit.residuals[i] = predicted - data.losses[i];
      fit.objective += huber(fit.residuals[i], k);
      weights[i] = std::min(1.0, k / std::max(std::abs(fit.residuals[i]), 1e-300));
    }
    if (k == kUnbounded || std::abs(before - fit.objective) <= 1e-7 * fit.objective) break;
    before = fit.objective;
  }
  return fit;
}

struct Exponents {
  double alpha, beta;
};

Exponents search_exponents(const ScaledPoints& data, double k, const Exponents* start) {
  std::vector<double> weights(data.points.size(), 1.0);
  const auto objective = [&](const std::vector<double>& logs) {
    const double alpha = std::exp(logs[0]), beta = std::exp(logs[1]);
    const auto allowed = [](double e) { return e >= kSmallestExponent && e <= kLargestExponent; };
    if (!allowed(alpha) || !allowed(beta)) return kUnbounded;
    return fit_linear(data, alpha, beta, k, weights).objective;
  };
  std::vector<double> best;
  if (start) {
    best = {std::log(start->alpha), std::log(start->beta)};
  } else {
    constexpr std::array kGrid = {0.03, 0.06, 0.1,  0.15, 0.2, 0.25, 0.3,
                                  0.37, 0.45, 0.55, 0.7,  0.9, 1.2,  1.6};
    double lowest = kUnbounded;
    for (const double alpha : kGrid)
      for (const double beta : kGrid) {
        const std::vector<double> at = {std::log(alpha), std::log(beta)};
        const double value = objective(at);
        if (value < lowest) {
          lowest = value;
          best = at;
        }
      }
  }
  best = nelder_mead(objective, best, 0.1, 1e-4, 300).x;
  return {std::exp(best[0]), std::exp(best[1])};
}

double median_size(std::vector<double> values) {
  for (double& v : values) v = std::abs(v);
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `start`: a fit of similar points, which saves the grid and the spread of the residuals.
ScalingFit fit_scaled(const ScaledPoints& data, const ScalingFit* start) {
  std::vector<double> weights(data.points.size(), 1.0);
  Exponents exponents{};
  double k = kUnbounded;
  if (start) {
    k = start->huber_k;
    const Exponents from{start->alpha, start->beta};
    exponents = search_exponents(data, k, &from);
  } else {
    exponents = search_exponents(data, k, nullptr);
    for (int round = 0; round < 3;
         ++round) {  // the spread once more without what the outliers did to the first fit
      const LinearFit fit = fit_linear(data, exponents.alpha, exponents.beta, k, weights);
      k = std::max(1.345 * 1.4826 * median_size(fit.residuals), 1e-9);
      exponents = search_exponents(data, k, round == 0 ? nullptr : &exponents);
    }
  }
  std::fill(weights.begin(), weights.end(), 1.0);
  const LinearFit linear = fit_linear(data, exponents.alpha, exponents.beta, k, weights);
  ScalingFit fit{linear.coefficients[0], exponents.alpha, exponents.beta, {}, {}, k};
  for (Index r = 0; r < data.rules; ++r) {
    fit.a.push_back(linear.coefficients[1 + 2 * r] * std::pow(data.typical_parameters, exponents.alpha));
    fit.b.push_back(linear.coefficients[2 + 2 * r] * std::pow(data.typical_tokens, exponents.beta));
  }
  return fit;
}

Interval percentiles(std::vector<double> values, double level) {
  if (values.empty()) return kEverything;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at((1 - level) / 2), at((1 + level) / 2)};
}

}  // namespace

double ScalingFit::predict(Index rule, double parameters, double tokens) const {
  return floor + a[rule] * std::pow(parameters, -alpha) + b[rule] * std::pow(tokens, -beta);
}

ScalingFit fit_scaling(std::span<const ScalingPoint> points, Index rules) {
  const ScaledPoints data = scaled(points, rules);
  check_determined(data);
  return fit_scaled(data, nullptr);
}

Interval ScalingBootstrap::band(Index rule, double parameters, double tokens, double level) const {
  std::vector<double> predictions;
  for (const ScalingFit& f : resampled) predictions.push_back(f.predict(rule, parameters, tokens));
  return percentiles(std::move(predictions), level);
}

Interval ScalingBootstrap::difference_band(Index rule, Index control, double parameters, double tokens,
                                           double level) const {
  std::vector<double> differences;
  for (const ScalingFit& f : resampled)
    differences.push_back(f.predict(rule, parameters, tokens) - f.predict(control, parameters, tokens));
  return percentiles(std::move(differences), level);
}

ScalingBootstrap bootstrap_scaling(std::span<const ScalingPoint> points, Index rules, Index resamples,
                                   std::uint64_t seed) {
  ScalingBootstrap result{fit_scaling(points, rules), {}};
  std::map<Index, std::map<Index, std::vector<ScalingPoint>>> runs_by_size_and_seed;
  std::set<std::pair<Index, double>> rules_and_sizes;
  for (const ScalingPoint& p : points) {
    if (!std::isfinite(p.loss)) continue;
    runs_by_size_and_seed[p.size][p.seed].push_back(p);
    rules_and_sizes.emplace(p.rule, p.parameters);
  }
  const Random random(seed, "study.scaling");
  std::uint64_t draw = 0;
  while (std::ssize(result.resampled) < resamples) {
    std::vector<ScalingPoint> drawn;
    for (const auto& [size, runs_by_seed] : runs_by_size_and_seed) {
      for (std::size_t s = 0; s < runs_by_seed.size(); ++s) {
        const auto chosen =
            std::next(runs_by_seed.begin(), static_cast<Index>(random.below(draw++, runs_by_seed.size())));
        drawn.insert(drawn.end(), chosen->second.begin(), chosen->second.end());
      }
    }
    // Where rules have different seeds, a draw may leave a rule without a size: then it says nothing of that rule.
    std::set<std::pair<Index, double>> present;
    for (const ScalingPoint& p : drawn) present.emplace(p.rule, p.parameters);
    if (present == rules_and_sizes) result.resampled.push_back(fit_scaled(scaled(drawn, rules), &result.fit));
  }
  return result;
}

}  // namespace ddl
