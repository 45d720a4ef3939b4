#include "serve/router.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "core/error.h"
#include "serve/api_error.h"

namespace ddl {
namespace {

// The endpoint's answer, or what went wrong: nothing that a request does may end the server.
void answer(const Router::Endpoint& endpoint, const HttpRequest& request, const HttpReplyPtr& reply) {
  try {
    endpoint(request, reply);
  } catch (const ApiError& error) {
    reply->send(error.response());
  } catch (const UserError&) {
    reply->send(error_response(500, "the server could not read one of its own files"));
  } catch (const std::filesystem::filesystem_error& error) {
    reply->send(error_response(500, fmt::format("the request failed: {}", error.code().message())));
  } catch (const std::exception& error) {
    reply->send(error_response(500, fmt::format("the request failed: {}", error.what())));
  }
}

}  // namespace

Worker::Worker() : thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Worker::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= kMaxWaiting) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Worker::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

bool Router::Route::fits(const std::string& asked) const {
  return asked == path || (path.size() > 1 && path.back() == '/' && asked.starts_with(path));
}

void Router::add(const std::string& method, const std::string& path, On thread, Endpoint endpoint) {
  routes_.push_back({method, path, thread, std::move(endpoint)});
}

void Router::handle(HttpRequest request, const HttpReplyPtr& reply) const {
  const Route* other_method = nullptr;
  for (const Route& route : routes_) {
    if (!route.fits(request.path)) continue;
    if (route.method != request.method) {
      other_method = &route;
      continue;
    }
    if (route.thread == On::kConnections) return answer(route.endpoint, request, reply);
    auto shared = std::make_shared<HttpRequest>(std::move(request));
    if (!worker_.post([&route, shared, reply] { answer(route.endpoint, *shared, reply); }))
      reply->send(error_response(503, "too many requests are waiting; try again later"));
    return;
  }
  if (other_method) {
    HttpResponse response =
        error_response(405, fmt::format("{} takes {}", request.path, other_method->method));
    response.headers.emplace_back("Allow", other_method->method);
    return reply->send(std::move(response));
  }
  reply->send(error_response(404, "there is nothing at this address", "", "not_found"));
}

}  // namespace ddl
