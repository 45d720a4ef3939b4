// A plain client over sockets, which can also misbehave.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/json.h"

namespace ddl {

struct Reply {
  int status = 0;                              // 0: the connection ended without one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  double seconds = 0;
  Json json() const { return parse_json(body); }
  // The member of {"error": ...}; null where there is none.
  Json error(const char* member) const {
    const Json all = json();
    return all.is_object() && all.contains("error") ? all["error"].value(member, Json()) : Json();
  }
};

class Client {
 public:
  explicit Client(int port) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(socket_, reinterpret_cast<sockaddr*>(&address),
              sizeof address);  // refused: nothing is answered
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), held_(std::move(other.held_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void reset() {  // the connection, not the object: RST instead of FIN
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void small_receive_buffer() {
    const int bytes = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

  // False: the other side takes no more, or not within the time.
  bool send(std::string_view bytes, double seconds = 20) {
    const double until = now() + seconds;
    while (!bytes.empty()) {
      pollfd ready{socket_, POLLOUT, 0};
      if (::poll(&ready, 1, std::max(0, static_cast<int>((until - now()) * 1000))) <= 0) return false;
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Whether the server ends the connection within the time; what comes before is dropped.
  bool ends_within(double seconds) {
    const double until = now() + seconds;
    while (receive(until)) held_.clear();
    return ended_;
  }

  // The next line of a stream of events: what follows "data: ". Nothing at its end.
  std::optional<std::string> event(double seconds = 20) {
    const double until = now() + seconds;
    for (;;) {
      if (const std::size_t end = events_.find("\n\n"); end != std::string::npos) {
        const std::string line = events_.substr(0, end);
        events_.erase(0, end + 2);
        return line.starts_with("data: ") ? line.substr(6) : line;
      }
      std::optional<std::string> chunk = next_chunk(until);
      if (!chunk || chunk->empty()) return std::nullopt;
      events_ += *chunk;
    }
  }

  // Status and headers alone, of the answer itself.
  Reply head(double seconds = 20) {
    Reply answer = next_head(seconds);
    while (answer.status == 100) answer = next_head(seconds);
    return answer;
  }
  // The same of whatever comes next, "100 Continue" as well.
  Reply next_head(double seconds = 20) {
    Reply answer;
    const double start = now(), until = start + seconds;
    std::size_t end;
    while ((end = held_.find("\r\n\r\n")) == std::string::npos)
      if (!receive(until)) return answer;
    const std::string text = held_.substr(0, end + 2);
    held_.erase(0, end + 4);
    answer.status = std::atoi(text.c_str() + 9);
    std::size_t at = text.find("\r\n") + 2;
    while (at < text.size()) {
      const std::size_t line_end = text.find("\r\n", at), colon = text.find(": ", at);
      std::string name = text.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      answer.headers[name] = text.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    answer.seconds = now() - start;
    return answer;
  }

  Reply answer(double seconds = 20, bool has_body = true) {
    const double start = now(), until = start + seconds;
    Reply answer = head(seconds);
    if (answer.status == 0 || !has_body) return answer;
    if (answer.headers.contains("content-length")) {
      const auto bytes = static_cast<std::size_t>(std::atoll(answer.headers["content-length"].c_str()));
      while (held_.size() < bytes && receive(until)) {
      }
      answer.body = held_.substr(0, bytes);
      held_.erase(0, bytes);
    } else {
      while (const auto chunk = next_chunk(until)) {
        if (chunk->empty()) break;
        answer.body += *chunk;
      }
    }
    answer.seconds = now() - start;
    return answer;
  }

  Reply get(const std::string& target, const std::string& headers = "") {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", target, headers));
    return answer();
  }
  bool send_post(const std::string& target, const std::string& body, const std::string& headers = "") {
    return send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\n{}\r\n{}",
                    target, body.size(), headers, body));
  }
  Reply post(const std::string& target, const std::string& body, const std::string& headers = "",
             double seconds = 60) {
    send_post(target, body, headers);
    return answer(seconds);
  }
  Reply post(const std::string& target, const Json& body) { return post(target, to_line(body)); }

 private:
  bool receive(double until) {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, std::max(0, static_cast<int>((until - now()) * 1000))) <= 0) return false;
    char piece[65536];
    const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    held_.append(piece, static_cast<std::size_t>(got));
    return true;
  }
  // Of a chunked body; "" is its end, nothing where the connection ended.
  std::optional<std::string> next_chunk(double until) {
    std::size_t end;
    while ((end = held_.find("\r\n")) == std::string::npos)
      if (!receive(until)) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(std::strtoul(held_.c_str(), nullptr, 16));
    while (held_.size() < end + 2 + bytes + 2)
      if (!receive(until)) return std::nullopt;
    std::string chunk = held_.substr(end + 2, bytes);
    held_.erase(0, end + 2 + bytes + 2);
    return chunk;
  }

  int socket_ = -1;
  bool ended_ = false;
  std::string held_, events_;
};

}  // namespace ddl
