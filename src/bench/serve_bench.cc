#include "bench/serve_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/record.h"
#include "core/rng.h"
#include "model/engine.h"
#include "serve/server.h"

namespace ddl {
namespace {

// As many words as the model has tokens.
class Words final : public Tokenizer {
 public:
  explicit Words(Index count) : count_(count) {}
  void encode(std::string_view, std::vector<TokenId>& ids) const override { ids.push_back(0); }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) text += fmt::format(" w{}", id);
    return text;
  }
  Index vocab_size() const override { return count_; }
  TokenId end_of_text() const override { return static_cast<TokenId>(count_ - 1); }
  std::string name() const override { return "words"; }
  void save(const std::string&) const override {}

 private:
  Index count_;
};

// One request and its stream, over a socket.
struct Stream {
  double first_s = 0;        // from the request to the first event
  std::vector<double> at_s;  // when each event with text came

  void run(int port, const std::string& body) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      ::close(socket);
      return;
    }
    const std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    const double start = now();
    if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) > 0) read(socket, start);
    ::close(socket);
  }

 private:
  void read(int socket, double start) {
    constexpr std::string_view kText = "\"text\":\" ";
    std::string held;
    char piece[16384];
    for (ssize_t got; (got = ::recv(socket, piece, sizeof piece, 0)) > 0;) {
      held.append(piece, static_cast<std::size_t>(got));
      std::size_t at = 0;
      for (std::size_t found; (found = held.find(kText, at)) != std::string::npos;
           at = found + kText.size()) {
        at_s.push_back(now());
        if (at_s.size() == 1) first_s = at_s[0] - start;
      }
      held.erase(0, std::max(at, held.size() - std::min(held.size(), kText.size())));
    }
  }
};

struct Times {
  double decode_tokens_per_s = 0, served_tokens_per_s = 0;  // the best of each
  double prompt_s = 1e30, step_s = 1e30, first_s = 1e30;
};

class ServeBench {
 public:
  ServeBench(const ServeBenchOptions& options, const Exec& ex) : options_(options), ex_(ex) {}

