#include "serve/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "serve/serve_testing.h"

namespace ddl {
namespace {

HttpOptions short_deadlines() {
  HttpOptions options;
  options.port = 0;
  options.limits.header_s = 0.4, options.limits.body_s = 0.6, options.limits.write_s = 0.5,
  options.limits.idle_s = 1.5;
  return options;
}

// Answers with what it was asked; /stream streams until told to end, /never never answers.
class HttpServerTest : public ::testing::Test {
 protected:
  explicit HttpServerTest(const HttpOptions& options = short_deadlines())
      : server_(options,
                [this](HttpRequest request, HttpReplyPtr reply) { handle(std::move(request), reply); }) {
    server_.run();
  }

  void handle(HttpRequest request, const HttpReplyPtr& reply) {
    if (request.path == "/keep") {
      kept_.push_back(reply);
      ++kept_count_;
      return;
    }
    if (request.path == "/drop") return;
    if (request.path == "/large") return reply->send({.body = std::string(64 << 20, 'x')});
    Json echo{{"method", request.method}, {"path", request.path}, {"body", request.body}};
    for (const auto& [name, value] : request.query) echo["query"][name] = value;
    reply->send({.body = to_line(echo)});
  }

  // Asks for /keep, and `ahead` of the next request; the reply that the test is to use, which kept_ holds.
  HttpReply& ask_for_reply(Client& client, const std::string& ahead = "",
                           const std::string& version = "1.1") {
    const int before = kept_count_;
    client.send("GET /keep HTTP/" + version + "\r\nHost: localhost\r\n\r\n" + ahead);
    if (!soon([&] { return kept_count_ == before + 1; }))
      throw std::runtime_error("the request did not arrive");
    return *kept_[static_cast<std::size_t>(before)];
  }

  // A stream to a client that reads nothing, written until the server gives it up: long before everything is held in memory.
  void expect_unread_stream_to_end() {
    Client client(server_.port());
    HttpReply& reply = ask_for_reply(client);
    reply.start_stream({});
    int written = 0;
    const std::string piece(256 << 10, 'x');
    while (!reply.gone() && written < 1000) reply.write(piece), ++written, pause_for(0.001);
    EXPECT_LT(written, 1000);
  }

  std::vector<HttpReplyPtr> kept_;  // before the server: it outlives it
  std::atomic<int> kept_count_{0};
  HttpServer server_;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOfOneConnection) {
  Client client(server_.port());
  for (int i = 0; i < 3; ++i) {
    const Reply answer = client.get(fmt::format("/a%20b?x={}&y=%26", i));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.json()["path"], "/a b");
    EXPECT_EQ(answer.json()["query"]["x"], std::to_string(i));
    EXPECT_EQ(answer.json()["query"]["y"], "&");
  }
  const std::string body(5000, 'b');
  EXPECT_EQ(client.post("/", body).json()["body"], body);
  client.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer().json()["body"], "abcde");
  client.send("GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().json()["path"], "/1");
  EXPECT_EQ(client.answer().json()["path"], "/2") << "sent before the first was answered";
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer(5, false).status, 200);
  EXPECT_EQ(client.get("/after").json()["path"], "/after") << "a HEAD has no body";
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(HttpServerTest, WaitsForAContinueThatWasAskedFor) {
  Client client(server_.port());
  client.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
      "Expect: 100-continue\r\n\r\n");
  ASSERT_EQ(client.next_head(5).status, 100) << "before any of the body";
  client.send("ok");
  EXPECT_EQ(client.answer().json()["body"], "ok");
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  for (const char* text :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET http://x/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"}) {
    Client client(server_.port());
    client.send(text);
    const Reply answer = client.answer();
    EXPECT_EQ(answer.status, 400) << text;
    EXPECT_TRUE(answer.error("message").is_string()) << text;
    EXPECT_TRUE(client.ends_within(5)) << text;
  }
  EXPECT_TRUE(soon([&] { return server_.connections() == 0; }));
}

TEST_F(HttpServerTest, StreamsFromAnotherThread) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client);
  std::thread writer([&] {
    reply.start_stream({.content_type = "text/event-stream"});
    for (int i = 0; i < 100; ++i) reply.write(fmt::format("data: {}\n\n", i));
    reply.finish();
    reply.write("never");
  });
  const Reply head = client.head();
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.event(), std::to_string(i));
  EXPECT_EQ(client.event(), std::nullopt);
  writer.join();
  EXPECT_EQ(client.get("/next").json()["path"], "/next") << "the connection is still good";
}

TEST_F(HttpServerTest, AClientOfTheOldProtocolGetsAStreamUntilTheEnd) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client, "", "1.0");
  reply.start_stream({});
  reply.write("abc");
  reply.finish();
  const Reply head = client.head();
  EXPECT_FALSE(head.headers.contains("transfer-encoding"));
  EXPECT_TRUE(client.ends_within(5));
}

TEST_F(HttpServerTest, ADroppedReplyIsAnError) {
  Client client(server_.port());
  EXPECT_EQ(client.get("/drop").status, 500);
}

