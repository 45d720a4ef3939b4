#include "serve/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace ddl {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr double kLingerSeconds = 1;  // for a client that is still sending what was refused

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::string http_date() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

enum class Framing { kLength, kChunked, kUntilClose };

// Status line and headers. What a response sets itself is not set again.
std::string head_text(const HttpResponse& response, Framing framing, bool keep_alive) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, std::string_view(reason.data(), reason.size()));
  const auto own = [&](std::string_view name) {
    return std::any_of(response.headers.begin(), response.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  };
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!own(name)) text += fmt::format("{}: {}\r\n", name, value);
  };
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  add("Date", http_date());
  add("Content-Type", response.content_type);
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("Content-Security-Policy",
      "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'");
  add("Referrer-Policy", "no-referrer");
  add("Cross-Origin-Resource-Policy", "same-origin");
  add("Connection", keep_alive ? "keep-alive" : "close");
  if (framing == Framing::kLength) add("Content-Length", std::to_string(response.body.size()));
  if (framing == Framing::kChunked) add("Transfer-Encoding", "chunked");
  return text + "\r\n";
}

}  // namespace

class HttpSession;

// All connections and the thread that carries them.
class HttpHub : public std::enable_shared_from_this<HttpHub> {
 public:
  HttpHub(const HttpOptions& o, HttpHandler h) : options(o), handler(std::move(h)) {}

  void listen();
  void run();
  void end();
  void begin_draining();

  // Runs f on the connections' thread; false: that has ended.
  template <class F>
  bool post(F&& f) {
    const std::lock_guard lock(ending_);
    if (ended_) return false;
    asio::post(io, std::forward<F>(f));
    return true;
  }

  const HttpOptions options;
  const HttpHandler handler;
  asio::io_context io{1};
  int port = 0;
  std::atomic<int> connections{0}, busy{0};         // of these: with a request under way
  std::set<std::shared_ptr<HttpSession>> sessions;  // open; on the connections' thread alone
  bool draining = false;

 private:
  void accept();
  tcp::acceptor acceptor_{io};
  asio::steady_timer retry_{io};
  std::mutex ending_;
  bool ended_ = false;
  std::thread thread_;
};

class ConnectionReply;

// One connection. Everything here runs on the connections' thread.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(tcp::socket socket, std::shared_ptr<HttpHub> hub)
      : hub_(std::move(hub)),
        socket_(std::move(socket)),
        read_deadline_(hub_->io),
        write_deadline_(hub_->io),
        buffer_(hub_->options.limits.header_bytes + kReadBytes) {  // the most it will ever hold
  }

  void start() {
    hub_->sessions.insert(shared_from_this());
    ++hub_->connections;
    read_header();
  }
  void close();
  void close_if_idle() {
    if (state_ == State::kIdle) close();
  }

  // From a reply, whose number must still be that of the request under way.
  void send(std::uint64_t request, HttpResponse response);
  void start_stream(std::uint64_t request, HttpResponse head);
  void write(std::uint64_t request, std::string piece);
  void finish(std::uint64_t request);
  void drop(std::uint64_t request);

 private:
  static constexpr std::size_t kReadBytes = 8 << 10;
  enum class State {
    kIdle,       // between requests
    kReading,    // a request
    kAnswering,  // it is being worked on
    kStreaming,  // pieces of its answer come
    kFlushing,   // the answer is complete and on its way
    kClosing     // what is still coming is thrown away
  };
  const HttpLimits& limits() const { return hub_->options.limits; }

  void set_deadline(asio::steady_timer& timer, double seconds);
  void read_header();
  void on_header(error_code error);
  void take_header();
  void on_body(error_code error);
  bool refuse_unreadable(error_code error);
  void refuse_and_close(HttpResponse response);
  void handle();
  void watch();
  void on_watched(error_code error, std::size_t bytes);
  void enqueue(std::string bytes);
  void pump();
  void flushed();
  void linger();
  void discard();

  std::shared_ptr<HttpHub> hub_;
  tcp::socket socket_;
  asio::steady_timer read_deadline_, write_deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  State state_ = State::kReading;
  bool keep_alive_ = false, head_only_ = false, chunked_ = false;
  bool reading_ = false, writing_ = false;  // an operation on the socket is under way
  bool busy_ = false;                       // counted in hub_->busy
  std::uint64_t number_ = 0;                // of the request under way
  std::weak_ptr<ConnectionReply> reply_;
  std::string unsent_, sending_;
  std::size_t sent_ = 0;  // of sending_
};

