// The fields of a request that say how text is made.
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/error.h"
#include "serve/api_error.h"
#include "serve/completion.h"

namespace ddl {
namespace {

constexpr Index kMaxChoices = 16, kMaxStops = 4;
constexpr std::size_t kMaxStopBytes = 64, kMaxBiases = 1024;

std::vector<std::string> read_stops(RequestFields& fields) {
  const Json* stop = fields.find("stop");
  if (!stop) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Json& each) {
    if (!each.is_string() || each.get<std::string>().empty() ||
        each.get<std::string>().size() > kMaxStopBytes)
      fields.fail("stop", fmt::format("at most {} strings of 1 to {} bytes", kMaxStops, kMaxStopBytes));
    stops.push_back(each.get<std::string>());
  };
  if (!stop->is_array()) {
    add(*stop);
    return stops;
  }
  if (std::ssize(*stop) > kMaxStops)
    fields.fail("stop", fmt::format("at most {} strings of 1 to {} bytes", kMaxStops, kMaxStopBytes));
  for (const Json& each : *stop) add(each);
  return stops;
}

void read_logit_bias(RequestFields& fields, SamplerOptions& sampling, Index vocab) {
  const Json* biases = fields.find("logit_bias");
  if (!biases) return;
  const std::string expected =
      fmt::format("an object of at most {} members, token numbers below {} to numbers from -100 to 100",
                  kMaxBiases, vocab);
  if (!biases->is_object() || biases->size() > kMaxBiases) fields.fail("logit_bias", expected);
  for (const auto& [key, value] : biases->items()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stol(key) >= vocab || !value.is_number() || !(std::abs(value.get<double>()) <= 100))
      fields.fail("logit_bias", expected);
    sampling.logit_bias.emplace_back(static_cast<std::int32_t>(std::stol(key)), value.get<double>());
  }
}

}  // namespace

std::uint64_t random_seed() {
  static thread_local std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::string random_id(const std::string& prefix) { return fmt::format("{}-{:016x}", prefix, random_seed()); }

double read_top_p(RequestFields& fields) {
  const double top_p = fields.number("top_p", 1, 0, 1);
  return top_p == 0 ? 1e-9 : top_p;  // OpenAI's range includes 0: the most likely token alone
}

void read_sampling(RequestFields& fields, CompletionRequest& request) {
  request.n = fields.whole("n", 1, 1, kMaxChoices);
  SamplerOptions& sampling = request.sampling;
  sampling.temperature = fields.number("temperature", 1, 0, 2);
  sampling.top_p = read_top_p(fields);
  sampling.top_k = fields.whole("top_k", 0, 0, 1 << 20);
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  sampling.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  sampling.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  constexpr Index kMost = std::numeric_limits<Index>::max();
  sampling.seed = fields.find("seed") ? static_cast<std::uint64_t>(fields.whole("seed", 0, -kMost - 1, kMost))
                                      : random_seed();
  read_logit_bias(fields, sampling, request.model->config().vocab);
  request.stops = read_stops(fields);
  request.stream = fields.flag("stream", false);
  if (const Json* options = fields.find("stream_options")) {
    if (!request.stream) fields.fail("stream_options", "nothing without \"stream\": true");
    RequestFields inner(*options, "stream_options.");
    request.include_usage = inner.flag("include_usage", false);
    inner.ignore({"include_obfuscation"});
    inner.finish();
  }
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

void check_prompt(const Prompt& prompt, const ServedModel& model, const std::string& param) {
  const Index count = std::ssize(*prompt.tokens);
  if (count == 0)
    throw ApiError(400, fmt::format("{}: a prompt needs at least one token", param), param, "invalid_value");
  if (count > model.context())
    throw ApiError(
        400,
        fmt::format("this model's maximum context length is {} tokens, and the prompt has {}; shorten it",
                    model.context(), count),
        param, "context_length_exceeded");
  for (const std::int32_t token : *prompt.tokens)
    if (token < 0 || token >= model.config().vocab)
      throw ApiError(400,
                     fmt::format("{}: token {} is not in the model's vocabulary of {}", param, token,
                                 model.config().vocab),
                     param, "invalid_value");
}

}  // namespace ddl
