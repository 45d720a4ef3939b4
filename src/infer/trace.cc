#include "infer/trace.h"

#include <utility>

#include "core/error.h"
#include "model/probe.h"

namespace ddl {

Trace trace_tokens(const Weights& weights, std::span<const std::int32_t> tokens, const Exec& ex) {
  const ModelConfig& config = weights.config();
  const Index N = std::ssize(tokens);
  if (N < 1 || N > config.context)
    throw UserError("{} tokens: expected 1 to {}, the model's context", N, config.context);
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= config.vocab)
      throw UserError("token {} is not in the model's vocabulary of {}", token, config.vocab);
  std::vector<std::int32_t> target_N(tokens.begin() + 1, tokens.end());
  target_N.push_back(0);  // nothing follows the last; a batch must have a target

  const auto probe = make_probe(weights, {1, N}, ex);
  Trace trace{.tokens = N, .loss_N = std::vector<float>(static_cast<std::size_t>(N)), .by_sublayer = {}};
  probe->loss({tokens.data(), target_N.data()}, {.loss_N = trace.loss_N.data()}, ex);
  trace.loss_N.back() = 0;
  for (Index s = 0; s < config.sublayers(); ++s) {
    std::vector<TraceSeries> kept;
    for (const TokenSeries& series : probe->series(s)) {
      TraceSeries copy{series.name, series.per_token, series.low, series.high, {}};
      for (Index n = 0; n < N; ++n)
        copy.value_NP.insert(copy.value_NP.end(), series.values + n * series.stride,
                             series.values + n * series.stride + series.per_token);
      kept.push_back(std::move(copy));
    }
    trace.by_sublayer.push_back(std::move(kept));
  }
  return trace;
}

}  // namespace ddl
