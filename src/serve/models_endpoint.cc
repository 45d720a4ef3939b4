// GET /v1/models, /v1/models/NAME, /health, /metrics
#include <string>
#include <string_view>

#include "core/error.h"
#include "serve/access.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

std::string prometheus(const ComputeThread::Load& load, int connections) {
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    text += fmt::format("# HELP ddl_{0} {2}\n# TYPE ddl_{0} {1}\nddl_{0} {3}\n", name, type, help, value);
  };
  add("connections", "gauge", "Open connections", connections);
  add("requests_queued", "gauge", "Requests that wait for a place", load.queued);
  add("requests_scoring", "gauge", "Requests whose prompts are being scored or looked into", load.slicing);
  add("sequences_live", "gauge", "Texts that are being written", load.live);
  add("sequences_waiting", "gauge", "Texts that wait for a slot", load.waiting);
  add("prompt_tokens_total", "counter", "Tokens of prompts that were read", load.prompt_tokens);
  add("generated_tokens_total", "counter", "Tokens that were generated", load.new_tokens);
  add("steps_total", "counter", "Steps of the decoders", load.steps);
  return text;
}

}  // namespace

void add_models(Router& router, ModelShelf& models, ComputeThread& compute,
                std::function<int()> connections) {
  router.add("GET", "/v1/models", Router::On::kWorker,
             [&models](const HttpRequest&, const HttpReplyPtr& reply) { send_json(reply, models.list()); });
  router.add("GET", "/v1/models/", Router::On::kWorker,
             [&models](const HttpRequest& request, const HttpReplyPtr& reply) {
               const std::string name = request.path.substr(std::string_view("/v1/models/").size());
               const Json list = models.list();
               for (const Json& model : list["data"])
                 if (model["id"] == name) return send_json(reply, model);
               throw ApiError(404, "there is no such model; GET /v1/models lists them", "model",
                              "model_not_found");
             });
  router.add("GET", "/health", Router::On::kConnections,
             [&models](const HttpRequest&, const HttpReplyPtr& reply) {
               if (!models.loading()) return send_json(reply, Json{{"status", "ok"}});
               reply->send(error_response(503, "the models are being loaded", "", "loading"));
             });
  router.add("GET", "/metrics", Router::On::kConnections,
             [&compute, connections](const HttpRequest&, const HttpReplyPtr& reply) {
               reply->send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                            .body = prometheus(compute.load(), connections())});
             });
}

}  // namespace ddl
