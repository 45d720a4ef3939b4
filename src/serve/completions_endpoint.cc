// POST /v1/completions
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "infer/text_stream.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxPrompts = 64;
constexpr Index kMaxTexts = 64, kMaxLogprobs = 5;
constexpr const char* kFormsOfPrompt =
    "a string, a list of strings, a list of token numbers, or a list of such lists";

// A string, [string], [int] or [[int]].
std::vector<Prompt> read_prompts(RequestFields& fields, const ServedModel& model) {
  const bool special = fields.flag("add_special_tokens", true);
  const auto from_text = [&](const std::string& text) {
    const std::vector<std::int32_t> tokens = model.encode(text, special);
    // The text as its tokens have it, which may be normalised: text_offset counts in what is echoed.
    const std::vector<TokenId> ids(tokens.begin() + (special ? 1 : 0), tokens.end());
    return Prompt{to_valid_utf8(model.tokenizer().decode(ids)),
                  std::make_shared<const std::vector<std::int32_t>>(tokens), special ? 1 : 0};
  };
  const auto from_tokens = [&](const Json& list) {
    const std::vector<std::int32_t> tokens = fields.tokens("prompt", list, kFormsOfPrompt);
    const std::vector<TokenId> ids(tokens.begin(), tokens.end());
    return Prompt{to_valid_utf8(model.tokenizer().decode(ids)),
                  std::make_shared<const std::vector<std::int32_t>>(tokens), 0};
  };
  const Json& prompt = fields.required("prompt");
  if (prompt.is_string()) return {from_text(prompt.get<std::string>())};
  if (!prompt.is_array() || prompt.empty()) fields.fail("prompt", kFormsOfPrompt);
  if (prompt[0].is_number()) return {from_tokens(prompt)};
  if (prompt.size() > kMaxPrompts)
    throw ApiError(400, fmt::format("prompt: at most {} prompts, found {}", kMaxPrompts, prompt.size()),
                   "prompt", "invalid_value");
  std::vector<Prompt> prompts;
  for (const Json& each : prompt) {
    if (each.is_string() && prompt[0].is_string())
      prompts.push_back(from_text(each.get<std::string>()));
    else if (each.is_array() && prompt[0].is_array())
      prompts.push_back(from_tokens(each));
    else
      fields.fail("prompt", kFormsOfPrompt);
  }
  return prompts;
}

CompletionRequest read_completion(const std::string& body, ModelShelf& models) {
  RequestFields fields(body);
  CompletionRequest request;
  request.model_name = fields.text("model", "");
  request.model = models.find(request.model_name);
  if (request.model_name.empty()) request.model_name = request.model->name();
  request.prompts = read_prompts(fields, *request.model);
  for (const Prompt& prompt : request.prompts) check_prompt(prompt, *request.model, "prompt");
  request.max_tokens = fields.whole("max_tokens", 16, 0, 1 << 20);
  request.echo = fields.flag("echo", false);
  if (request.max_tokens == 0 && !request.echo)
    throw ApiError(400, "max_tokens: 0 makes sense with \"echo\": true only", "max_tokens", "invalid_value");
  request.logprobs = fields.whole("logprobs", -1, 0, kMaxLogprobs);
  read_sampling(fields, request);
  if (request.n * std::ssize(request.prompts) > kMaxTexts)
    throw ApiError(400,
                   fmt::format("n: {} texts for each of {} prompts are more than {}", request.n,
                               request.prompts.size(), kMaxTexts),
                   "n", "invalid_value");
  if (fields.find("best_of") && fields.whole("best_of", 1, 1, 1 << 20) != request.n)
    throw ApiError(400, "best_of: expected what n is; more is not supported", "best_of",
                   "unsupported_parameter");
  if (!fields.text("suffix", "").empty()) fields.refuse({"suffix"});
  fields.finish();
  return request;
}

}  // namespace

void add_completions(Router& router, ModelShelf& models, ComputeThread& compute) {
  router.add("POST", "/v1/completions", Router::On::kWorker,
             [&](const HttpRequest& request, const HttpReplyPtr& reply) {
               start_completion(read_completion(request.body, models), reply, compute);
             });
}

}  // namespace ddl
