#include "serve/server.h"

#include <utility>

#include "core/error.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

HttpOptions with_own_host(HttpOptions http) {
  if (http.host.find(':') == std::string::npos)
    http.gate.allow_hosts.push_back(http.host);
  else
    http.gate.allow_hosts.push_back("[" + http.host + "]");
  return http;
}

}  // namespace

void check_address(const HttpOptions& http) {
  if (!is_loopback(http.host) && http.gate.api_key.empty())
    throw UserError(
        "--host {}: others could reach this server, so it needs a key: put one in a file and name it with "
        "--api-key-file, or set DDL_API_KEY",
        http.host);
}

Server::Server(const ServeOptions& options)
    : options_(options), shelf_(options.watch), worker_(std::make_unique<Worker>()) {
  check_address(options_.http);
  router_ = std::make_unique<Router>(*worker_);
  add_page(*router_);
  add_runs(*router_, shelf_);
  router_->add("GET", "/health", Router::On::kConnections, [](const HttpRequest&, const HttpReplyPtr& reply) {
    send_json(reply, Json{{"status", "ok"}});
  });
  http_ = std::make_unique<HttpServer>(
      with_own_host(options_.http),
      [this](HttpRequest request, HttpReplyPtr reply) { router_->handle(std::move(request), reply); });
}

// Connections first: nothing new comes, and replies of jobs under way go nowhere.
Server::~Server() {
  http_.reset();
  worker_.reset();
}

std::string Server::address() const {
  const std::string& host = options_.http.host;
  return fmt::format("http://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port());
}

}  // namespace ddl
