// POST /tokenize, POST /detokenize, GET /tokenizer_info: all that lm-evaluation-harness needs instead of a tokenizer of
// its own.
#include <string>
#include <vector>

#include "core/error.h"
#include "infer/text_stream.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"
#include "serve/request_fields.h"

namespace ddl {

void add_tokenize(Router& router, ModelShelf& models) {
  router.add("POST", "/tokenize", Router::On::kWorker,
             [&models](const HttpRequest& request, const HttpReplyPtr& reply) {
               RequestFields fields(request.body);
               const ServedModelPtr model = models.find(fields.text("model", ""));
               if (!fields.required("prompt").is_string()) fields.fail("prompt", "a string");
               const bool special = fields.flag("add_special_tokens", true);
               const bool texts = fields.flag("return_token_strs", false);
               const std::string text = fields.text("prompt", "");
               // Nothing in a text is a special token; but a client that asks for the number of end-of-text
               // by its name alone (lm-evaluation-harness does) means the token.
               const std::int32_t end = static_cast<std::int32_t>(model->tokenizer().end_of_text());
               const bool is_end = !special && text == model->token_text(end);
               const std::vector<std::int32_t> tokens =
                   is_end ? std::vector<std::int32_t>{end} : model->encode(text, special);
               fields.finish();
               Json json{{"count", tokens.size()}, {"max_model_len", model->context()}, {"tokens", tokens}};
               json["token_strs"] = nullptr;
               if (texts) {
                 json["token_strs"] = Json::array();
                 for (const std::int32_t token : tokens)
                   json["token_strs"].push_back(model->token_text(token));
               }
               send_json(reply, json);
             });
  router.add("POST", "/detokenize", Router::On::kWorker,
             [&models](const HttpRequest& request, const HttpReplyPtr& reply) {
               RequestFields fields(request.body);
               const ServedModelPtr model = models.find(fields.text("model", ""));
               const std::string expected =
                   fmt::format("a list of token numbers below {}", model->config().vocab);
               std::vector<TokenId> ids;
               for (const std::int32_t token : fields.tokens("tokens", fields.required("tokens"), expected)) {
                 if (token >= model->config().vocab) fields.fail("tokens", expected);
                 ids.push_back(static_cast<TokenId>(token));
               }
               fields.finish();
               send_json(reply, Json{{"prompt", to_valid_utf8(model->tokenizer().decode(ids))}});
             });
  router.add("GET", "/tokenizer_info", Router::On::kWorker,
             [&models](const HttpRequest& request, const HttpReplyPtr& reply) {
               const auto names = request.all("model");
               std::string name = names.empty() ? "" : names.back();
               if (name.empty() && !models.names().empty()) name = models.names().front();
               const ServedModelPtr model = models.find(name);
               const std::int32_t end = static_cast<std::int32_t>(model->tokenizer().end_of_text());
               const std::string text = model->token_text(end);
               send_json(reply, Json{{"tokenizer_class", model->tokenizer().name()},
                                     {"vocab_size", model->tokenizer().vocab_size()},
                                     {"model_max_length", model->context()},
                                     {"bos_token", text},
                                     {"eos_token", text},
                                     {"pad_token", text},
                                     {"bos_token_id", end},
                                     {"eos_token_id", end},
                                     {"pad_token_id", end},
                                     {"chat_template", nullptr}});
             });
}

}  // namespace ddl