class ConnectionReply final : public HttpReply {
 public:
  ConnectionReply(std::shared_ptr<HttpHub> hub, std::weak_ptr<HttpSession> session, std::uint64_t number)
      : hub_(std::move(hub)), session_(std::move(session)), number_(number) {}
  ~ConnectionReply() override {
    if (!ended_) run([](HttpSession& s, std::uint64_t n) { s.drop(n); });
  }

  void send(HttpResponse response) override {
    if (ended_.exchange(true)) return;
    run([response = std::move(response)](HttpSession& s, std::uint64_t n) mutable {
      s.send(n, std::move(response));
    });
  }
  void start_stream(HttpResponse head) override {
    run([head = std::move(head)](HttpSession& s, std::uint64_t n) mutable {
      s.start_stream(n, std::move(head));
    });
  }
  void write(std::string piece) override {
    if (ended_ || gone_ || piece.empty()) return;
    run([piece = std::move(piece)](HttpSession& s, std::uint64_t n) mutable {
      s.write(n, std::move(piece));
    });
  }
  void finish() override {
    if (ended_.exchange(true)) return;
    run([](HttpSession& s, std::uint64_t n) { s.finish(n); });
  }
  bool gone() const override { return gone_; }
  void leave() { gone_ = true; }

 private:
  template <class F>
  void run(F&& f) {
    hub_->post([session = session_, number = number_, f = std::forward<F>(f)]() mutable {
      if (const auto open = session.lock()) f(*open, number);
    });
  }
  std::shared_ptr<HttpHub> hub_;
  std::weak_ptr<HttpSession> session_;
  std::uint64_t number_;
  std::atomic<bool> gone_{false}, ended_{false};
};

void HttpSession::set_deadline(asio::steady_timer& timer, double seconds) {
  timer.expires_after(duration(seconds));
  timer.async_wait([self = weak_from_this(), &timer](error_code error) {
    const auto session = self.lock();
    if (session && !error && timer.expiry() <= std::chrono::steady_clock::now()) session->close();
  });
}

void HttpSession::close() {
  const auto self = shared_from_this();
  if (hub_->sessions.erase(self) == 0) return;
  --hub_->connections;
  state_ = State::kClosing;
  if (const auto reply = reply_.lock()) reply->leave();
  if (std::exchange(busy_, false)) --hub_->busy;
  read_deadline_.cancel(), write_deadline_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void HttpSession::read_header() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(limits().header_bytes));
  parser_->body_limit(limits().body_bytes);
  set_deadline(read_deadline_, limits().header_s);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

// Whether the error is one of the request, which is then answered.
bool HttpSession::refuse_unreadable(error_code error) {
  const bool has_header = parser_ && parser_->is_header_done();
  if (error == http::error::body_limit || (error == http::error::buffer_overflow && has_header))
    refuse_and_close(
        error_response(413, fmt::format("the request's body is longer than {} bytes", limits().body_bytes)));
  else if (error == http::error::header_limit || error == http::error::buffer_overflow)
    refuse_and_close(error_response(
        431, fmt::format("the request's header is longer than {} bytes", limits().header_bytes)));
  else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
           error != http::error::end_of_stream && error != http::error::partial_message)
    refuse_and_close(error_response(400, "this is no well-formed HTTP request: " + error.message()));
  else
    return false;
  return true;
}

void HttpSession::on_header(error_code error) {
  if (state_ == State::kClosing) return;
  if (!error) return take_header();
  if (!refuse_unreadable(error)) close();
}

