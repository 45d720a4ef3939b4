// Debian's chromium without a window, driven over a pipe by its own protocol: JSON messages that end with a zero byte.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/json.h"

namespace ddl {

class Browser {
 public:
  // "": there is none.
  static std::string program() {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (std::system(("command -v " + std::string(name) + " > /dev/null").c_str()) == 0) return name;
    return "";
  }

  explicit Browser(const std::string& profile) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    const std::string command = fmt::format(
        "exec env HOME={0} {1} --headless --remote-debugging-pipe --disable-gpu --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--user-data-dir={0}{2} about:blank > {0}/out 2>&1",
        profile, program(), ::geteuid() == 0 ? " --no-sandbox" : "");
    process_ = ::fork();
    if (process_ == 0) {  // it reads from 3 and writes to 4
      ::setpgid(0, 0);
      const int in = ::fcntl(to[0], F_DUPFD, 10), out = ::fcntl(from[1], F_DUPFD, 10);
      ::dup2(in, 3), ::dup2(out, 4);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]), ::close(from[1]);
    to_ = to[1], from_ = from[0];
    const Json target = call("Target.createTarget", {{"url", "about:blank"}}, false);
    session_ = call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}},
                    false)["sessionId"];
    for (const char* domain : {"Runtime", "Log", "Network", "Page"}) call(std::string(domain) + ".enable");
  }
  ~Browser() {
    ::kill(-process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    ::close(to_), ::close(from_);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void size(int width, int height) {
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  }
  void theme(const std::string& name) {
    call("Emulation.setEmulatedMedia",
         {{"features", Json::array({Json{{"name", "prefers-color-scheme"}, {"value", name}}})}});
  }
  // Waits for the page's own word that it is loaded: a question to a page that is being replaced may stay unanswered.
  void open(const std::string& address) {
    const int before = loads_;
    call("Page.navigate", {{"url", address}});
    for (const double until = now() + 60; loads_ == before;) take(receive(until));
  }
  // The value of an expression, or of what it promises.
  Json evaluate(const std::string& expression) {
    const Json answer = call("Runtime.evaluate",
                             {{"expression", expression}, {"awaitPromise", true}, {"returnByValue", true}});
    EXPECT_FALSE(answer.contains("exceptionDetails")) << expression << "\n" << to_line(answer);
    return answer.contains("result") ? answer["result"].value("value", Json()) : Json();
  }
  bool until(const std::string& condition, double seconds = 60) {
    for (const double end = now() + seconds; now() < end; ::usleep(20'000))
      if (evaluate("Boolean(" + condition + ")") == true) return true;
    return false;
  }
  // The same as a person: keys that go to what has the focus.
  void press(const std::string& key) {
    for (const char* type : {"keyDown", "keyUp"})
      call("Input.dispatchKeyEvent", {{"type", type}, {"key", key}, {"code", key}});
  }

  const std::vector<std::string>& complaints() const { return complaints_; }  // errors and warnings
  const std::vector<std::string>& requests() const { return requests_; }      // addresses

 private:
  Json call(const std::string& method, Json params = Json::object(), bool in_page = true) {
    Json message{{"id", ++last_}, {"method", method}, {"params", std::move(params)}};
    if (in_page) message["sessionId"] = session_;
    std::string text = to_line(message);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    text += '\0';
    if (::write(to_, text.data(), text.size()) != std::ssize(text))
      throw std::runtime_error("browser: write");
    for (const double until = now() + 60;;) {
      const Json answer = receive(until);
      if (answer.value("id", 0) != last_) {
        take(answer);
        continue;
      }
      EXPECT_FALSE(answer.contains("error")) << method << ": " << to_line(answer);
      return answer.value("result", Json::object());
    }
  }
  Json receive(double until) {
    std::size_t end;
    while ((end = held_.find('\0')) == std::string::npos) {
      pollfd ready{from_, POLLIN, 0};
      char piece[65536];
      const bool comes = ::poll(&ready, 1, std::max(0, static_cast<int>((until - now()) * 1000))) > 0;
      const ssize_t got = comes ? ::read(from_, piece, sizeof piece) : 0;
      if (got <= 0) throw std::runtime_error("the browser does not answer");
      held_.append(piece, static_cast<std::size_t>(got));
    }
    const Json message = parse_json(held_.substr(0, end));
    held_.erase(0, end + 1);
    return message;
  }
  void take(const Json& event) {
    const std::string method = event.value("method", "");
    const Json params = event.value("params", Json::object());
    const auto bad = [](const std::string& level) { return level == "error" || level == "warning"; };
    loads_ += method == "Page.loadEventFired";
    if (method == "Network.requestWillBeSent") requests_.push_back(params["request"]["url"]);
    if (method == "Runtime.exceptionThrown" ||
        (method == "Runtime.consoleAPICalled" && bad(params["type"].get<std::string>())) ||
        (method == "Log.entryAdded" && bad(params["entry"]["level"].get<std::string>())))
      complaints_.push_back(to_line(params));
  }

  pid_t process_ = -1;
  int to_ = -1, from_ = -1, last_ = 0, loads_ = 0;
  std::string session_, held_;
  std::vector<std::string> complaints_, requests_;
};

}  // namespace ddl
