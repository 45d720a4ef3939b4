// The whole server: connections, routes and what answers them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/exec.h"
#include "serve/compute_thread.h"
#include "serve/http_server.h"
#include "serve/model_shelf.h"
#include "serve/router.h"
#include "serve/run_shelf.h"

namespace ddl {

struct ServeOptions {
  HttpOptions http;
  std::vector<std::string> watch;  // folders of runs, for the page
  ModelShelfOptions models;
};

// An address beyond this machine needs a key. Throws UserError.
void check_address(const HttpOptions& http);

class Server {
 public:
  // Answers at once. Throws UserError.
  Server(const ServeOptions& options, const Exec& ex);
  ~Server();

  std::string address() const;  // "http://127.0.0.1:8080"
  int port() const { return http_->port(); }
  // No more requests are taken; true once those under way are answered, false after `seconds`.
  bool drain(double seconds) { return http_->drain(seconds); }
  ModelShelf& models() { return models_; }
  ComputeThread::Load load() const { return compute_->load(); }

 private:
  const ServeOptions options_;
  RunShelf runs_;
  ModelShelf models_;
  std::unique_ptr<ComputeThread> compute_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace ddl