void HttpSession::take_header() {
  const auto& message = parser_->get();
  request_ = {};
  request_.method = std::string(message.method_string());
  if ((head_only_ = request_.method == "HEAD")) request_.method = "GET";
  for (const auto& field : message)
    request_.headers[lower_case({field.name_string().data(), field.name_string().size()})] =
        std::string(field.value());
  keep_alive_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  ++hub_->busy, busy_ = true;
  if (message.count(http::field::host) > 1 || !parse_target(std::string(message.target()), request_))
    return refuse_and_close(error_response(400, "the request's target or Host is not well formed"));
  if (auto refused = refuse(request_, hub_->options.access)) return refuse_and_close(std::move(*refused));
  if (lower_case(request_.header("expect")) == "100-continue") enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  set_deadline(read_deadline_, limits().body_s);
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, std::size_t) { self->on_body(error); });
}

void HttpSession::on_body(error_code error) {
  if (state_ == State::kClosing) return;
  if (error) {
    if (!refuse_unreadable(error)) close();
    return;
  }
  read_deadline_.cancel();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  handle();
}

// What is still coming is not read as a request.
void HttpSession::refuse_and_close(HttpResponse response) {
  keep_alive_ = false;
  state_ = State::kAnswering;
  read_deadline_.cancel();
  parser_.reset();
  send(number_, std::move(response));
}

void HttpSession::handle() {
  state_ = State::kAnswering;
  const auto reply = std::make_shared<ConnectionReply>(hub_, shared_from_this(), ++number_);
  reply_ = reply;
  watch();
  hub_->handler(std::move(request_), reply);
}

// While an answer is made, and between requests, a read notices that the client has left. Where the next request
// comes before this one's answer, it waits in the buffer, and reading continues as far as a header may.
void HttpSession::watch() {
  if (reading_ || buffer_.size() >= limits().header_bytes) return;
  reading_ = true;
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      [self = shared_from_this()](error_code error, std::size_t bytes) { self->on_watched(error, bytes); });
}

void HttpSession::on_watched(error_code error, std::size_t bytes) {
  reading_ = false;
  if (!socket_.is_open()) return;
  if (state_ == State::kClosing) return discard();
  if (!error) buffer_.commit(bytes);
  if (!error || error == asio::error::operation_aborted)
    return state_ == State::kIdle ? read_header() : watch();
  if (error != asio::error::eof || state_ == State::kIdle) return close();
  // It may have closed its side alone, and still wait for an answer that is about to come.
  if (const auto reply = reply_.lock()) reply->leave();
  keep_alive_ = false;
}

void HttpSession::send(std::uint64_t request, HttpResponse response) {
  if (request != number_ || state_ != State::kAnswering) return;
  keep_alive_ = keep_alive_ && !hub_->draining;
  std::string text = head_text(response, Framing::kLength, keep_alive_);
  if (!head_only_) text += response.body;
  state_ = State::kFlushing;
  enqueue(std::move(text));
}

void HttpSession::start_stream(std::uint64_t request, HttpResponse head) {
  if (request != number_ || state_ != State::kAnswering) return;
  state_ = State::kStreaming;
  keep_alive_ = keep_alive_ && chunked_ && !hub_->draining;
  std::string first = std::exchange(head.body, {});
  enqueue(head_text(head, chunked_ ? Framing::kChunked : Framing::kUntilClose, keep_alive_));
  if (!first.empty()) write(request, std::move(first));
}

void HttpSession::write(std::uint64_t request, std::string piece) {
  if (request != number_ || state_ != State::kStreaming) return;
  if (unsent_.size() > limits().unsent_bytes) return close();  // whatever the size of this piece
  enqueue(chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::move(piece));
}

void HttpSession::finish(std::uint64_t request) {
  if (request != number_ || state_ != State::kStreaming) return;
  state_ = State::kFlushing;
  enqueue(chunked_ ? "0\r\n\r\n" : "");
}

// Nobody will answer any more; a stream is cut, so that it does not look complete.
void HttpSession::drop(std::uint64_t request) {
  if (request != number_) return;
  if (state_ == State::kStreaming) return close();
  send(request, error_response(500, "the request was dropped without an answer"));
}

void HttpSession::enqueue(std::string bytes) {
  if (unsent_.empty())
    unsent_ = std::move(bytes);
  else
    unsent_ += bytes;
  pump();
}

