// The list of docs/serving.md, each line with its number. Deadlines are those of the program, only shorter.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "serve/serve_testing.h"

namespace ddl {
namespace {

class Security : public ServerTest {
 protected:
  // A request that is well formed but for what a test changes.
  Reply raw(const std::string& text) {
    Client one = client();
    one.send(text);
    return one.answer();
  }
  int status_with(const std::string& headers) {
    return raw("GET /api/runs HTTP/1.1\r\n" + headers + "\r\n").status;
  }
};

// Memory of this process, in bytes.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

template <class Measure>
double median_of(Measure&& measure) {
  std::vector<double> values;
  for (int i = 0; i < 11; ++i) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return values[5];
}

// --- 1. who may reach it

TEST_F(Security, No1AnotherAddressNeedsAKey) {
  for (const char* host : {"0.0.0.0", "::", "192.168.1.5", "8.8.8.8"}) {
    options_.http.host = host;
    const std::string message = message_of<UserError>([&] { Server(options_, Exec{}); });
    EXPECT_TRUE(contains(message, "--api-key-file")) << message;
  }
  options_.http.host = "0.0.0.0";
  options_.http.access.api_key = "0123456789abcdef";
  start_without_model();
  EXPECT_EQ(get("/api/runs").status, 401);
}

TEST_F(Security, No1OnlyHealthIsPublic) {
  options_.http.access.api_key = "0123456789abcdef";
  start();
  EXPECT_EQ(get("/health").status, 200);
  for (const char* path : {"/", "/app.js", "/api/runs", "/api/runs/x", "/v1/models", "/metrics",
                           "/tokenizer_info", "/none", "/health/x", "//health"})
    EXPECT_EQ(get(path).status, 401) << path;
  const Reply refused = get("/v1/models");
  EXPECT_EQ(refused.error("code"), "invalid_api_key");
  EXPECT_EQ(refused.error("type"), "authentication_error");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 401);
  const auto with = [&](const std::string& authorization) {
    return client().get("/v1/models", "Authorization: " + authorization + "\r\n").status;
  };
  EXPECT_EQ(with("Bearer 0123456789abcdef"), 200);
  EXPECT_EQ(with("bearer 0123456789abcdef"), 200);
  EXPECT_EQ(with("Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm"), 200) << "user:0123456789abcdef, from a browser";
  for (const char* wrong : {"Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
                            "Bearer ", "Bearer", "0123456789abcdef", "Basic 0123456789abcdef", "Basic !!!!",
                            "Token 0123456789abcdef", "Bearer 0123456789abcdef0123456789abcdef"})
    EXPECT_EQ(with(wrong), 401) << wrong;
}

TEST(SecurityKey, No1ComparisonLooksAtEveryByte) {
  EXPECT_TRUE(same_key("secret", "secret"));
  EXPECT_FALSE(same_key("secreT", "secret"));
  EXPECT_FALSE(same_key("Secret", "secret"));
  EXPECT_FALSE(same_key("", "secret"));
  EXPECT_FALSE(same_key("secretsecret", "secret"));
  EXPECT_FALSE(same_key("secre", "secret"));
}

TEST_F(Security, No1WithoutAKeyAuthorizationIsIgnored) {
  start_without_model();
  EXPECT_EQ(client().get("/api/runs", "Authorization: Bearer whatever\r\n").status, 200);
}

// --- 2. where a request comes from

TEST_F(Security, No2OnlyOwnNamesAreAnswered) {
  options_.http.access.allow_hosts = {"ddl.example.org"};
  start_without_model();
  for (const char* own : {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:80",
                          "ddl.example.org", "ddl.example.org:443"})
    EXPECT_EQ(status_with(fmt::format("Host: {}\r\n", own)), 200) << own;
  for (const char* foreign : {"evil.example.org", "localhost.evil.org", "127.0.0.2", "", "x.ddl.example.org",
                              "localhost@evil.org", "[::2]", "0.0.0.0"})
    EXPECT_EQ(status_with(fmt::format("Host: {}\r\n", foreign)), 403) << foreign;
  EXPECT_EQ(status_with(""), 403) << "no Host";
  EXPECT_EQ(raw("GET /health HTTP/1.1\r\nHost: evil.org\r\n\r\n").error("code"), "foreign_host")
      << "health, too";
}

TEST_F(Security, No2ForeignOriginsAreRefusedAndNoneIsInvited) {
  start_without_model();
  const auto with = [&](const std::string& origin) {
    return client().get("/api/runs", "Origin: " + origin + "\r\n");
  };
  EXPECT_EQ(with("http://localhost").status, 200) << "the Host of the client of these tests";
  for (const char* foreign : {"http://evil.org", "null", "http://localhost.evil.org", "http://localhost:99",
                              "localhost", "file://localhost", "http://127.0.0.1"})
    EXPECT_EQ(with(foreign).status, 403) << foreign;
  for (const auto& [name, value] : with("http://localhost").headers)
    EXPECT_FALSE(name.starts_with("access-control-")) << name;
  const Reply preflight =
      raw("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
          "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(preflight.status, 405);
}

TEST_F(Security, No2OtherSitesMayOnlyLinkHere) {
  start_without_model();
  const auto with = [&](const char* site, const char* mode, const char* dest) {
    return client().get("/", fmt::format("Sec-Fetch-Site: {}\r\nSec-Fetch-Mode: {}\r\nSec-Fetch-Dest: {}\r\n",
                                         site, mode, dest));
  };
  for (const char* own : {"same-origin", "none"}) EXPECT_EQ(with(own, "no-cors", "image").status, 200) << own;
  for (const char* foreign : {"cross-site", "same-site"}) {
    EXPECT_EQ(with(foreign, "navigate", "document").status, 200) << "a link, " << foreign;
    EXPECT_EQ(with(foreign, "no-cors", "image").error("code"), "foreign_origin") << foreign;
    EXPECT_EQ(with(foreign, "no-cors", "script").status, 403) << foreign;
    EXPECT_EQ(with(foreign, "navigate", "iframe").status, 403) << foreign;
    EXPECT_EQ(with(foreign, "cors", "empty").status, 403) << foreign;
  }
}

TEST_F(Security, No2PostsAreJson) {
  start();
  const auto with = [&](const std::string& type) {
    const std::string body = R"({"prompt":"a","max_tokens":1})";
    return raw(fmt::format(
                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", type,
                   body.size(), body))
        .status;
  };
  EXPECT_EQ(with("Content-Type: application/json\r\n"), 200);
  EXPECT_EQ(with("Content-Type: Application/JSON; charset=utf-8\r\n"), 200);
  for (const char* other :
       {"", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/jsonx\r\n", "Content-Type: multipart/form-data\r\n"})
    EXPECT_EQ(with(other), 415) << other;
}

// --- 3. sizes and times

TEST_F(Security, No3HeadersAreLimited) {
  start_without_model();
  EXPECT_EQ(client().get("/api/runs", "X: " + std::string(15 << 10, 'x') + "\r\n").status, 200);
  EXPECT_EQ(client().get("/api/runs", "X: " + std::string(17 << 10, 'x') + "\r\n").status, 431);
  EXPECT_EQ(client().get("/" + std::string(17 << 10, 'x')).status, 431);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(client().get("/api/runs", many).status, 431);
}

TEST_F(Security, No3BodiesAreLimitedChunkedOrNot) {
  start();
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::string large(1 << 20, ' ');
  EXPECT_EQ(client()
                .post("/v1/completions", large.substr(0, (1 << 20) - 40) + R"({"prompt":"a","max_tokens":1})")
                .status,
            200);
  EXPECT_EQ(client().post("/v1/completions", large + "x").status, 413);
  EXPECT_EQ(raw(head + "Content-Length: 99999999999999\r\n\r\n").status, 413) << "before the body comes";
  EXPECT_EQ(raw(head + "Content-Length: 99999999999999999999999999\r\n\r\n").status, 400);
  Client chunked = client();
  chunked.send(head + "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "8000\r\n" + std::string(0x8000, ' ') + "\r\n";
  for (int i = 0; i < 34; ++i)
    if (!chunked.send(chunk)) break;
  EXPECT_EQ(chunked.answer().status, 413);
  Client extension = client();  // a chunk's size is followed by what no limit of bodies counts
  extension.send(head + "Transfer-Encoding: chunked\r\n\r\n5;");
  for (int i = 0; i < 64; ++i)
    if (!extension.send(std::string(4096, 'x'))) break;
  const int status = extension.answer().status;
  EXPECT_TRUE(status == 413 || status == 400 || status == 431) << status;
}

TEST_F(Security, No3JsonIsLimitedInDepth) {
  start();
  const auto nested = [](int depth) {
    return R"({"prompt":"a","max_tokens":1,"metadata":)" +
           std::string(static_cast<std::size_t>(depth - 1), '[') +
           std::string(static_cast<std::size_t>(depth - 1), ']') + "}";
  };
  EXPECT_EQ(client().post("/v1/completions", nested(32)).status, 200);
  EXPECT_EQ(client().post("/v1/completions", nested(33)).error("code"), "invalid_json");
  EXPECT_EQ(client().post("/v1/completions", nested(400'000)).error("code"), "invalid_json");
}

TEST_F(Security, No3DeadlinesAreOfTheWhole) {
  HttpLimits& limits = options_.http.limits;
  EXPECT_EQ(limits.header_s, 10);
  EXPECT_EQ(limits.body_s, 30);
  EXPECT_EQ(limits.write_s, 10);
  EXPECT_EQ(limits.idle_s, 60);
  limits.header_s = 0.4, limits.body_s = 0.4, limits.idle_s = 0.4;
  start_without_model();
  Client silent = client(), slow_header = client(), slow_body = client(), idle = client();
  slow_header.send("GET / HTTP/1.1\r\n");
  slow_body.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(idle.get("/health").status, 200);
  for (int i = 0; i < 30; ++i) {  // a byte now and then
    slow_header.send("x");
    slow_body.send(" ");
    pause_for(0.03);
  }
  EXPECT_TRUE(silent.ends_within(0.2));
  EXPECT_TRUE(slow_header.ends_within(0.2));
  EXPECT_TRUE(slow_body.ends_within(0.2));
  EXPECT_TRUE(idle.ends_within(0.2));
}

// --- 4. numbers

TEST_F(Security, No4ConnectionsAreLimited) {
  EXPECT_EQ(options_.http.limits.connections, 256);
  options_.http.limits.connections = 8;
  start_without_model();
  std::vector<Client> open;
  for (int i = 0; i < 8; ++i) {
    open.push_back(client());
    ASSERT_EQ(open.back().get("/health").status, 200);
  }
  Client more = client();
  const Reply refused = more.answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  open.pop_back();
  EXPECT_TRUE(soon([&] { return client().get("/health").status == 200; }));
}

TEST_F(Security, No4TheQueueIsLimited) {
  options_.models.slots = 1;
  start();
  const std::string body =
      to_line(Json{{"prompt", "a"}, {"max_tokens", 90}, {"n", 16}, {"logit_bias", {{"256", -100}}}});
  std::vector<Client> waiting;
  for (int i = 0; i < 120; ++i) {
    waiting.push_back(client());
    waiting.back().send_post("/v1/completions", body);
  }
  int refused = 0, pending = 0;
  for (Client& each : waiting) {
    const Reply answer = each.answer(0.05);
    if (answer.status == 429) {
      ++refused;
      EXPECT_EQ(answer.headers.at("retry-after"), "1");
      EXPECT_EQ(answer.error("type"), "rate_limit_error");
    } else if (answer.status == 0) {
      ++pending;
    }
  }
  EXPECT_GE(refused, 120 - 64 - 16);
  EXPECT_LE(pending, 64 + 2);
  waiting.clear();
  EXPECT_TRUE(all_free());
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 200);
}

// --- 5. attacks

TEST_F(Security, No5SlowSendersHoldUpNobody) {
  options_.http.limits.header_s = 1.5;
  start_without_model();
  const double quiet = median_of([&] { return get("/health").seconds; });
  std::vector<Client> slow;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(client());
    slow.back().send("GET / HTTP/1.1\r\nX: ");
  }
  EXPECT_LT(median_of([&] {
              for (Client& each : slow) each.send("x");
              return get("/health").seconds;
            }),
            0.1 + 3 * quiet)
      << "on a busy machine nothing is quick: " << quiet;
  pause_for(1.6);
  for (Client& each : slow) EXPECT_TRUE(each.ends_within(0.1)) << "none is alive after its time";
}

TEST_F(Security, No5FloodsDoNotGrowMemory) {
  start();
  get("/health");
  const std::size_t before = resident_bytes();
  std::size_t most = before;
  const std::string piece(1 << 20, 'x');
  for (const char* beginning :
       {"", "GET / HTTP/1.1\r\nX: ",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 209715200\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nc800000\r\n"}) {
    Client one = client();
    one.send(beginning);
    for (int mib = 0; mib < 200; ++mib) {
      if (!one.send(piece, 5)) break;
      most = std::max(most, resident_bytes());
    }
  }
  EXPECT_LT(most - before, std::size_t{4} << 20);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Security, No5AHundredClientsKilledInTheirStreams) {
  start();
  for (int round = 0; round < 2; ++round) {
    std::vector<Client> clients;
    for (int i = 0; i < 50; ++i) {
      clients.push_back(client());
      clients.back().send_post("/v1/completions",
                               to_line(Json{{"prompt", "a"}, {"max_tokens", 90}, {"stream", true}}));
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (i % 3 == 0) clients[i].head(0.2);
      i % 2 ? clients[i].reset() : clients[i].close();
    }
  }
  EXPECT_TRUE(all_free());
  EXPECT_TRUE(soon([&] { return contains(get("/metrics").body, "ddl_connections 1\n"); }))
      << get("/metrics").body;
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 200);
}

// --- 6. what can be seen

TEST_F(Security, No6NothingOfTheFileSystemIsReachable) {
  folder_.write("runs/a/metrics.jsonl", "{}\n");
  options_.watch = {folder_ / "runs"};
  start();
  for (const char* path :
       {"/../server.cc", "/..%2f..%2fetc/passwd", "/etc/passwd", "//etc/passwd", "/page/index.html",
        "/api/runs/../../m/config.json", "/api/runs/%2e%2e%2f%2e%2e%2fm", "/index.html%00.js", "/.",
        "/./index.html", "/api/runs/a/metrics.jsonl"})
    EXPECT_EQ(get(path).status, 404) << path;
  for (const char* model : {"../m", "/etc", "m/../m", "./m"})
    EXPECT_EQ(post("/v1/completions", {{"model", model}, {"prompt", "a"}}).status, 404) << model;
  const std::string all = get("/v1/models").body + get("/api/runs").body +
                          post("/v1/completions", {{"model", "x"}, {"prompt", "a"}}).body;
  EXPECT_FALSE(contains(all, folder_.path())) << "no path of the machine";
}

// The server's own trouble is not the request's fault, and says nothing about its files.
TEST_F(Security, No6WhatCannotBeReadIsNamedWithoutItsPath) {
  write_checkpoint(folder_ / "run", 10, small_weights("ddl-cc", 1));
  write_checkpoint(folder_ / "run", 20, small_weights("ddl-cc", 2));
  folder_.write("run/checkpoints/step-00000010/model.safetensors", "damaged");
  folder_.write("runs/s/study.toml", "title = 3");
  folder_.write("runs/a/audit.json", "{");
  options_.watch = {folder_ / "runs"};
  options_.models.paths = {folder_ / "run"};
  start_without_model();
  const Reply checkpoint = post("/v1/completions", {{"model", "run@10"}, {"prompt", "a"}});
  EXPECT_EQ(checkpoint.status, 503);
  EXPECT_EQ(checkpoint.error("code"), "not_loaded");
  for (const Reply& answer :
       {checkpoint, get("/report?study=s"), get("/api/reports?study=s"), get("/report?audit=a")}) {
    EXPECT_GE(answer.status, 500) << answer.body;
    EXPECT_FALSE(contains(answer.body, folder_.path())) << answer.body;
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Security, No6EveryAnswerHasItsHeaders) {
  start_without_model();
  for (const char* path : {"/", "/health", "/none", "/api/runs"}) {
    const Reply answer = get(path);
    EXPECT_TRUE(answer.headers.at("content-security-policy").starts_with("default-src 'self'")) << path;
    EXPECT_TRUE(contains(answer.headers.at("content-security-policy"), "frame-ancestors 'none'")) << path;
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff") << path;
    EXPECT_EQ(answer.headers.at("cache-control"), "no-store") << path;
  }
}

// Whatever a body holds, the answer is 200 or 4xx and says why; and the server goes on.
TEST_F(Security, MalformedBodiesAreAnswered) {
  start();
  const std::vector<std::string> seeds{
      R"({"model":"m","prompt":"abc","max_tokens":2,"temperature":0.5,"stop":["x"],"logprobs":1,"echo":true,"n":2,"seed":1})",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2,"logprobs":true,"top_logprobs":2})",
      R"({"model":"m","input":["abc",[1,2,3]],"encoding_format":"base64"})",
      R"({"model":"m","prompt":[1,2,3],"clamp":{"sublayer":1,"series":"gate","value":0},"max_tokens":2,"series":["gate"]})",
      R"({"model":"m","prompt":"abc","add_special_tokens":true})",
      R"({"model":"m","tokens":[1,2,3]})"};
  const std::vector<std::string> targets{"/v1/completions", "/v1/chat/completions",
                                         "/v1/embeddings",  "/v1/ddl/trace",
                                         "/tokenize",       "/detokenize"};
  const std::vector<std::string> pieces{
      "null", "-1", "1e999", "\"\"", "[]", "{}",  "true",   "9999999999999999999", "\\u0000", "\xff",
      "[[",   "}}", ",",     "\"",   ":",  "0.5", "\\ud800"};
  const Random random(1, "bodies");
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(draw++, n)); };
  const double until = now() + 3;
  Client one = client();
  int count = 0;
  for (; now() < until && count < 3000; ++count) {
    std::string body = seeds[below(seeds.size())];
    for (std::size_t edits = below(4); edits-- > 0 && !body.empty();) {
      const std::size_t at = below(body.size());
      switch (below(4)) {
        case 0:
          body.erase(at, 1 + below(8));
          break;
        case 1:
          body.insert(at, pieces[below(pieces.size())]);
          break;
        case 2:
          body[at] = static_cast<char>(below(256));
          break;
        default:
          body.replace(at, 1 + below(6), pieces[below(pieces.size())]);
      }
    }
    const Reply answer = one.post(targets[below(targets.size())], body);
    ASSERT_TRUE(answer.status == 200 || (answer.status >= 400 && answer.status < 500))
        << answer.status << " " << body << "\n"
        << answer.body;
    ASSERT_TRUE(answer.status == 200 || answer.error("message").is_string()) << body;
  }
  EXPECT_GT(count, 20);
  EXPECT_TRUE(all_free());
}

TEST_F(Security, PromptsAreNotWrittenDown) {
  start();
  const std::string secret = "my own secret words";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto status = [&](const char* target, const Json& body) { return post(target, body).status; };
  EXPECT_EQ(status("/v1/completions", {{"prompt", secret}, {"max_tokens", 3}}), 200);
  EXPECT_EQ(status("/v1/completions", {{"prompt", secret}, {"temperature", 9}}), 400);
  EXPECT_EQ(status("/v1/chat/completions", {{"messages", {{{"role", secret}, {"content", secret}}}}}), 400);
  EXPECT_EQ(status("/v1/ddl/trace", {{"prompt", secret}}), 200);
  EXPECT_EQ(status("/tokenize", {{"prompt", secret}}), 200);
  std::fflush(nullptr);
  const std::string said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_FALSE(contains(said, secret)) << said;
}

}  // namespace
}  // namespace ddl
