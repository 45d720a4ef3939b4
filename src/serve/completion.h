// A completion under way, for /v1/completions and /v1/chat/completions alike: prompts are scored where log-probabilities
// of the echo are asked for, texts are generated, and the answer is put together, whole or as a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "infer/sampler.h"
#include "serve/compute_thread.h"
#include "serve/http.h"
#include "serve/model_shelf.h"
#include "serve/request_fields.h"
#include "serve/served_model.h"

namespace ddl {

struct Prompt {
  std::string text;  // as it is echoed
  std::shared_ptr<const std::vector<std::int32_t>> tokens;
  Index hidden = 0;  // tokens in front that are not echoed: end-of-text before a text
};

struct CompletionRequest {
  ServedModelPtr model;
  std::string model_name;  // as it was asked for
  std::vector<Prompt> prompts;
  Index n = 1;
  Index max_tokens = 16;
  SamplerOptions sampling;
  std::vector<std::string> stops;
  Index logprobs = -1;  // so many best tokens with each; -1: none at all
  bool echo = false, stream = false, include_usage = false;
  bool chat = false;
};

// The fields that both endpoints share: n, temperature, top_p, seed, penalties, logit_bias, stop, stream, ...
void read_sampling(RequestFields& fields, CompletionRequest& request);
double read_top_p(RequestFields& fields);
// Throws ApiError 400 context_length_exceeded where a prompt does not fit, and where one is empty or not of the vocabulary.
void check_prompt(const Prompt& prompt, const ServedModel& model, const std::string& param);

// A token with its log-probability; none where nothing is before it.
struct EchoedToken {
  std::int32_t token = 0;
  std::optional<TokenScore> score;
};

struct Choice {
  Index index = 0;
  std::string text;
  std::vector<EchoedToken> tokens;
  const char* finish_reason = nullptr;  // null: under way
  Index offset = 0;                     // in characters: where the next token begins
};

// What the two endpoints write differently (completion_json.cc).
// The first token begins at `offset`, which then is where the last one ends.
Json logprobs_json(const ServedModel& model, const std::vector<EchoedToken>& tokens, Index& offset);
Json chat_logprobs_json(const ServedModel& model, const std::vector<EchoedToken>& tokens);

// Begins, or answers 429.
void start_completion(CompletionRequest request, const HttpReplyPtr& reply, ComputeThread& compute);

std::string random_id(const std::string& prefix);
std::uint64_t random_seed();

}  // namespace ddl
