#include "eval/metrics.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "eval/python_random.h"

namespace ddl {
namespace {

constexpr Index kResamples = 100000, kResamplesPerSeed = 1000;

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  const double centre = mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - centre) * (v - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// The statistic of resamples drawn with replacement. Each 1000 of them have a generator of their own, so that
// they can be computed in parallel.
std::vector<double> bootstrap_perplexities(std::span<const double> log_likelihoods, const Exec& ex) {
  std::vector<double> statistics(kResamples);
  const auto n = static_cast<double>(log_likelihoods.size());
  parallel_for(kResamples / kResamplesPerSeed, ex, [&](Index chunk) {
    PythonRandom random(static_cast<std::uint32_t>(chunk));
    for (Index i = 0; i < kResamplesPerSeed; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < log_likelihoods.size(); ++k)
        sum += log_likelihoods[static_cast<std::size_t>(random.uniform() * n)];
      statistics[static_cast<std::size_t>(chunk * kResamplesPerSeed + i)] = std::exp(-sum / n);
    }
  });
  return statistics;
}

}  // namespace

Index first_maximum(std::span<const double> values) {
  Index best = 0;
  for (Index i = 0; i < std::ssize(values); ++i) {
    if (std::isnan(values[static_cast<std::size_t>(i)])) return i;
    if (values[static_cast<std::size_t>(i)] > values[static_cast<std::size_t>(best)]) best = i;
  }
  return best;
}

double question_value(Metric metric, TaskKind kind, const Question& question, std::span<const Score> scores) {
  DDL_CHECK(std::ssize(scores) == question.count(), "{} scores for {} choices", scores.size(),
            question.count());
  if (metric == Metric::kPerplexity) return scores.front().log_likelihood;
  if (kind == TaskKind::kLikelihood) return scores.front().greedy ? 1 : 0;
  std::vector<double> values;
  for (std::size_t i = 0; i < scores.size(); ++i)
    values.push_back(metric == Metric::kNormalisedAccuracy
                         ? scores[i].log_likelihood / static_cast<double>(question.choice_chars[i])
                         : scores[i].log_likelihood);
  return first_maximum(values) == question.gold ? 1 : 0;
}

double aggregate(Metric metric, std::span<const double> values) {
  return metric == Metric::kPerplexity ? std::exp(-mean(values)) : mean(values);
}

std::optional<double> standard_error(Metric metric, std::span<const double> values, const Exec& ex) {
  if (values.size() < 2) return std::nullopt;
  if (metric == Metric::kPerplexity) return sample_deviation(bootstrap_perplexities(values, ex));
  return sample_deviation(values) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace ddl
