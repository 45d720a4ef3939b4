#include "serve/endpoints.h"

#include <utility>

#include "serve/api_error.h"

namespace ddl {

void send_json(const HttpReplyPtr& reply, const Json& json) { reply->send({.body = to_line(json)}); }

void submit_or_refuse(ComputeThread& compute, ComputeJob job) {
  if (!compute.submit(std::move(job)))
    throw ApiError(429, "too many requests are waiting; try again soon", "", "queue_full");
}

}  // namespace ddl
