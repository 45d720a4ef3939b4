// A request and its answer, apart from the library that carries them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddl {

struct HttpRequest {
  std::string method;                             // "GET", "POST"
  std::string path;                               // without the query, percent signs decoded
  std::multimap<std::string, std::string> query;  // decoded
  std::map<std::string, std::string> headers;     // names in lower case
  std::string body;

  const std::string& header(const std::string& name) const;     // "" where there is none
  std::vector<std::string> all(const std::string& name) const;  // of the query, in its order
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where an answer goes: whole, or in pieces as they come (server-sent events). Every function may be called from any
// thread and returns at once. Dropped without an answer, it answers 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpResponse response) = 0;

  // A stream: its head once (the body is its first piece), then pieces, then its end.
  virtual void start_stream(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;

  // The client has left, or reads too slowly to be waited for: whatever is still sent goes nowhere.
  virtual bool gone() const = 0;
};
using HttpReplyPtr = std::shared_ptr<HttpReply>;

// Called on the thread of all connections: it must return soon, and hand work to another thread.
using HttpHandler = std::function<void(HttpRequest request, HttpReplyPtr reply)>;

std::string lower_case(std::string_view text);  // of ASCII

// "/a%20b?x=1&y" into path and query; false where a percent sign is not followed by two hexadecimal digits, or
// the target is no path.
bool parse_target(const std::string& target, HttpRequest& request);

}  // namespace ddl