void HttpSession::pump() {
  if (writing_ || !socket_.is_open()) return;
  if (sent_ == sending_.size()) sent_ = 0, sending_ = std::exchange(unsent_, {});
  if (sending_.empty()) {
    write_deadline_.cancel();
    if (state_ == State::kFlushing) flushed();
    return;
  }
  writing_ = true;
  set_deadline(write_deadline_, limits().write_s);
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](error_code error, std::size_t bytes) {
                             self->writing_ = false;
                             if (error) return self->close();
                             self->sent_ += bytes;
                             self->pump();
                           });
}

void HttpSession::flushed() {
  if (std::exchange(busy_, false)) --hub_->busy;
  if (!keep_alive_) return linger();
  if (hub_->draining) return close();
  state_ = State::kIdle;
  // The next request, or its beginning, is here: a read that is under way gives way to that of the header.
  if (buffer_.size() > 0) {
    if (!reading_) return read_header();
    error_code ignored;
    socket_.cancel(ignored);
    return;
  }
  set_deadline(read_deadline_, limits().idle_s);
  watch();
}

// Closed at once, a connection that still has something to read is reset, and the answer may be lost with it.
void HttpSession::linger() {
  state_ = State::kClosing;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  set_deadline(read_deadline_, kLingerSeconds);
  discard();
}

void HttpSession::discard() {
  if (reading_) return;
  buffer_.clear();
  reading_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](error_code error, std::size_t) {
                            self->reading_ = false;
                            if (error) return self->close();
                            self->discard();
                          });
}

void HttpHub::listen() {
  const auto fail = [&](const error_code& error) {
    throw UserError("{}:{}: cannot listen there: {}{}", options.host, options.port, error.message(),
                    error == asio::error::address_in_use ? "; choose another port (--port)" : "");
  };
  error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error)
    throw UserError("--host: expected an IP address such as 127.0.0.1 or ::1, found '{}'", options.host);
  const tcp::endpoint endpoint(address, static_cast<unsigned short>(options.port));
  if (acceptor_.open(endpoint.protocol(), error); error) fail(error);
  acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (acceptor_.bind(endpoint, error); error) fail(error);
  if (acceptor_.listen(asio::socket_base::max_listen_connections, error); error) fail(error);
  port = acceptor_.local_endpoint().port();
}

void HttpHub::run() {
  accept();
  thread_ = std::thread([this] { io.run(); });
}

void HttpHub::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {  // no more files may be opened, for example
      retry_.expires_after(std::chrono::milliseconds(50));
      retry_.async_wait([this](error_code cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (connections >= options.limits.connections) {
      const HttpResponse full = error_response(503, "too many connections are open; try again later");
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(head_text(full, Framing::kLength, false) + full.body), ignored);
    } else {
      std::make_shared<HttpSession>(std::move(socket), shared_from_this())->start();
    }
    accept();
  });
}

void HttpHub::begin_draining() {
  draining = true;
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  for (const auto& session : std::set<std::shared_ptr<HttpSession>>(sessions)) session->close_if_idle();
}

void HttpHub::end() {
  if (!thread_.joinable()) return;
  post([this] {
    begin_draining();
    for (const auto& session : std::set<std::shared_ptr<HttpSession>>(sessions)) session->close();
  });
  thread_.join();  // without connections there is nothing to wait for
  {
    const std::lock_guard lock(ending_);
    ended_ = true;
  }
  io.restart();
  io.poll();  // what replies have asked for meanwhile
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : hub_(std::make_shared<HttpHub>(options, std::move(handler))) {
  hub_->listen();
}

void HttpServer::run() { hub_->run(); }

void HttpServer::end() { hub_->end(); }

HttpServer::~HttpServer() { end(); }

int HttpServer::port() const { return hub_->port; }
int HttpServer::connections() const { return hub_->connections; }

bool HttpServer::drain(double seconds) {
  hub_->post([hub = hub_] { hub->begin_draining(); });
  const double until = now() + seconds;
  while (hub_->busy > 0 && now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return hub_->busy == 0;
}

}  // namespace ddl
