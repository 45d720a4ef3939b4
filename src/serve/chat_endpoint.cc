// POST /v1/chat/completions: a conversation in one plain format, for models that were trained on text alone.
//   SYSTEM\n\nUser: ...\n\nAssistant: ...\n\nUser: ...\n\nAssistant:
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxMessages = 1024;
constexpr Index kMaxTopLogprobs = 20;
constexpr const char* kEndOfTurn = "\n\nUser:";

// A string, or a list of {"type": "text", "text": ...}.
std::string content_of(RequestFields& message, const std::string& where) {
  const Json& content = message.required("content");
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array())
    message.fail("content", "a string, or a list of {\"type\": \"text\", \"text\": ...}");
  for (std::size_t i = 0; i < content.size(); ++i) {
    RequestFields part(content[i], fmt::format("{}content[{}].", where, i));
    if (part.text("type", "") != "text") part.fail("type", "\"text\"");
    if (!part.required("text").is_string()) part.fail("text", "a string");
    text += part.text("text", "");
    part.finish();
  }
  return text;
}

std::string conversation(RequestFields& fields) {
  const Json& messages = fields.required("messages");
  if (!messages.is_array() || messages.empty() || messages.size() > kMaxMessages)
    fields.fail("messages", fmt::format("a list of 1 to {} messages", kMaxMessages));
  std::string text;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}].", i);
    RequestFields message(messages[i], where);
    const std::string role = message.text("role", "");
    const std::string content = content_of(message, where);
    if (role == "system" || role == "developer")
      text += content + "\n\n";
    else if (role == "user")
      text += "User: " + content + "\n\n";
    else if (role == "assistant")
      text += "Assistant: " + content + "\n\n";
    else
      message.fail("role", "\"system\", \"developer\", \"user\" or \"assistant\"");
    message.ignore({"name"});
    message.refuse({"tool_calls", "function_call", "tool_call_id", "audio"});
    message.ignore({"refusal"});
    message.finish();
  }
  return text + "Assistant:";
}

CompletionRequest read_chat(const std::string& body, ModelShelf& models) {
  RequestFields fields(body);
  CompletionRequest request;
  request.chat = true;
  request.model_name = fields.text("model", "");
  request.model = models.find(request.model_name);
  if (request.model_name.empty()) request.model_name = request.model->name();
  const std::string text = conversation(fields);
  request.prompts = {
      {text, std::make_shared<const std::vector<std::int32_t>>(request.model->encode(text, true)), 1}};
  check_prompt(request.prompts[0], *request.model, "messages");
  const Index rest = request.model->context() - std::ssize(*request.prompts[0].tokens) + 1;
  const Index old_name = fields.whole("max_tokens", rest, 1, 1 << 20);
  request.max_tokens = fields.whole("max_completion_tokens", old_name, 1, 1 << 20);
  const bool logprobs = fields.flag("logprobs", false);
  const Index top = fields.whole("top_logprobs", 0, 0, kMaxTopLogprobs);
  if (top > 0 && !logprobs) fields.fail("top_logprobs", "nothing without \"logprobs\": true");
  request.logprobs = logprobs ? top : -1;
  read_sampling(fields, request);
  request.stops.push_back(kEndOfTurn);
  if (const Json* format = fields.find("response_format"))
    if (!format->is_object() || format->value("type", Json()) != "text") fields.refuse({"response_format"});
  fields.refuse({"tools", "tool_choice", "functions", "function_call", "audio", "modalities", "prediction",
                 "reasoning_effort", "verbosity", "web_search_options"});
  fields.ignore({"parallel_tool_calls"});
  fields.finish();
  return request;
}

}  // namespace

void add_chat(Router& router, ModelShelf& models, ComputeThread& compute) {
  router.add("POST", "/v1/chat/completions", Router::On::kWorker,
             [&](const HttpRequest& request, const HttpReplyPtr& reply) {
               start_completion(read_chat(request.body, models), reply, compute);
             });
}

}  // namespace ddl
