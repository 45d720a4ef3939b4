// Log-probabilities as OpenAI's clients expect them.
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "serve/completion.h"

namespace ddl {
namespace {

Json bytes_json(const ServedModel& model, std::int32_t token) {
  const TokenId id = static_cast<TokenId>(token);
  Json bytes = Json::array();
  for (const char c : model.tokenizer().decode({&id, 1})) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Index count_characters(std::string_view text) {  // of UTF-8
  Index count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

// tokens, token_logprobs, top_logprobs, text_offset: four lists of one length. top_logprobs holds the best tokens and
// the actual one; of two tokens with one text the second has its number.
Json logprobs_json(const ServedModel& model, const std::vector<EchoedToken>& tokens, Index& offset) {
  Json names = Json::array(), own = Json::array(), top = Json::array(), offsets = Json::array();
  for (const EchoedToken& each : tokens) {
    const std::string text = model.token_text(each.token);
    names.push_back(text);
    offsets.push_back(offset);
    const TokenId id = static_cast<TokenId>(each.token);
    offset += count_characters(model.tokenizer().decode({&id, 1}));
    if (!each.score) {
      own.push_back(nullptr), top.push_back(nullptr);
      continue;
    }
    own.push_back(each.score->log_probability);
    Json best = Json::object();
    best[text] = each.score->log_probability;
    for (const auto& [token, log_probability] : each.score->best) {
      if (token == each.token) continue;
      std::string key = model.token_text(token);
      if (best.contains(key)) key = fmt::format("token:{}", token);
      best[key] = log_probability;
    }
    top.push_back(std::move(best));
  }
  return Json{{"tokens", std::move(names)},
              {"token_logprobs", std::move(own)},
              {"top_logprobs", std::move(top)},
              {"text_offset", std::move(offsets)}};
}

Json chat_logprobs_json(const ServedModel& model, const std::vector<EchoedToken>& tokens) {
  Json content = Json::array();
  for (const EchoedToken& each : tokens) {
    if (!each.score) continue;
    const auto entry = [&](std::int32_t token, double log_probability) {
      return Json{{"token", model.token_text(token)},
                  {"logprob", log_probability},
                  {"bytes", bytes_json(model, token)}};
    };
    Json json = entry(each.token, each.score->log_probability);
    json["top_logprobs"] = Json::array();
    for (const auto& [token, log_probability] : each.score->best)
      json["top_logprobs"].push_back(entry(token, log_probability));
    content.push_back(std::move(json));
  }
  return Json{{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace ddl
