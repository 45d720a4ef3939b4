// POST /v1/ddl/trace: what the residual rule does with every token of a text at every sublayer, and, where one of its
// series is held at a value (a clamp), what becomes of the text's probabilities and of its continuation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "infer/text_stream.h"
#include "model/engine.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr Index kMaxNew = 64, kBest = 5;

// One request: a pass over its text, and a pass more for every token that is to be added.
struct TraceRequest {
  ServedModelPtr model;
  std::string model_name;
  std::vector<std::int32_t> tokens;
  Index prompt_tokens = 0, max_tokens = 0;
  SamplerOptions sampling;
  std::optional<Sampler> sampler;
  std::optional<Replacement> clamp;
  std::set<std::string> wanted;         // series; none: all
  std::vector<EchoedToken> new_tokens;  // with the best of each
  std::vector<float> loss_N;            // of the last pass

  bool end_of_text() const {
    return std::ssize(tokens) > prompt_tokens &&
           static_cast<TokenId>(tokens.back()) == model->tokenizer().end_of_text();
  }

  // One pass over what there is, and a token more where one is to be added; otherwise the result.
  std::optional<Json> step(const Exec& ex) {
    Probe& probe = model->probe(std::ssize(tokens), ex);
    pass(probe, ex);
    probe.replace(nullptr);  // others use it, too
    const Index count = std::ssize(tokens);
    if (count - prompt_tokens >= max_tokens || count >= model->context() || end_of_text()) return json(probe);
    add_token(probe.logits(count - 1, ex));
    return std::nullopt;
  }

  void pass(Probe& probe, const Exec& ex) {
    const Index count = std::ssize(tokens), T = probe.shape().T;
    if (clamp && !probe.replace(&*clamp))
      throw ApiError(400,
                     fmt::format("clamp: {} has no series '{}' of {} numbers that can be replaced",
                                 model->config().residual(), clamp->series, clamp->values.size()),
                     "clamp", "invalid_value");
    std::vector<std::int32_t> padded = tokens, targets(static_cast<std::size_t>(T), -1);
    std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
    targets[count - 1] = tokens[0];  // a pass needs something to predict, and a text may be one token
    padded.resize(static_cast<std::size_t>(T), tokens.back());
    loss_N.assign(static_cast<std::size_t>(T), 0);
    probe.loss({padded.data(), targets.data()}, {.loss_N = loss_N.data()}, ex);
  }

  void add_token(const std::vector<float>& logits) {
    if (!sampler) sampler.emplace(sampling, 0);
    const auto known =
        static_cast<std::size_t>(std::min(model->tokenizer().vocab_size(), std::ssize(logits)));
    const std::int32_t token = sampler->next(std::span(logits).first(known), tokens);
    tokens.push_back(token);
    new_tokens.push_back({token, score_token(next_token(logits), token, kBest)});
  }

  Json json(Probe& probe) const {
    const Index count = std::ssize(tokens);
    Json json{{"object", "ddl.trace"}, {"model", model_name}, {"residual", model->config().residual()}};
    json["prompt_tokens"] = prompt_tokens;
    json["clamp"] = nullptr;
    if (clamp)
      json["clamp"] = {{"sublayer", clamp->sublayer}, {"series", clamp->series}, {"values", clamp->values}};
    Json list = Json::array();
    for (Index t = 0; t < count; ++t)
      list.push_back({{"id", tokens[t]},
                      {"text", model->token_text(tokens[t])},
                      {"logprob", t == 0 ? Json() : Json(-static_cast<double>(loss_N[t - 1]))}});
    json["tokens"] = std::move(list);
    std::vector<TokenId> ids(tokens.begin() + prompt_tokens, tokens.end());
    Index offset = 0;
    json["completion"] = {{"text", to_valid_utf8(model->tokenizer().decode(ids))},
                          {"logprobs", logprobs_json(*model, new_tokens, offset)}};
    json["sublayers"] = Json::array();
    for (Index s = 0; s < model->config().sublayers(); ++s)
      json["sublayers"].push_back(sublayer_json(s, probe.series(s), count));
    return json;
  }

