// The page: files that are part of the program. No path of a request reaches the file system.
#include <string>
#include <string_view>

#include "core/embedded_file.h"
#include "report/page_files.h"
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
  const auto add = [&](const EmbeddedFile& file, const std::string& path) {
    router.add("GET", path, Router::On::kConnections, [&file](const HttpRequest&, const HttpReplyPtr& reply) {
      reply->send({.content_type = content_type(file.name), .body = std::string(file.content)});
    });
  };
  for (const EmbeddedFile& file : kServePageFiles) {
    add(file, "/" + std::string(file.name));
    if (file.name == "index.html") add(file, "/");
  }
  // The report's charts and style are the page's, too.
  for (const EmbeddedFile& file : kReportPageFiles)
    if (!file.name.ends_with(".html")) add(file, "/report/" + std::string(file.name));
}

}  // namespace ddl