  void run() {
    ModelConfig config = preset(options_.preset);
    config.use_residual(options_.residual);
    config.set("model.precision=" + options_.precision);
    if (options_.prompt + options_.tokens > config.context)
      throw UserError("--prompt and --tokens: {} + {} tokens are more than the context of {}",
                      options_.prompt, options_.tokens, config.context);
    const Random random(1, "prompt");
    for (Index i = 0; i < options_.prompt; ++i)
      prompt_.push_back(static_cast<std::int32_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(config.vocab))));
    auto model = std::make_shared<ServedModel>(
        "bench", LoadedModel{"bench", Weights(config, 1, ex_), std::make_unique<Words>(config.vocab)},
        options_.streams, ex_);
    const auto decoder = make_decoder(
        model->weights(), {.slots = options_.streams, .context = options_.prompt + options_.tokens}, ex_);
    ServeOptions serve;
    serve.http.port = 0;
    serve.models.ready = {model};
    Server server(serve, ex_);
    if (!options_.json)
      fmt::print(stderr, "{} streams of {} tokens after {}, {} rounds ...\n", options_.streams,
                 options_.tokens, options_.prompt, options_.rounds);
    Times times;
    for (Index round = 0; round < options_.rounds; ++round) {
      measure_decoder(*decoder, times);
      measure_server(server, times);
    }
    report(times, config);
  }

 private:
  void measure_decoder(Decoder& decoder, Times& times) const {
    for (Index slot = 0; slot < decoder.slots(); ++slot) decoder.reset(slot);
    const Decoder::Append whole{0, prompt_};
    double start = now();
    decoder.append({&whole, 1}, ex_);
    times.prompt_s = std::min(times.prompt_s, now() - start);
    std::vector<Decoder::Append> tokens;
    for (Index i = 0; i < decoder.slots(); ++i) {
      decoder.copy(i, 0);
      tokens.push_back({i, std::span(prompt_).first(1)});
    }
    start = now();
    for (Index step = 1; step < options_.tokens; ++step) {
      const double step_start = now();
      decoder.append(tokens, ex_);
      times.step_s = std::min(times.step_s, now() - step_start);
    }
    times.decode_tokens_per_s =
        std::max(times.decode_tokens_per_s,
                 static_cast<double>(decoder.slots() * (options_.tokens - 1)) / (now() - start));
  }

  std::string body(Index seed, Index tokens) const {
    return to_line(Json{{"prompt", prompt_},
                        {"max_tokens", tokens},
                        {"seed", seed},
                        {"stream", true},
                        {"logit_bias", {{std::to_string(preset(options_.preset).vocab - 1), -100}}}});
  }

  void measure_server(const Server& server, Times& times) const {
    Stream alone;
    alone.run(server.port(), body(0, 2));
    times.first_s = std::min(times.first_s, alone.first_s);
    std::vector<Stream> streams(static_cast<std::size_t>(options_.streams));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < streams.size(); ++i)
      threads.emplace_back(
          [&, i] { streams[i].run(server.port(), body(static_cast<Index>(i), options_.tokens)); });
    for (std::thread& thread : threads) thread.join();
    // While all of them write: after the last one's first token, and before the first one's last.
    double begin = 0, end = 1e30;
    for (const Stream& stream : streams) {
      if (std::ssize(stream.at_s) != options_.tokens)
        throw UserError("a stream had {} events instead of {}", stream.at_s.size(), options_.tokens);
      begin = std::max(begin, stream.at_s.front());
      end = std::min(end, stream.at_s.back());
    }
    Index events = 0;
    for (const Stream& stream : streams)
      events += std::count_if(stream.at_s.begin(), stream.at_s.end(),
                              [&](double at) { return at > begin && at <= end; });
    if (end > begin)
      times.served_tokens_per_s =
          std::max(times.served_tokens_per_s, static_cast<double>(events) / (end - begin));
  }

  void report(const Times& times, const ModelConfig& config) const {
    const double share = times.served_tokens_per_s / times.decode_tokens_per_s;
    Json record = make_record("serve");
    record["preset"] = options_.preset;
    record["residual"] = config.residual();
    record["precision"] = config.uses_bf16() ? "bf16" : "f32";
    record["streams"] = options_.streams;
    record["decode_tokens_per_s"] = times.decode_tokens_per_s;
    record["served_tokens_per_s"] = times.served_tokens_per_s;
    record["share"] = share;
    record["prompt_s"] = times.prompt_s;
    record["step_s"] = times.step_s;
    record["first_token_s"] = times.first_s;
    if (options_.json) {
      std::puts(to_line(record).c_str());
      return;
    }
    fmt::print(
        "{} {}, {}: {} streams of {} tokens after a prompt of {}; best of {} rounds.\n"
        "  decoder alone, batch {:<3} {:>9.1f} tokens/s\n"
        "  served, {:<3} streams     {:>9.1f} tokens/s   {:.0f}%\n"
        "  first token             {:>9.1f} ms         the prompt alone {:.1f} ms, a step {:.1f} ms\n",
        options_.preset, config.residual(), config.uses_bf16() ? "bf16" : "f32", options_.streams,
        options_.tokens, options_.prompt, options_.rounds, options_.streams, times.decode_tokens_per_s,
        options_.streams, times.served_tokens_per_s, 100 * share, 1e3 * times.first_s, 1e3 * times.prompt_s,
        1e3 * times.step_s);
  }

  const ServeBenchOptions options_;
  const Exec ex_;
  std::vector<std::int32_t> prompt_;
};

}  // namespace

void run_serve_bench(const ServeBenchOptions& options, const Exec& ex) { ServeBench(options, ex).run(); }

}  // namespace ddl
