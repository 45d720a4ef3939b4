// Which function answers which request, and on which thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/http.h"

namespace ddl {

// One thread for what takes longer than a connection may wait and does not compute: files, tokenizers.
class Worker {
 public:
  Worker();
  ~Worker();  // finishes the job under way and drops the others
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  bool post(std::function<void()> job);  // false: too many are waiting

 private:
  static constexpr std::size_t kMaxWaiting = 256;
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

class Router {
 public:
  // May throw ApiError, which is the answer. What else it throws is a 500; that of a UserError and of a file is not told,
  // because it names paths of this machine.
  using Endpoint = std::function<void(const HttpRequest& request, const HttpReplyPtr& reply)>;
  enum class On { kConnections, kWorker };  // the thread; the first only for what answers at once

  explicit Router(Worker& worker) : worker_(worker) {}

  // A path that ends with '/' also stands for everything below it.
  void add(const std::string& method, const std::string& path, On thread, Endpoint endpoint);
  void handle(HttpRequest request, const HttpReplyPtr& reply) const;

 private:
  struct Route {
    std::string method, path;
    On thread;
    Endpoint endpoint;
    bool fits(const std::string& asked) const;
  };
  Worker& worker_;
  std::vector<Route> routes_;
};

}  // namespace ddl
