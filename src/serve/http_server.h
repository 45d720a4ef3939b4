// HTTP/1.1 over TCP: one thread carries all connections, within limits that no client can exceed. Boost.Beast does
// the work behind this header.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "serve/access.h"
#include "serve/http.h"

namespace ddl {

struct HttpLimits {
  std::size_t header_bytes = 16 << 10;  // more: 431
  std::size_t body_bytes = 1 << 20;     // more, chunked or not: 413
  // Of a stream, waiting for its client: more ends it. More than an answer has: who reads nothing is cut by write_s.
  std::size_t unsent_bytes = std::size_t{256} << 20;
  int connections = 256;  // more: 503
  // Seconds. All are of the whole: a byte now and then does not prolong them.
  double header_s = 10, body_s = 30;
  double write_s = 10;  // without the client taking anything
  double idle_s = 60;   // between requests
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  AccessOptions access;
  HttpLimits limits;
};

class HttpHub;

class HttpServer {
 public:
  // Takes the address. Throws UserError where it cannot be had.
  HttpServer(const HttpOptions& options, HttpHandler handler);
  void run();     // from here on requests are answered
  void end();     // cuts what is still open; no handler runs from here on
  ~HttpServer();  // ends it
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int connections() const;  // open now
  // Takes no more connections and requests; true once the requests under way are answered, false after `seconds`.
  bool drain(double seconds);

 private:
  std::shared_ptr<HttpHub> hub_;
};

}  // namespace ddl
