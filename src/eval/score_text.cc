#include "eval/score_text.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "eval/request.h"
#include "eval/rolling_windows.h"
#include "infer/trace.h"
#include "model/engine.h"

namespace ddl {
namespace {

// The order of likelihood, the same as NextToken::is_most_likely's.
bool before(std::span<const float> logits_V, Index a, Index b) {
  return logits_V[a] != logits_V[b] ? logits_V[a] > logits_V[b] : a < b;
}

std::vector<GateValues> gates_at(const Trace& trace, Index n) {
  std::vector<GateValues> gates;
  for (const std::vector<TraceSeries>& sublayer : trace.by_sublayer)
    for (const TraceSeries& series : sublayer) {
      if (!series.is_gate()) continue;
      auto at = std::ranges::find(gates, series.name, &GateValues::name);
      if (at == gates.end()) at = gates.insert(at, {series.name, {}});
      at->value_S.push_back(series.value_NP[n]);
    }
  return gates;
}

}  // namespace

Index rank_of(const NextToken& next, std::int32_t token) {
  Index rank = 1;
  for (Index v = 0; v < std::ssize(next.logits_V); ++v) rank += before(next.logits_V, v, token);
  return rank;
}

std::vector<std::int32_t> most_likely(std::span<const float> logits_V, Index count) {
  const auto first = [&](std::int32_t a, std::int32_t b) { return before(logits_V, a, b); };
  std::vector<std::int32_t> best;  // a heap with the least likely in front, which leaves next
  for (std::int32_t v = 0; count > 0 && v < std::ssize(logits_V); ++v) {
    if (std::ssize(best) == count) {
      if (!first(v, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), first);
      best.pop_back();
    }
    best.push_back(v);
    std::push_heap(best.begin(), best.end(), first);
  }
  std::sort_heap(best.begin(), best.end(), first);
  return best;
}

std::vector<LikelyToken> most_likely(const NextToken& next, Index count) {
  std::vector<LikelyToken> best;
  for (const std::int32_t token : most_likely(next.logits_V, count))
    best.push_back({token, next.log_probability(token)});
  return best;
}

void score_text(const Weights& weights, std::span<const std::int32_t> tokens, const ScoreTextOptions& options,
                FunctionRef<void(const ScoredToken&)> scored, const Exec& ex) {
  const ModelConfig& config = weights.config();
  if (tokens.size() < 2)
    throw UserError(
        "{} token(s): expected at least two, of which the first is read and the others are scored",
        tokens.size());
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= config.vocab)
      throw UserError("token {} is not in the model's vocabulary of {}", token, config.vocab);
  const auto tree = make_tree_scorer(weights, {}, ex);
  std::optional<Weights> unpacked;  // a trace reads f32 weights
  if (options.gates && weights.packed()) unpacked = to_format(weights, WeightFormat::kF32, ex);
  const Weights& traced = unpacked ? *unpacked : weights;
  Index position = 1;
  const auto score_window = [&](const ScoreRequest& window) {
    std::vector<std::int32_t> input = window.context;
    input.insert(input.end(), window.continuation.begin(), window.continuation.end() - 1);
    const Index first = std::ssize(window.context) - 1;  // the input that predicts the first scored token
    std::optional<Trace> trace;
    if (options.gates) {
      trace = trace_tokens(traced, input, ex);
      if (gates_at(*trace, 0).empty())
        throw UserError("the residual rule {} has no gates", config.residual());
    }
    const TreeRun run{.depth = 0, .position = 0, .tokens = input, .first_wanted = first};
    tree->run(
        {&run, 1},
        [&](Index, Index n, const NextToken& next) {
          ScoredToken token;
          token.token = window.continuation[n - first];
          token.log_probability = next.log_probability(token.token);
          token.position = position++;
          token.rank = rank_of(next, token.token);
          token.best = most_likely(next, options.best);
          if (trace) token.gates = gates_at(*trace, n);
          scored(token);
        },
        ex);
  };
  RollingWindows windows(tokens[0], config.context);
  for (const std::int32_t token : tokens.subspan(1)) windows.add(token, score_window);
  windows.finish(score_window);
}

}  // namespace ddl
