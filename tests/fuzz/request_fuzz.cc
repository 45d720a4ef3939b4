// Any bytes as the body of a request, without the sockets: an answer, and never one that blames the server. The first
// byte chooses the endpoint.
#include <condition_variable>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "data/tokenizer.h"
#include "fuzz/driver.h"
#include "model/weights.h"
#include "serve/endpoints.h"

namespace {

constexpr const char* kPaths[] = {
    "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/ddl/trace", "/tokenize", "/detokenize"};

class WaitingReply final : public ddl::HttpReply {
 public:
  void send(ddl::HttpResponse response) override { end(response.status); }
  void start_stream(ddl::HttpResponse) override {}
  void write(std::string piece) override {
    if (piece.find("\"server_error\"") != std::string::npos) end(500);
  }
  void finish() override { end(200); }
  bool gone() const override { return false; }

  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return status_ != 0; });
    return status_;
  }

 private:
  void end(int status) {
    const std::lock_guard lock(mutex_);
    if (status_ == 0) status_ = status;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
};

ddl::ServedModelPtr small_model() {
  ddl::ModelConfig config;
  config.layers = 1, config.width = 16, config.heads = 2, config.vocab = 260, config.context = 32;
  config.precision = ddl::Precision::kF32;
  const ddl::Exec ex;
  return std::make_shared<ddl::ServedModel>(
      "m", ddl::LoadedModel{"m", ddl::Weights(config, 1, ex), ddl::load_tokenizer("bytes")}, 4, ex);
}

struct Endpoints {
  Endpoints() {
    ddl::add_completions(router, models, compute);
    ddl::add_chat(router, models, compute);
    ddl::add_embeddings(router, models, compute);
    ddl::add_trace(router, models, compute);
    ddl::add_tokenize(router, models);
  }
  ddl::ModelShelf models{{.paths = {}, .ready = {small_model()}}, ddl::Exec{}};
  ddl::ComputeThread compute{ddl::Exec{}};
  ddl::Worker worker;
  ddl::Router router{worker};
};

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      R"(0{"model":"m","prompt":"abc","max_tokens":2,"stop":["x"],"logprobs":1,"echo":true,"n":2,"seed":1})",
      R"(0{"prompt":[[1,2],[3]],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true},"logit_bias":{"5":-3}})",
      R"(1{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"logprobs":true,"top_logprobs":2})",
      R"(2{"input":["abc",[1,2,3]],"encoding_format":"base64"})",
      R"(3{"prompt":[1,2,3],"clamp":{"sublayer":1,"series":"gate","value":0},"max_tokens":2,"series":["gate"]})",
      R"(4{"prompt":"abc","add_special_tokens":true})",
      R"(5{"tokens":[1,2,3]})"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Endpoints endpoints;
  if (size == 0) return 0;
  const auto reply = std::make_shared<WaitingReply>();
  ddl::HttpRequest request;
  request.method = "POST";
  request.path = kPaths[data[0] % std::size(kPaths)];
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  endpoints.router.handle(std::move(request), reply);
  if (reply->wait() >= 500) std::abort();
  return 0;
}
