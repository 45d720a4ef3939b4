// The page: files that are part of the program. No path of a request reaches the file system.
#include <string>
#include <string_view>

#include "core/embedded_file.h"
#include "serve/endpoints.h"
#include "serve/page_files.h"

namespace ddl {
namespace {

const char* content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/plain; charset=utf-8";
}

}  // namespace

void add_page(Router& router) {
  for (const EmbeddedFile& file : kServePageFiles) {
    const auto send = [&file](const HttpRequest&, const HttpReplyPtr& reply) {
      reply->send({.content_type = content_type(file.name), .body = std::string(file.content)});
    };
    router.add("GET", "/" + std::string(file.name), Router::On::kConnections, send);
    if (file.name == "index.html") router.add("GET", "/", Router::On::kConnections, send);
  }
}

}  // namespace ddl
