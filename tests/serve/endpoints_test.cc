// The endpoints other than /v1/completions.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "core/base64.h"
#include "serve/compute_thread.h"
#include "serve/serve_testing.h"

namespace ddl {
namespace {

class EndpointsTest : public ServerTest {
 protected:
  EndpointsTest() { start(); }
  Json good(const Reply& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
};

TEST_F(EndpointsTest, ChatIsACompletionOfOnePlainFormat) {
  const Json messages = Json::array({{{"role", "system"}, {"content", "Be kind."}},
                                     {{"role", "user"}, {"content", "Hi"}},
                                     {{"role", "assistant"}, {"content", "Ho"}},
                                     {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Bye"}}}}}});
  const Json chat = good(post("/v1/chat/completions", {{"model", "m"},
                                                       {"messages", messages},
                                                       {"max_tokens", 12},
                                                       {"temperature", 0},
                                                       {"logprobs", true},
                                                       {"top_logprobs", 2}}));
  EXPECT_TRUE(chat["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(chat["object"], "chat.completion");
  const Json& choice = chat["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_TRUE(choice["message"]["refusal"].is_null());
  const Json text = good(post(
      "/v1/completions", {{"model", "m"},
                          {"max_tokens", 12},
                          {"temperature", 0},
                          {"prompt", "Be kind.\n\nUser: Hi\n\nAssistant: Ho\n\nUser: Bye\n\nAssistant:"}}));
  std::string expected = text["choices"][0]["text"];
  if (expected.starts_with(' ')) expected.erase(0, 1);
  EXPECT_EQ(choice["message"]["content"], expected);
  const Json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), chat["usage"]["completion_tokens"].get<std::size_t>());
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["token"], content[0]["top_logprobs"][0]["token"]);
  EXPECT_EQ(content[0]["bytes"].size(), 1u);

  Client one = client();
  one.send_post("/v1/chat/completions", to_line(Json{{"model", "m"},
                                                     {"messages", messages},
                                                     {"max_completion_tokens", 12},
                                                     {"temperature", 0},
                                                     {"stream", true}}));
  EXPECT_EQ(one.head().status, 200);
  std::string streamed, role, last;
  while (const auto event = one.event()) {
    if ((last = *event) == "[DONE]") break;
    const Json chunk = parse_json(last);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    const Json& delta = chunk["choices"][0]["delta"];
    if (delta.contains("role")) role = delta["role"];
    if (delta.contains("content")) streamed += delta["content"].get<std::string>();
  }
  EXPECT_EQ(last, "[DONE]");
  EXPECT_EQ(role, "assistant");
  EXPECT_EQ(streamed, expected);
}

TEST_F(EndpointsTest, ChatNamesWhatItCannotDo) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  const std::vector<std::pair<const char*, Json>> wrong{{"tools", Json::array()},
                                                        {"response_format", {{"type", "json_object"}}},
                                                        {"functions", Json::array()},
                                                        {"top_logprobs", 3},
                                                        {"max_tokens", 0},
                                                        {"messages", Json::array()},
                                                        {"messages", "Hi"}};
  for (const auto& [name, value] : wrong) {
    Json body{{"model", "m"}, {"messages", messages}};
    body[name] = value;
    const Reply answer = post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_EQ(answer.error("param"), name) << answer.body;
  }
  const auto param_of = [&](const Json& message) {
    return post("/v1/chat/completions", {{"model", "m"}, {"messages", Json::array({message})}})
        .error("param");
  };
  EXPECT_EQ(param_of({{"role", "king"}, {"content", "x"}}), "messages[0].role");
  EXPECT_EQ(param_of({{"role", "user"}}), "messages[0].content");
  EXPECT_EQ(param_of({{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", "x"}}}}}),
            "messages[0].content[0].type");
  EXPECT_EQ(good(post("/v1/chat/completions", {{"model", "m"},
                                               {"messages", messages},
                                               {"max_tokens", 1},
                                               {"response_format", {{"type", "text"}}}}))["choices"]
                .size(),
            1u);
}

TEST_F(EndpointsTest, EmbeddingsAreUnitVectorsInBothForms) {
  const Json floats = good(post("/v1/embeddings", {{"model", "m"}, {"input", {"one", "two", "one"}}}));
  ASSERT_EQ(floats["data"].size(), 3u);
  const auto first = floats["data"][0]["embedding"].get<std::vector<float>>();
  ASSERT_EQ(first.size(), 32u);
  double square = 0;
  for (const float x : first) square += static_cast<double>(x) * x;
  EXPECT_NEAR(square, 1, 1e-5);
  EXPECT_EQ(floats["data"][2]["embedding"], floats["data"][0]["embedding"]);
  EXPECT_NE(floats["data"][1]["embedding"], floats["data"][0]["embedding"]);
  EXPECT_EQ(floats["usage"]["prompt_tokens"], 12);
  const Json packed =
      good(post("/v1/embeddings", {{"model", "m"}, {"input", "one"}, {"encoding_format", "base64"}}));
  const auto bytes = decode_base64(packed["data"][0]["embedding"].get<std::string>());
  ASSERT_TRUE(bytes && bytes->size() == 32 * sizeof(float));
  std::vector<float> unpacked(32);
  std::memcpy(unpacked.data(), bytes->data(), bytes->size());
  EXPECT_EQ(unpacked, first) << "alone or with others";
  EXPECT_EQ(
      good(post("/v1/embeddings", {{"model", "m"}, {"input", {256, 'o', 'n', 'e'}}}))["data"][0]["embedding"],
      floats["data"][0]["embedding"]);
  EXPECT_EQ(post("/v1/embeddings", {{"model", "m"}, {"input", ""}}).status, 200) << "end of text alone";
  EXPECT_EQ(post("/v1/embeddings", {{"model", "m"}, {"input", Json::array()}}).error("param"), "input");
  EXPECT_EQ(post("/v1/embeddings", {{"model", "m"}, {"input", "x"}, {"dimensions", 5}}).error("param"),
            "dimensions");
  EXPECT_EQ(post("/v1/embeddings", {{"model", "m"}, {"input", std::string(200, 'x')}}).error("code"),
            "context_length_exceeded");
}

TEST_F(EndpointsTest, TokensThereAndBack) {
  const std::string text = "h\u00e9llo";
  const Json tokens = good(post("/tokenize", {{"prompt", text}}));
  EXPECT_EQ(tokens["tokens"], Json({256, 'h', 0xC3, 0xA9, 'l', 'l', 'o'}));
  EXPECT_EQ(tokens["count"], 7);
  EXPECT_EQ(
      good(post("/tokenize", {{"model", "m"}, {"prompt", text}, {"add_special_tokens", false}}))["count"], 6);
  EXPECT_EQ(good(post("/tokenize", {{"prompt", "<|endoftext|>"}, {"add_special_tokens", false}}))["tokens"],
            Json({256}));
  EXPECT_EQ(good(post("/tokenize", {{"prompt", "<|endoftext|>a"}, {"add_special_tokens", false}}))["count"],
            14);
  EXPECT_EQ(good(post("/detokenize", {{"tokens", {'h', 0xC3, 0xA9}}}))["prompt"], "h\u00e9");
  EXPECT_EQ(post("/detokenize", {{"tokens", {260}}}).error("param"), "tokens");
  EXPECT_EQ(post("/detokenize", {{"tokens", "x"}}).error("param"), "tokens");
  const Json info = good(get("/tokenizer_info"));
  EXPECT_EQ(info["eos_token"], "<|endoftext|>");
  EXPECT_EQ(info["eos_token_id"], 256);
}

TEST_F(EndpointsTest, ModelsHealthAndMetrics) {
  const Json models = good(get("/v1/models"));
  EXPECT_EQ(models["object"], "list");
  ASSERT_EQ(models["data"].size(), 1u);
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["ddl"]["residual"], "ddl-cc");
  EXPECT_EQ(good(get("/v1/models/m"))["id"], "m");
  EXPECT_EQ(get("/v1/models/x").status, 404);
  EXPECT_EQ(good(get("/health"))["status"], "ok");
  good(post("/v1/completions",
            {{"model", "m"}, {"prompt", "abc"}, {"max_tokens", 4}, {"logit_bias", {{"256", -100}}}}));
  EXPECT_TRUE(all_free());
  const std::string metrics = get("/metrics").body;
  EXPECT_TRUE(contains(metrics, "ddl_generated_tokens_total 4\n")) << metrics;
  EXPECT_TRUE(contains(metrics, "ddl_prompt_tokens_total 4\n")) << metrics;
  EXPECT_TRUE(contains(metrics, "ddl_sequences_live 0\n"));
}

TEST_F(EndpointsTest, TraceShowsEverySublayer) {
  const Json trace = good(post("/v1/ddl/trace", {{"model", "m"}, {"prompt", "abcd"}}));
  ASSERT_EQ(trace["tokens"].size(), 5u);
  EXPECT_EQ(trace["tokens"][1]["text"], "a");
  ASSERT_EQ(trace["sublayers"].size(), 4u);
  for (const Json& sublayer : trace["sublayers"]) {
    const Json& series = sublayer["series"];
    ASSERT_EQ(series["gate"]["values"].size(), 5u);
    EXPECT_EQ(series["gate"]["range"], Json({0.0, 2.0}));
    const std::size_t channels = series["target"]["values"][0].size();
    for (std::size_t t = 0; t < 5; ++t) {
      const double gate = series["gate"]["values"][t];
      EXPECT_TRUE(gate > 0 && gate < 2);
      double sum = 0;
      for (std::size_t d = 0; d < channels; ++d)
        sum += std::abs(series["target"]["values"][t][d].get<double>() -
                        series["readout"]["values"][t][d].get<double>());
      EXPECT_NEAR(sublayer["discrepancy_before"][t].get<double>(), sum / static_cast<double>(channels), 1e-9);
      EXPECT_NEAR(sublayer["discrepancy_after"][t].get<double>(),
                  std::abs(1 - gate) * sum / static_cast<double>(channels), 1e-9);
    }
  }
  // The probabilities are those of the echo.
  const Json echo =
      good(post("/v1/completions",
                {{"model", "m"}, {"prompt", "abcd"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}}));
  for (std::size_t t = 1; t < 5; ++t)
    EXPECT_NEAR(trace["tokens"][t]["logprob"].get<double>(),
                echo["choices"][0]["logprobs"]["token_logprobs"][t - 1].get<double>(), 1e-4);
  EXPECT_EQ(good(post("/v1/ddl/trace",
                      {{"model", "m"}, {"prompt", "abcd"}, {"series", {"gate"}}}))["sublayers"][0]["series"]
                .size(),
            1u);
}

TEST_F(EndpointsTest, AClampedGateChangesWhatFollows) {
  const Json plain = good(post("/v1/ddl/trace", {{"model", "m"}, {"prompt", "abcd"}, {"max_tokens", 8}}));
  const Json text = good(
      post("/v1/completions", {{"model", "m"}, {"prompt", "abcd"}, {"max_tokens", 8}, {"temperature", 0}}));
  EXPECT_EQ(plain["completion"]["text"], text["choices"][0]["text"]);
  EXPECT_EQ(plain["completion"]["logprobs"]["top_logprobs"][0].size(), 5u);
  const Json body{{"model", "m"},
                  {"prompt", "abcd"},
                  {"max_tokens", 8},
                  {"clamp", {{"sublayer", 1}, {"series", "gate"}, {"value", 0}}}};
  const Json clamped = good(post("/v1/ddl/trace", body));
  for (const Json& gate : clamped["sublayers"][1]["series"]["gate"]["values"]) EXPECT_EQ(gate, 0.0);
  EXPECT_NE(clamped["tokens"][4]["logprob"], plain["tokens"][4]["logprob"]);
  EXPECT_EQ(good(post("/v1/ddl/trace", {{"model", "m"}, {"prompt", "abcd"}, {"max_tokens", 8}})), plain)
      << "the clamp was for one request";
  const auto param_of = [&](const Json& clamp) {
    return post("/v1/ddl/trace", {{"model", "m"}, {"prompt", "a"}, {"clamp", clamp}}).error("param");
  };
  EXPECT_EQ(param_of({{"sublayer", 4}, {"value", 0}}), "clamp.sublayer");
  EXPECT_EQ(param_of({{"sublayer", 0}}), "clamp.value");
  EXPECT_EQ(param_of({{"sublayer", 0}, {"value", "x"}}), "clamp.value");
  EXPECT_EQ(param_of({{"sublayer", 0}, {"value", 0}, {"series", "none"}}), "clamp");
  EXPECT_EQ(param_of(5), "clamp");
}

TEST_F(EndpointsTest, TraceWritesWithTopP) {
  const auto written = [&](const Json& top_p, double temperature) {
    Json body{{"prompt", "abc"}, {"max_tokens", 12}, {"temperature", temperature}, {"seed", 3}};
    if (!top_p.is_null()) body["top_p"] = top_p;
    return good(post("/v1/ddl/trace", body))["completion"]["text"];
  };
  EXPECT_EQ(written(0, 2), written(nullptr, 0)) << "the most likely token alone";
  EXPECT_NE(written(nullptr, 2), written(nullptr, 0));
  EXPECT_EQ(post("/v1/ddl/trace", {{"prompt", "a"}, {"top_p", 2}}).error("param"), "top_p");
}

TEST_F(EndpointsTest, TraceOfOneToken) {
  const Json trace = good(post("/v1/ddl/trace", {{"prompt", ""}, {"max_tokens", 1}}));
  EXPECT_EQ(trace["tokens"].size(), 2u);
  EXPECT_TRUE(trace["tokens"][0]["logprob"].is_null());
}

class Rules : public ServerTest {};

TEST_F(Rules, WithoutAGateAreTracedByWhatTheyHave) {
  for (const char* rule : {"baseline", "highway", "hc"}) {
    TestFolder folder;
    options_.models.paths = {write_model(folder / "m", small_weights(rule))};
    start_without_model();
    const Reply answer = post("/v1/ddl/trace", {{"prompt", "abc"}});
    EXPECT_EQ(answer.status, 200) << rule << answer.body;
    EXPECT_EQ(answer.json()["sublayers"].size(), 4u);
    EXPECT_EQ(post("/v1/embeddings", {{"input", "abc"}}).status, 200) << rule;
    EXPECT_EQ(post("/v1/completions", {{"prompt", "abc"}}).status, 200) << rule;
    server_.reset();
  }
}

TEST_F(Rules, SmallWeightsServeEverythingToo) {
  for (const char* format : {"bf16", "q8"}) {
    TestFolder folder;
    options_.models.paths = {write_model(folder / "m", small_weights())};
    options_.models.load.weights = format;
    start_without_model();
    EXPECT_EQ(post("/v1/ddl/trace", {{"prompt", "abc"}, {"max_tokens", 2}}).status, 200) << format;
    EXPECT_EQ(post("/v1/embeddings", {{"input", "abc"}}).status, 200) << format;
    EXPECT_EQ(post("/v1/completions", {{"prompt", "abc"}, {"echo", true}, {"logprobs", 1}}).status, 200)
        << format;
    EXPECT_TRUE(contains(get("/v1/models").body, format));
    server_.reset();
  }
}

TEST_F(ServerTest, ServesSeveralModelsAndCheckpointsByName) {
  write_checkpoint(folder_ / "run", 10, small_weights("ddl-cc", 1));
  write_checkpoint(folder_ / "run", 20, small_weights("ddl-cc", 2));
  options_.models.paths = {folder_ / "run", write_model(folder_ / "other/run", small_weights("baseline", 3))};
  start_without_model();
  EXPECT_EQ(server_->models().names(), (std::vector<std::string>{"run", "run-2"}));
  const auto text = [&](const std::string& model) {
    const Reply answer =
        post("/v1/completions", {{"model", model}, {"prompt", "a"}, {"temperature", 0}, {"max_tokens", 12}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["choices"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(text("run"), text("run@20"));
  EXPECT_NE(text("run@10"), text("run@20"));
  EXPECT_NE(text("run-2"), text("run"));
  EXPECT_EQ(get("/v1/models").json()["data"][0]["checkpoints"], Json({10, 20}));
  for (const char* none : {"run@30", "run@", "run@x", "run@-1", "@10", "none@10", "run@10/../20"})
    EXPECT_EQ(post("/v1/completions", {{"model", none}, {"prompt", "a"}}).status, 404) << none;
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).error("param"), "model") << "which of them?";
}

// However a checkpoint is called, it is in memory once; and no more than two are.
TEST_F(ServerTest, CheckpointsThatAreUsedAreLimited) {
  for (const Index step : {10, 20, 30, 40})
    write_checkpoint(folder_ / "run", step, small_weights("ddl-cc", static_cast<std::uint64_t>(step)));
  options_.models.paths = {folder_ / "run"};
  start_without_model();
  ModelShelf& models = server_->models();
  EXPECT_EQ(models.find("run@40"), models.find("run")) << "the newest is there already";
  ServedModelPtr first = models.find("run@10");
  EXPECT_EQ(models.find("run@0010"), first);
  EXPECT_EQ(first->name(), "run@10");
  const ServedModelPtr second = models.find("run@20");
  const Reply refused = post("/v1/completions", {{"model", "run@30"}, {"prompt", "a"}});
  EXPECT_EQ(refused.status, 503) << "two are in use";
  EXPECT_EQ(refused.error("code"), "too_many_checkpoints");
  EXPECT_EQ(models.find("run@10"), first) << "and stay";
  std::weak_ptr<ServedModel> left = first;
  first.reset();
  EXPECT_EQ(post("/v1/completions", {{"model", "run@30"}, {"prompt", "a"}}).status, 200);
  EXPECT_TRUE(left.expired());
  EXPECT_EQ(models.find("run@20"), second);
}

// What goes wrong outside of requests ends nothing: nobody reads what is said, a folder cannot be listed.
TEST_F(ServerTest, TheShelfsThreadOutlivesWhatGoesWrong) {
  write_checkpoint(folder_ / "run", 10, small_weights());
  options_.models.paths = {folder_ / "run"};
  options_.models.look_s = 0.02;
  options_.models.say = [](const std::string&) { throw std::runtime_error("the terminal is closed"); };
  start_without_model();
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 200);
  std::filesystem::rename(folder_ / "run/checkpoints", folder_ / "elsewhere");
  std::filesystem::create_directory_symlink("checkpoints", folder_ / "run/checkpoints");  // to itself
  pause_for(0.2);
  EXPECT_EQ(get("/v1/models").json()["data"][0]["checkpoints"], Json::array());
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 200);
}

TEST_F(ServerTest, TakesANewerCheckpointWithoutLosingRequests) {
  write_checkpoint(folder_ / "run", 10, small_weights("ddl-cc", 1));
  options_.models.paths = {folder_ / "run"};
  options_.models.look_s = 0.05;
  options_.models.slots = 2;
  start_without_model();
  const Json body{
      {"prompt", "a"}, {"temperature", 0}, {"max_tokens", 90}, {"n", 16}, {"logit_bias", {{"256", -100}}}};
  const Json before = post("/v1/completions", body).json()["choices"];
  Client under_way = client();
  under_way.send_post("/v1/completions", to_line(body));
  ASSERT_TRUE(soon([&] { return server_->load().live > 0; }));
  write_checkpoint(folder_ / "run", 20, small_weights("ddl-cc", 2));
  ASSERT_TRUE(soon([&] { return get("/v1/models").json()["data"][0]["ddl"]["step"] == 20; }));
  const Reply old = under_way.answer(60);
  EXPECT_EQ(old.status, 200);
  EXPECT_EQ(old.json()["choices"], before) << "it ends on the model it began with";
  EXPECT_NE(post("/v1/completions", body).json()["choices"], before);
  // A newer one that cannot be read changes nothing.
  write_checkpoint(folder_ / "run", 30, small_weights("ddl-cc", 3));
  folder_.write("run/checkpoints/step-00000030/model.safetensors", "damaged");
  pause_for(0.3);
  EXPECT_EQ(post("/v1/completions", body).status, 200);
}

TEST_F(ServerTest, FinishesWhatIsUnderWayBeforeItEnds) {
  start();
  Client under_way = client();
  under_way.send_post("/v1/completions", to_line(Json{{"prompt", "a"}, {"max_tokens", 90}, {"n", 16}}));
  ASSERT_TRUE(soon([&] { return server_->load().live > 0; }));
  EXPECT_TRUE(server_->drain(60));
  EXPECT_EQ(under_way.answer().status, 200);
}

// A model holds its sequences, and these what asked for them, which holds the model.
TEST(ComputeThreadEnd, LetsGoOfWhatIsNotFinished) {
  const TestFolder folder;
  auto model = std::make_shared<ServedModel>("m", write_model(folder / "m", small_weights()), LoadOptions{},
                                             1, Exec{});
  const std::weak_ptr<ServedModel> left = model;
  std::atomic<bool> writes{false};
  {
    ComputeThread compute(Exec{});
    ComputeJob job;
    job.model = model;
    job.abandoned = [] { return false; };
    job.sequences = [model, &writes] {
      Sequence sequence;
      sequence.prompt =
          std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>{256, 'a'});
      sequence.max_tokens = 90;
      sequence.sampling.logit_bias = {{256, -100}};
      sequence.on_token = [model, &writes](const std::string&, const std::optional<TokenScore>&) {
        writes = true;
        pause_for(0.01);
      };
      sequence.on_end = [](Sequence::End, const std::string&) {};
      return std::vector<Sequence>{sequence, sequence};  // one is written, one waits
    };
    ASSERT_TRUE(compute.submit(std::move(job)));
    ASSERT_TRUE(soon([&] { return writes.load(); }));
  }
  model.reset();
  EXPECT_TRUE(left.expired());
}

// What is asked while the connections are being closed still finds what it asks for.
TEST_F(ServerTest, EndsUnderAStormOfRequests) {
  constexpr int kAhead = 20;
  std::string several;
  for (int i = 0; i < kAhead; ++i) several += "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (int round = 0; round < 8; ++round) {
    start_without_model();
    std::vector<std::thread> askers;
    for (int i = 0; i < 8; ++i)
      askers.emplace_back([&several, port = server_->port()] {
        Client one(port);
        while (one.send(several))
          for (int k = 0; k < kAhead; ++k)
            if (one.answer().status != 200) return;
      });
    pause_for(0.03);
    server_.reset();
    for (std::thread& each : askers) each.join();
  }
}

TEST_F(ServerTest, RefusesFoldersThatAreNoModels) {
  options_.models.paths = {folder_ / "none"};
  EXPECT_THROW(Server(options_, Exec{}), UserError);
  folder_.write("half/config.json", "{}");
  options_.models.paths = {folder_ / "half"};
  EXPECT_THROW(Server(options_, Exec{}), UserError);
}

}  // namespace
}  // namespace ddl
