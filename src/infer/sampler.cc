#include "infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ddl {

void SamplerOptions::check() const {
  const auto expect = [](bool good, const char* name, const char* expected, double found) {
    if (!good) throw UserError("{}: expected {}, found {}", name, expected, found);
  };
  expect(temperature >= 0 && std::isfinite(temperature), "temperature", "0 or more", temperature);
  expect(top_k >= 0, "top-k", "0 (all) or more", static_cast<double>(top_k));
  expect(top_p > 0 && top_p <= 1, "top-p", "a share above 0, up to 1", top_p);
  expect(min_p >= 0 && min_p <= 1, "min-p", "0 to 1", min_p);
  expect(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition-penalty",
         "a number above 0 (1: none)", repetition_penalty);
  expect(std::abs(frequency_penalty) <= 2, "frequency_penalty", "-2 to 2", frequency_penalty);
  expect(std::abs(presence_penalty) <= 2, "presence_penalty", "-2 to 2", presence_penalty);
  for (const auto& [id, bias] : logit_bias) expect(std::abs(bias) <= 100, "logit_bias", "-100 to 100", bias);
}

Sampler::Sampler(const SamplerOptions& options, std::uint64_t stream)
    : options_(options), random_(options.seed, stream) {
  options_.check();
}

std::int32_t Sampler::next(std::span<const float> logits_V, std::span<const std::int32_t> history) {
  const std::int32_t id = choose(logits_V, history);
  if (options_.frequency_penalty != 0 || options_.presence_penalty != 0) ++chosen_[id];
  return id;
}

void Sampler::penalise(std::span<const float> logits_V, std::span<const std::int32_t> history) {
  const auto known = [&](std::int32_t id) {
    return id >= 0 && static_cast<std::size_t>(id) < candidates_.size();
  };
  if (options_.repetition_penalty != 1)
    for (const std::int32_t id : history) {
      if (!known(id)) continue;
      // From the model's logit, so that a token seen twice is penalised once.
      const float logit = logits_V[id], r = static_cast<float>(options_.repetition_penalty);
      candidates_[id].logit = logit > 0 ? logit / r : logit * r;
    }
  for (const auto& [id, times] : chosen_)
    candidates_[id].logit -=
        static_cast<float>(options_.frequency_penalty * times + options_.presence_penalty);
  for (const auto& [id, bias] : options_.logit_bias)
    if (known(id)) candidates_[id].logit += static_cast<float>(bias);
}

std::int32_t Sampler::choose(std::span<const float> logits_V, std::span<const std::int32_t> history) {
  const std::uint64_t step = step_++;
  candidates_.resize(logits_V.size());
  for (std::size_t i = 0; i < logits_V.size(); ++i) {
    if (!std::isfinite(logits_V[i]))
      throw BadWeights("the model's logit of token {} is {}: its weights are damaged or diverged", i,
                       logits_V[i]);
    candidates_[i] = {logits_V[i], static_cast<std::int32_t>(i)};
  }
  penalise(logits_V, history);
  const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), before);
  if (options_.temperature == 0) return best.id;

  if (options_.top_k > 0 && options_.top_k < std::ssize(candidates_)) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k - 1, candidates_.end(),
                     before);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  }
  // p_i / p_best = e^{(z_i - z_best) / temperature}
  const auto likelihood = [&](const Candidate& c) {
    return std::exp((double{c.logit} - double{best.logit}) / options_.temperature);
  };
  if (options_.top_p < 1) {
    double total = 0;
    for (const Candidate& c : candidates_) total += likelihood(c);
    // A heap instead of a sort: few are taken off it.
    const auto after = [](const Candidate& a, const Candidate& b) { return before(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), after);
    double held = 0;
    auto rest = candidates_.end();
    while (rest != candidates_.begin() && held < options_.top_p * total) {
      std::pop_heap(candidates_.begin(), rest, after);
      held += likelihood(*--rest);
    }
    candidates_.erase(candidates_.begin(), rest);
  }
  if (options_.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& c) { return likelihood(c) < options_.min_p; });

  // In order of ids, so that the draw does not depend on how the candidates were found.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  weight_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) weight_.push_back(total += likelihood(c));
  const double point = random_.uniform(step) * total;
  const auto chosen = std::upper_bound(weight_.begin(), weight_.end(), point);
  return candidates_[std::min<std::size_t>(static_cast<std::size_t>(chosen - weight_.begin()),
                                           candidates_.size() - 1)]
      .id;
}

}  // namespace ddl
