// POST /v1/embeddings: the mean over the tokens of what the head reads, scaled to length 1.
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base64.h"
#include "core/error.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxInputs = 64;

struct Embedding {
  ServedModelPtr model;
  std::string model_name;
  std::vector<std::vector<std::int32_t>> inputs;
  bool base64 = false;
  std::vector<std::vector<float>> results;

  // One input; true where there are more.
  bool embed_next(const Exec& ex) {
    const std::vector<std::int32_t>& tokens = inputs[results.size()];
    const Index C = model->config().width, count = std::ssize(tokens), S = model->config().sublayers();
    Probe& probe = model->probe(count, ex);
    std::vector<std::int32_t> padded = tokens, targets(static_cast<std::size_t>(probe.shape().T), -1);
    padded.resize(static_cast<std::size_t>(probe.shape().T), tokens.back());
    targets[0] = tokens[0];  // a pass needs something to predict
    std::vector<double> sum(static_cast<std::size_t>(C), 0.0);
    probe.watch(
        {padded.data(), targets.data()}, {},
        [&](const Probe::Depth& depth) {
          if (depth.s != S) return;
          for (Index t = 0; t < count; ++t)
            for (Index c = 0; c < C; ++c) sum[c] += depth.context_NC[t * C + c];
        },
        ex);
    double square = 0;
    for (const double x : sum) square += x * x;
    std::vector<float> unit;
    for (const double x : sum) unit.push_back(static_cast<float>(square > 0 ? x / std::sqrt(square) : 0));
    results.push_back(std::move(unit));
    return results.size() < inputs.size();
  }

  Json json() const {
    static_assert(std::endian::native == std::endian::little);
    Json data = Json::array();
    Index tokens = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      tokens += std::ssize(inputs[i]);
      Json entry{{"object", "embedding"}, {"index", i}};
      if (base64)
        entry["embedding"] = encode_base64(
            {reinterpret_cast<const char*>(results[i].data()), results[i].size() * sizeof(float)});
      else
        entry["embedding"] = results[i];
      data.push_back(std::move(entry));
    }
    return Json{{"object", "list"},
                {"data", std::move(data)},
                {"model", model_name},
                {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  }
};

std::shared_ptr<Embedding> read_embedding(const std::string& body, ModelShelf& models) {
  RequestFields fields(body);
  auto request = std::make_shared<Embedding>();
  request->model_name = fields.text("model", "");
  request->model = models.find(request->model_name);
  if (request->model_name.empty()) request->model_name = request->model->name();
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64") fields.fail("encoding_format", "\"float\" or \"base64\"");
  request->base64 = format == "base64";
  if (fields.find("dimensions") &&
      fields.whole("dimensions", 1, 1, 1 << 20) != request->model->config().width)
    fields.fail("dimensions", fmt::format("{}, the model's width", request->model->config().width));
  const Json& input = fields.required("input");
  const char* expected = "a string, a list of strings, a list of token numbers, or a list of such lists";
  const auto add = [&](const Json& each) {
    std::vector<std::int32_t> tokens = each.is_string()
                                           ? request->model->encode(each.get<std::string>(), true)
                                           : fields.tokens("input", each, expected);
    check_prompt({"", std::make_shared<const std::vector<std::int32_t>>(tokens), 0}, *request->model,
                 "input");
    request->inputs.push_back(std::move(tokens));
  };
  if (input.is_string() || (input.is_array() && !input.empty() && input[0].is_number())) {
    add(input);
  } else {
    if (!input.is_array() || input.empty() || input.size() > kMaxInputs)
      fields.fail("input", fmt::format("{}; at most {}", expected, kMaxInputs));
    for (const Json& each : input) add(each);
  }
  fields.ignore({"user"});
  fields.finish();
  return request;
}

}  // namespace

void add_embeddings(Router& router, ModelShelf& models, ComputeThread& compute) {
  router.add("POST", "/v1/embeddings", Router::On::kWorker,
             [&](const HttpRequest& request, const HttpReplyPtr& reply) {
               const auto embedding = read_embedding(request.body, models);
               submit_or_refuse(compute, {.model = embedding->model,
                                          .slice =
                                              [embedding, reply](const Exec& ex) {
                                                if (embedding->embed_next(ex)) return true;
                                                send_json(reply, embedding->json());
                                                return false;
                                              },
                                          .sequences = {},
                                          .abandoned = [reply] { return reply->gone(); },
                                          .failed =
                                              [reply](const std::exception& error) {
                                                reply->send(error_response(500, error.what()));
                                              }});
             });
}

}  // namespace ddl