  Json sublayer_json(Index s, const std::vector<TokenSeries>& all, Index count) const {
    Json json{{"sublayer", s}, {"kind", s % 2 == 0 ? "attention" : "mlp"}, {"series", Json::object()}};
    for (const TokenSeries& each : all) {
      if (!wanted.empty() && !wanted.contains(each.name)) continue;
      Json values = Json::array();
      for (Index n = 0; n < count; ++n) {
        const float* at = each.values + n * each.stride;
        if (each.per_token == 1)
          values.push_back(at[0]);
        else
          values.push_back(std::vector<float>(at, at + each.per_token));
      }
      json["series"][each.name]["values"] = std::move(values);
      if (each.high > each.low) json["series"][each.name]["range"] = {each.low, each.high};
    }
    const TokenSeries *gate = find_series(all, SeriesRole::kGate),
                      *target = find_series(all, SeriesRole::kTarget),
                      *readout = find_series(all, SeriesRole::kReadout);
    if (!gate || !target || !readout || target->per_token != readout->per_token) return json;
    // Before the write |v - r|, mean over the channels; |1 - beta| of it is left.
    Json before = Json::array(), after = Json::array();
    for (Index n = 0; n < count; ++n) {
      double sum = 0;
      for (Index d = 0; d < target->per_token; ++d)
        sum += std::abs(static_cast<double>(target->values[n * target->stride + d]) -
                        static_cast<double>(readout->values[n * readout->stride + d]));
      sum /= static_cast<double>(target->per_token);
      before.push_back(sum);
      after.push_back(sum * std::abs(1 - static_cast<double>(gate->values[n * gate->stride])));
    }
    json["discrepancy_before"] = std::move(before);
    json["discrepancy_after"] = std::move(after);
    return json;
  }
};

std::optional<Replacement> read_clamp(RequestFields& fields, const ServedModel& model) {
  const Json* json = fields.find("clamp");
  if (!json) return std::nullopt;
  RequestFields inner(*json, "clamp.");
  Replacement clamp;
  inner.required("sublayer");
  clamp.sublayer = inner.whole("sublayer", 0, 0, model.config().sublayers() - 1);
  clamp.series = inner.text("series", "gate");
  const Json& value = inner.required("value");
  const auto add = [&](const Json& each) {
    if (!each.is_number() || !(std::abs(each.get<double>()) <= 1e6))
      inner.fail("value", "a number, or a list of numbers");
    clamp.values.push_back(each.get<float>());
  };
  if (value.is_array() && value.size() <= 4096)
    for (const Json& each : value) add(each);
  else
    add(value);
  inner.finish();
  return clamp;
}

std::shared_ptr<TraceRequest> read_trace(const std::string& body, ModelShelf& models) {
  RequestFields fields(body);
  auto trace = std::make_shared<TraceRequest>();
  trace->model_name = fields.text("model", "");
  trace->model = models.find(trace->model_name);
  if (trace->model_name.empty()) trace->model_name = trace->model->name();
  if (!find_engine(trace->model->config().engine).can_be_watched())
    throw ApiError(400, "only models of the native engine can be looked into", "model",
                   "unsupported_parameter");
  const bool special = fields.flag("add_special_tokens", true);
  const Json& prompt = fields.required("prompt");
  trace->tokens = prompt.is_string()
                      ? trace->model->encode(prompt.get<std::string>(), special)
                      : fields.tokens("prompt", prompt, "a string, or a list of token numbers");
  check_prompt({"", std::make_shared<const std::vector<std::int32_t>>(trace->tokens), 0}, *trace->model,
               "prompt");
  trace->prompt_tokens = std::ssize(trace->tokens);
  trace->max_tokens = fields.whole("max_tokens", 0, 0, kMaxNew);
  trace->sampling.temperature = fields.number("temperature", 0, 0, 2);
  trace->sampling.top_p = read_top_p(fields);
  trace->sampling.seed =
      static_cast<std::uint64_t>(fields.whole("seed", 0, 0, std::numeric_limits<Index>::max()));
  trace->clamp = read_clamp(fields, *trace->model);
  if (const Json* series = fields.find("series")) {
    if (!series->is_array() || series->size() > 100) fields.fail("series", "a list of names");
    for (const Json& name : *series) {
      if (!name.is_string()) fields.fail("series", "a list of names");
      trace->wanted.insert(name.get<std::string>());
    }
  }
  fields.finish();
  return trace;
}

}  // namespace

void add_trace(Router& router, ModelShelf& models, ComputeThread& compute) {
  router.add("POST", "/v1/ddl/trace", Router::On::kWorker,
             [&](const HttpRequest& request, const HttpReplyPtr& reply) {
               const auto trace = read_trace(request.body, models);
               ComputeJob job;
               job.model = trace->model;
               job.slice = [trace, reply](const Exec& ex) {
                 const auto result = trace->step(ex);
                 if (result) send_json(reply, *result);
                 return !result;
               };
               job.abandoned = [reply] { return reply->gone(); };
               job.failed = [trace, reply](const std::exception& error) {
                 const auto* known = dynamic_cast<const ApiError*>(&error);
                 reply->send(known ? known->response() : error_response(500, error.what()));
               };
               submit_or_refuse(compute, std::move(job));
             });
}

}  // namespace ddl
