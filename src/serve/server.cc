#include "serve/server.h"

#include <utility>

#include "core/error.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

// As an address has it: "[::1]".
std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

HttpOptions with_own_host(HttpOptions http) {
  http.access.allow_hosts.push_back(bracketed(http.host));
  return http;
}

}  // namespace

void check_address(const HttpOptions& http) {
  if (!is_loopback(http.host) && http.access.api_key.empty())
    throw UserError(
        "--host {}: others could reach this server, so it needs a key: put one in a file and name it with "
        "--api-key-file, or set DDL_API_KEY",
        http.host);
}

Server::Server(const ServeOptions& options, const Exec& ex)
    : options_((check_address(options.http), options)),
      runs_(options.watch),
      reports_(options.watch),
      models_(options.models, ex),
      compute_(std::make_unique<ComputeThread>(ex)),
      worker_(std::make_unique<Worker>()),
      router_(std::make_unique<Router>(*worker_)) {
  add_page(*router_);
  add_runs(*router_, runs_);
  add_reports(*router_, runs_, reports_);
  add_completions(*router_, models_, *compute_);
  add_chat(*router_, models_, *compute_);
  add_embeddings(*router_, models_, *compute_);
  add_trace(*router_, models_, *compute_);
  add_tokenize(*router_, models_);
  add_models(*router_, models_, *compute_, [this] { return http_->connections(); });
  http_ = std::make_unique<HttpServer>(
      with_own_host(options_.http),
      [this](HttpRequest request, const HttpReplyPtr& reply) { router_->handle(std::move(request), reply); });
  http_->run();
}

// Connections first: nothing new comes, and what is still being computed goes nowhere. While they end, handlers
// still ask http_, so it is there until they have.
Server::~Server() {
  http_->end();
  http_.reset();
  worker_.reset();
  compute_.reset();
}

std::string Server::address() const {
  return fmt::format("http://{}:{}", bracketed(options_.http.host), port());
}

}  // namespace ddl