TEST_F(HttpServerTest, NoticesThatAClientHasLeft) {
  for (const bool reset : {false, true}) {
    Client client(server_.port());
    HttpReply& reply = ask_for_reply(client);
    EXPECT_FALSE(reply.gone());
    reset ? client.reset() : client.close();
    EXPECT_TRUE(soon([&] { return reply.gone(); }, 2)) << reset;
    reply.send({});
    EXPECT_TRUE(soon([&] { return server_.connections() == 0; })) << reset;
  }
}

TEST_F(HttpServerTest, NoticesItBehindWhatTheClientSentAhead) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client, "G");
  pause_for(0.05);
  EXPECT_FALSE(reply.gone());
  client.send("E");
  client.close();
  EXPECT_TRUE(soon([&] { return reply.gone(); }, 2));
}

TEST_F(HttpServerTest, WhatWasSentAheadIsAnsweredInItsTurn) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client);
  for (int i = 0; i < 3; ++i) {  // piece by piece, while the first is under way
    client.send(fmt::format("GET /{} HTTP/1.1\r\nHost: local", i));
    pause_for(0.02);
    client.send("host\r\n\r\n");
    pause_for(0.02);
  }
  client.send("GET /last HTTP/1.1\r\n");
  pause_for(0.02);
  reply.send({.body = "{}"});
  EXPECT_EQ(client.answer().body, "{}");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.answer().json()["path"], fmt::format("/{}", i));
  client.send("Host: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().json()["path"], "/last");
}

TEST_F(HttpServerTest, AClientThatStopsReadingIsCutOff) {
  Client client(server_.port());
  client.small_receive_buffer();
  client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_EQ(client.head().status, 200);
  EXPECT_EQ(server_.connections(), 1);
  EXPECT_TRUE(soon([&] { return server_.connections() == 0; }, 5))
      << "no byte was taken for the time of a write";
}

TEST_F(HttpServerTest, AStreamThatIsNotReadEndsInsteadOfGrowing) { expect_unread_stream_to_end(); }

HttpOptions little_unsent() {
  HttpOptions options = short_deadlines();
  options.limits.write_s = 30, options.limits.unsent_bytes = 1 << 20;
  return options;
}

class LittleUnsent : public HttpServerTest {
 protected:
  LittleUnsent() : HttpServerTest(little_unsent()) {}
};

TEST_F(LittleUnsent, APieceOfAnySizeReachesAClientThatReads) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client);
  reply.start_stream({});
  const std::string piece(5 << 20, 'x');
  reply.write(piece);
  reply.finish();
  EXPECT_EQ(client.answer().body, piece);
}

TEST_F(LittleUnsent, EndsAStreamThatGrowsBeyondIt) { expect_unread_stream_to_end(); }

TEST_F(HttpServerTest, AStreamThatIsDroppedIsCut) {
  Client client(server_.port());
  HttpReply& reply = ask_for_reply(client);
  reply.start_stream({});
  reply.write("data: half\n\n");
  kept_.clear();
  EXPECT_TRUE(client.ends_within(5)) << "without the mark of its end";
  EXPECT_TRUE(soon([&] { return server_.connections() == 0; }));
}

TEST_F(HttpServerTest, AnIdleConnectionEnds) {
  Client client(server_.port());
  EXPECT_EQ(client.get("/").status, 200);
  pause_for(0.5);  // longer than a header may take
  EXPECT_EQ(client.get("/").status, 200) << "between requests it may wait longer";
  EXPECT_TRUE(client.ends_within(5));
  EXPECT_TRUE(soon([&] { return server_.connections() == 0; }));
}

TEST_F(HttpServerTest, DrainingFinishesWhatIsUnderWay) {
  Client idle(server_.port()), busy(server_.port());
  idle.get("/");
  HttpReply& reply = ask_for_reply(busy);
  EXPECT_FALSE(server_.drain(0.2)) << "one is under way";
  EXPECT_TRUE(idle.ends_within(2));
  EXPECT_FALSE(Client(server_.port()).get("/").status) << "no new ones";
  std::thread later([&] {
    pause_for(0.1);
    reply.send({.body = "{}"});
  });
  EXPECT_TRUE(server_.drain(5));
  EXPECT_EQ(busy.answer().status, 200);
  later.join();
}

TEST(HttpServer, RepliesMayOutliveIt) {
  std::vector<HttpReplyPtr> kept;
  std::atomic<int> count{0};
  {
    HttpServer server(short_deadlines(), [&](const HttpRequest&, HttpReplyPtr reply) {
      kept.push_back(std::move(reply));
      ++count;
    });
    server.run();
    Client client(server.port());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(soon([&] { return count == 1; }));
  }
  EXPECT_TRUE(kept[0]->gone());
  kept[0]->start_stream({});
  kept[0]->write("x");
  kept.clear();
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const HttpServer first(short_deadlines(), [](const HttpRequest&, const HttpReplyPtr&) {});
  HttpOptions same = short_deadlines();
  same.port = first.port();
  EXPECT_THROW(HttpServer(same, {}), UserError);
  same.host = "no address";
  EXPECT_THROW(HttpServer(same, {}), UserError);
}

}  // namespace
}  // namespace ddl
