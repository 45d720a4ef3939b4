// POST /v1/completions over a socket: every field, and the text as a function of the request.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <future>

#include "data/bpe.h"
#include "eval/scorer.h"
#include "infer/generation.h"
#include "model/engine.h"
#include "serve/serve_testing.h"

namespace ddl {
namespace {

using Tokens = std::vector<std::int32_t>;

class CompletionsTest : public ServerTest {
 protected:
  CompletionsTest() { start(weights_); }

  Json completion(Json body) {
    body["model"] = "m";
    const Reply answer = post("/v1/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::string text(const Json& body) { return completion(body)["choices"][0]["text"]; }

  // What `ddl generate` writes for the same prompt, seed and options.
  std::string generated(const std::string& prompt, GenerateOptions options, Index choice = 0) {
    const auto tokenizer = load_tokenizer("bytes");
    const auto decoder = make_decoder(weights_, {.slots = choice + 1}, Exec{.threads = 2});
    return generate(*decoder, *tokenizer, prompt, choice + 1, options, {}, Exec{.threads = 2})[choice].text;
  }

  const Weights weights_ = small_weights();
};

TEST_F(CompletionsTest, AnswersInOpenAisForm) {
  const Json json = completion({{"prompt", "Once"}, {"max_tokens", 8}, {"seed", 3}});
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "m");
  EXPECT_GT(json["created"].get<Index>(), 1'600'000'000);
  ASSERT_EQ(json["choices"].size(), 1u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_TRUE(choice["finish_reason"] == "length" || choice["finish_reason"] == "stop");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5) << "four bytes behind the end of text";
  EXPECT_LE(json["usage"]["completion_tokens"], 8);
  EXPECT_EQ(json["usage"]["total_tokens"].get<int>(), 5 + json["usage"]["completion_tokens"].get<int>());
  EXPECT_LE(completion({{"prompt", "Once"}})["usage"]["completion_tokens"], 16) << "the default";
}

TEST_F(CompletionsTest, WritesWhatGenerateWrites) {
  EXPECT_EQ(text({{"prompt", "Once"}, {"max_tokens", 20}, {"temperature", 0}}),
            generated("Once", {.max_new_tokens = 20, .sampling = {.temperature = 0}}));
  const Json body{{"prompt", "Once"}, {"max_tokens", 20}, {"temperature", 1.5},
                  {"seed", 7},        {"top_k", 40},      {"n", 3}};
  const Json three = completion(body);
  for (Index i = 0; i < 3; ++i)
    EXPECT_EQ(three["choices"][i]["text"],
              generated("Once",
                        {.max_new_tokens = 20, .sampling = {.temperature = 1.5, .top_k = 40, .seed = 7}}, i));
  EXPECT_NE(three["choices"][0]["text"], three["choices"][1]["text"]);
  EXPECT_EQ(completion(body)["choices"], three["choices"]);
  // A prompt of several pieces.
  const std::string long_prompt(90, 'x');
  EXPECT_EQ(text({{"prompt", long_prompt}, {"max_tokens", 5}, {"temperature", 0}}),
            generated(long_prompt, {.max_new_tokens = 5, .sampling = {.temperature = 0}}));
}

TEST_F(CompletionsTest, WithoutASeedTextsDiffer) {
  const Json body{{"prompt", "Once"}, {"max_tokens", 20}, {"temperature", 2}};
  EXPECT_NE(text(body), text(body));
}

TEST_F(CompletionsTest, TakesEveryFormOfPrompt) {
  const Json options{{"max_tokens", 6}, {"temperature", 0}};
  const auto with = [&](const Json& prompt) {
    Json body = options;
    body["prompt"] = prompt;
    return completion(body)["choices"];
  };
  const Json one = with("ab");
  EXPECT_EQ(with(Json::array({"ab"})), one);
  EXPECT_EQ(with(Json::array({256, 'a', 'b'})), one) << "nothing is put before token prompts";
  EXPECT_EQ(with(Json::array({Json::array({256, 'a', 'b'})})), one);
  EXPECT_NE(with(Json::array({'a', 'b'})), one);
  const Json several = with(Json::array({"ab", "cd"}));
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0]["text"], one[0]["text"]);
  EXPECT_EQ(several[1]["text"], with("cd")[0]["text"]);
  Json bare = options;
  bare["prompt"] = "ab", bare["add_special_tokens"] = false;
  EXPECT_EQ(completion(bare)["choices"][0]["text"], with(Json::array({'a', 'b'}))[0]["text"]);
}

TEST_F(CompletionsTest, StopsBeforeAStopString) {
  const std::string whole = text({{"prompt", "Once"}, {"max_tokens", 30}, {"temperature", 0}});
  // A part of it that is plain, so that it is one string in JSON, too.
  std::size_t at = 1;
  while (at + 2 < whole.size() && !(std::isprint(whole[at]) && std::isprint(whole[at + 1]))) ++at;
  ASSERT_LT(at + 2, whole.size());
  const std::string stop = whole.substr(at, 2);
  const Json json = completion({{"prompt", "Once"}, {"max_tokens", 30}, {"temperature", 0}, {"stop", stop}});
  EXPECT_EQ(json["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(completion({{"prompt", "Once"},
                        {"max_tokens", 30},
                        {"temperature", 0},
                        {"stop", {"none such", stop}}})["choices"],
            json["choices"]);
}

TEST_F(CompletionsTest, BiasAndPenaltiesChangeTheText) {
  const Json plain{{"prompt", "Once"}, {"max_tokens", 12}, {"temperature", 0}};
  Json biased = plain;
  biased["logit_bias"] = {{"122", 100}};
  EXPECT_EQ(text(biased), std::string(12, 'z'));
  biased["logit_bias"] = {{"122", 30}}, biased["max_tokens"] = 60;
  const std::string plain_z = text(biased);
  EXPECT_EQ(plain_z, std::string(60, 'z'));
  biased["frequency_penalty"] = 2;
  EXPECT_NE(text(biased), plain_z) << "thirty of them cost more than the bias gives";
}

TEST_F(CompletionsTest, StreamsTheSameText) {
  for (const bool usage : {false, true}) {
    Json body{{"model", "m"},     {"prompt", {"Once", "Twice"}},
              {"max_tokens", 10}, {"temperature", 1},
              {"seed", 5},        {"n", 2}};
    const Json whole = completion(body);
    body["stream"] = true;
    if (usage) body["stream_options"] = {{"include_usage", true}};
    Client one = client();
    one.send_post("/v1/completions", to_line(body));
    const Reply head = one.head();
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-type"), "text/event-stream; charset=utf-8");
    std::vector<std::string> texts(4), reasons(4);
    std::optional<Json> total;
    std::string id, last;
    while (const auto event = one.event()) {
      last = *event;
      if (last == "[DONE]") break;
      const Json chunk = parse_json(last);
      if (id.empty()) id = chunk["id"];
      EXPECT_EQ(chunk["id"], id);
      EXPECT_EQ(chunk["object"], "text_completion");
      EXPECT_EQ(chunk.contains("usage"), usage);
      if (chunk["choices"].empty()) {
        total = chunk["usage"];
        continue;
      }
      const Json& choice = chunk["choices"][0];
      const Index index = choice["index"];
      texts[index] += choice["text"].get<std::string>();
      if (choice["finish_reason"].is_string()) reasons[index] = choice["finish_reason"];
    }
    EXPECT_EQ(last, "[DONE]");
    EXPECT_EQ(one.event(), std::nullopt);
    for (Index i = 0; i < 4; ++i) {
      EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
      EXPECT_EQ(reasons[i], whole["choices"][i]["finish_reason"]);
    }
    EXPECT_EQ(total.has_value(), usage);
    if (usage) {
      EXPECT_EQ(*total, whole["usage"]);
    }
    EXPECT_EQ(one.get("/health").status, 200) << "the connection goes on";
  }
}

TEST_F(CompletionsTest, EchoHasTheEvaluationsNumbers) {
  const Tokens first{256, 'O', 'n', 'c', 'e', ' ', 'u'}, second{'x', 0xC3, 0xA9, '!', 256, 'a'};
  const Json body{
      {"prompt", {first, second}}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}, {"temperature", 0}};
  const Json json = completion(body);
  Scorer scorer(weights_, {}, Exec{.threads = 1});
  const std::vector<Tokens> prompts{first, second};
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const Tokens& tokens = prompts[p];
    const Json& lists = json["choices"][p]["logprobs"];
    for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      ASSERT_EQ(lists[name].size(), tokens.size() + 1) << name;
    EXPECT_TRUE(lists["token_logprobs"][0].is_null());
    EXPECT_TRUE(lists["top_logprobs"][0].is_null());
    for (std::size_t cut = 1; cut < tokens.size(); ++cut) {
      const std::vector<ScoreRequest> request{{{tokens.begin(), tokens.begin() + static_cast<Index>(cut)},
                                               {tokens.begin() + static_cast<Index>(cut), tokens.end()}}};
      const Score score = scorer.score_all(request)[0];
      double sum = 0;
      bool greedy = true;
      for (std::size_t t = cut; t < tokens.size(); ++t) {
        sum += lists["token_logprobs"][t].get<double>();
        double largest = -1e30;
        for (const auto& [key, value] : lists["top_logprobs"][t].items())
          largest = std::max(largest, value.get<double>());
        greedy = greedy && largest == lists["token_logprobs"][t].get<double>();
      }
      EXPECT_EQ(sum, score.log_likelihood) << "to the last bit";
      EXPECT_EQ(greedy, score.greedy);
    }
  }
  const Json& lists = json["choices"][1]["logprobs"];
  EXPECT_EQ(lists["tokens"][1], "bytes:\\xc3");
  EXPECT_EQ(lists["tokens"][4], "<|endoftext|>");
  EXPECT_EQ(lists["top_logprobs"][2].contains("bytes:\\xa9"), true);
}

TEST_F(CompletionsTest, EchoOfATextLeavesOutWhatWasPutBeforeIt) {
  const Json json = completion({{"prompt", "abc"}, {"max_tokens", 0}, {"logprobs", 2}, {"echo", true}});
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json({"a", "b", "c"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 2}));
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_number()) << "known: end of text is before it";
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  // With more than one token the echo is followed by what is generated.
  const Json longer =
      completion({{"prompt", "abc"}, {"max_tokens", 4}, {"logprobs", 0}, {"echo", true}, {"temperature", 0}});
  const std::string rest = text({{"prompt", "abc"}, {"max_tokens", 4}, {"temperature", 0}});
  EXPECT_EQ(longer["choices"][0]["text"], "abc" + rest);
  EXPECT_EQ(longer["choices"][0]["logprobs"]["token_logprobs"].size(),
            3 + longer["usage"]["completion_tokens"].get<std::size_t>());
  EXPECT_EQ(longer["choices"][0]["logprobs"]["top_logprobs"][1].size(), 1u) << "the token itself alone";
  const Json bare = completion({{"prompt", "abc"}, {"max_tokens", 4}, {"echo", true}, {"temperature", 0}});
  EXPECT_EQ(bare["choices"][0]["text"], "abc" + rest);
  EXPECT_TRUE(bare["choices"][0]["logprobs"].is_null());
}

// Characters before each token, of the text that is answered; a stream says the same.
TEST_F(CompletionsTest, OffsetsAreThoseOfTheText) {
  for (const Json& prompt : {Json({256, 'a', 'b'}), Json({'a', 256, 'b', 256}), Json("h\u00e9y")}) {
    Json body{{"model", "m"},     {"prompt", prompt},
              {"max_tokens", 30}, {"logprobs", 0},
              {"echo", true},     {"temperature", 1.2},
              {"seed", 4},        {"stop", {"zq", "a long one that never comes"}}};
    const Json whole = completion(body)["choices"][0];
    const Json& lists = whole["logprobs"];
    Index at = 0;
    for (std::size_t i = 0; i < lists["tokens"].size(); ++i) {
      EXPECT_EQ(lists["text_offset"][i], at) << prompt << " " << i;
      const std::string name = lists["tokens"][i];
      if (!name.starts_with("bytes:\\x"))
        at += std::ssize(name);  // ASCII
      else if ((std::stoi(name.substr(8), nullptr, 16) & 0xC0) != 0x80)
        ++at;  // the byte that begins a character stands for it
    }
    body["stream"] = true;
    Client one = client();
    one.send_post("/v1/completions", to_line(body));
    ASSERT_EQ(one.head().status, 200);
    Json streamed = Json::array();
    for (auto event = one.event(); event && *event != "[DONE]"; event = one.event()) {
      const Json chunk = parse_json(*event);
      if (const Json& part = chunk["choices"][0]["logprobs"]; part.is_object())
        for (const Json& offset : part["text_offset"]) streamed.push_back(offset);
    }
    EXPECT_EQ(streamed, lists["text_offset"]) << prompt;
  }
}

// A tokenizer that normalises: the echo is the text that the model has read, so that the offsets are places in it.
TEST_F(ServerTest, EchoIsTheTextThatWasRead) {
  options_.models.paths.push_back(write_model(folder_ / "m", small_weights()));
  BpeVocabulary vocabulary = byte_vocabulary();
  vocabulary.nfc = true;
  BpeTokenizer(vocabulary).save(folder_ / "m");
  start_without_model();
  const Reply answer =
      post("/v1/completions",
           {{"model", "m"}, {"prompt", "e\u0301x"}, {"max_tokens", 0}, {"logprobs", 0}, {"echo", true}});
  const Json choice = parse_json(answer.body)["choices"][0];
  EXPECT_EQ(choice["text"], "\u00e9x");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json({"bytes:\\xc3", "bytes:\\xa9", "x"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 1}));
}

TEST_F(CompletionsTest, LogprobsOfGeneratedTokensAreTheModels) {
  const Json json = completion({{"prompt", "abc"}, {"max_tokens", 5}, {"logprobs", 3}, {"temperature", 0}});
  const Json& lists = json["choices"][0]["logprobs"];
  const std::size_t count = lists["tokens"].size();
  ASSERT_EQ(count, json["usage"]["completion_tokens"].get<std::size_t>());
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(lists["top_logprobs"][i].size(), 3u);
    double largest = -1e30;
    for (const auto& [key, value] : lists["top_logprobs"][i].items())
      largest = std::max(largest, value.get<double>());
    EXPECT_EQ(lists["token_logprobs"][i].get<double>(), largest) << "the most likely was chosen";
    EXPECT_LT(largest, 0);
  }
  // The same text as an echo: another way to the same numbers.
  Tokens tokens{256, 'a', 'b', 'c'};
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const std::string name = lists["tokens"][i];
    tokens.push_back(name.size() == 1 ? static_cast<unsigned char>(name[0])
                                      : static_cast<std::int32_t>(
                                            std::stoi(name.substr(name.find("\\x") + 2), nullptr, 16)));
  }
  const Json echo = completion(
      {{"prompt", tokens}, {"max_tokens", 1}, {"logprobs", 0}, {"echo", true}, {"temperature", 0}});
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_NEAR(echo["choices"][0]["logprobs"]["token_logprobs"][4 + i].get<double>(),
                lists["token_logprobs"][i].get<double>(), 1e-5);
}

// What else is served changes nothing: 15 others of all kinds, at random moments.
TEST_F(CompletionsTest, ATextIsAFunctionOfItsRequestAlone) {
  const Json body{{"model", "m"},     {"prompt", "The one that matters"},
                  {"max_tokens", 40}, {"temperature", 1.2},
                  {"seed", 11},       {"n", 2},
                  {"logprobs", 2}};
  const Json alone = completion(body)["choices"];
  std::vector<std::future<Reply>> others;
  for (int i = 0; i < 15; ++i)
    others.push_back(std::async(std::launch::async, [this, i] {
      pause_for(0.003 * i);
      const Json other{
          {"model", "m"},
          {"prompt", std::string(static_cast<std::size_t>(1 + 6 * i), static_cast<char>('a' + i))},
          {"max_tokens", 30},
          {"seed", i},
          {"echo", i % 3 == 0},
          {"logprobs", i % 3 == 0 ? Json(1) : Json()}};
      return post("/v1/completions", other);
    }));
  for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(completion(body)["choices"], alone) << repeat;
  for (auto& other : others) EXPECT_EQ(other.get().status, 200);
}

TEST_F(CompletionsTest, AFullContextEndsTheText) {
  const Json json = completion({{"prompt", std::string(90, 'a')},
                                {"max_tokens", 1000},
                                {"temperature", 0},
                                {"logit_bias", {{"256", -100}}}});
  EXPECT_EQ(json["usage"]["prompt_tokens"], 91);
  EXPECT_EQ(json["usage"]["completion_tokens"], 96 - 91 + 1) << "the last one is never read";
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  const Reply answer = post("/v1/completions", {{"model", "m"}, {"prompt", std::string(96, 'a')}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("code"), "context_length_exceeded");
  EXPECT_EQ(answer.error("param"), "prompt");
}

TEST_F(CompletionsTest, MoreTextsThanSlotsWaitForOneAnother) {
  const Json json = completion({{"prompt", {"a", "b", "c", "d"}}, {"n", 16}, {"max_tokens", 6}, {"seed", 1}});
  ASSERT_EQ(json["choices"].size(), 64u);
  for (int i : {0, 17, 40, 63}) {
    const Json again = completion({{"prompt", std::string(1, static_cast<char>('a' + i / 16))},
                                   {"n", 16},
                                   {"max_tokens", 6},
                                   {"seed", 1}});
    EXPECT_EQ(again["choices"][i % 16]["text"], json["choices"][i]["text"]);
  }
}

TEST_F(CompletionsTest, EveryWrongFieldIsNamed) {
  const std::vector<std::pair<const char*, Json>> wrong{{"prompt", 5},
                                                        {"prompt", Json::array()},
                                                        {"prompt", {"a", 1}},
                                                        {"prompt", Json::object()},
                                                        {"prompt", {-1}},
                                                        {"prompt", {260}},
                                                        {"prompt", {1.5}},
                                                        {"prompt", {Json::array()}},
                                                        {"max_tokens", -1},
                                                        {"max_tokens", 1.5},
                                                        {"max_tokens", "5"},
                                                        {"max_tokens", 0},
                                                        {"temperature", -0.1},
                                                        {"temperature", 2.1},
                                                        {"temperature", "hot"},
                                                        {"top_p", 1.1},
                                                        {"n", 0},
                                                        {"n", 17},
                                                        {"stop", 5},
                                                        {"stop", {"a", "b", "c", "d", "e"}},
                                                        {"stop", std::string(65, 'x')},
                                                        {"stop", ""},
                                                        {"seed", 1.5},
                                                        {"logprobs", 6},
                                                        {"logprobs", -1},
                                                        {"logprobs", true},
                                                        {"echo", 1},
                                                        {"stream", "yes"},
                                                        {"stream_options", {{"include_usage", true}}},
                                                        {"frequency_penalty", 3},
                                                        {"presence_penalty", -3},
                                                        {"logit_bias", {{"x", 1}}},
                                                        {"logit_bias", {{"260", 1}}},
                                                        {"logit_bias", {{"1", 101}}},
                                                        {"logit_bias", 1},
                                                        {"best_of", 2},
                                                        {"suffix", "end"},
                                                        {"top_k", -1},
                                                        {"min_p", 2},
                                                        {"repetition_penalty", 0},
                                                        {"add_special_tokens", 1},
                                                        {"grammar", "x"},
                                                        {"model", 5}};
  for (const auto& [name, value] : wrong) {
    Json body{{"model", "m"}, {"prompt", "a"}};
    body[name] = value;
    const Reply answer = post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << name << " " << value;
    EXPECT_EQ(answer.error("param"), name) << answer.body;
    EXPECT_EQ(answer.error("type"), "invalid_request_error");
  }
  const Reply many = post("/v1/completions", {{"model", "m"}, {"prompt", std::vector<std::string>(65, "a")}});
  EXPECT_EQ(many.status, 400);
  const Reply product =
      post("/v1/completions", {{"model", "m"}, {"prompt", std::vector<std::string>(33, "a")}, {"n", 2}});
  EXPECT_EQ(product.error("param"), "n");
  const Reply unknown = post("/v1/completions", {{"model", "gpt-4"}, {"prompt", "a"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(post("/v1/completions", {{"model", "m"}}).error("param"), "prompt");
}

TEST_F(CompletionsTest, NullMeansAbsentAndSomeFieldsAreIgnored) {
  const Json plain{{"prompt", "a"}, {"max_tokens", 3}, {"temperature", 0}};
  Json body = plain;
  for (const char* name :
       {"stop", "n", "logprobs", "suffix", "best_of", "logit_bias", "seed", "stream_options", "top_k"})
    body[name] = nullptr;
  body["user"] = "me", body["metadata"] = {{"a", "b"}}, body["store"] = true;
  EXPECT_EQ(completion(body)["choices"], completion(plain)["choices"]);
  body["best_of"] = 1, body["suffix"] = "";
  EXPECT_EQ(completion(body)["choices"], completion(plain)["choices"]);
}

TEST_F(CompletionsTest, AClientThatLeavesFreesItsPlace) {
  for (const bool stream : {true, false}) {
    const auto before = server_->load();
    std::vector<Client> clients;
    for (int i = 0; i < 16; ++i) {
      clients.push_back(client());
      clients.back().send_post("/v1/completions", to_line(Json{{"model", "m"},
                                                               {"prompt", "a"},
                                                               {"max_tokens", 90},
                                                               {"n", 16},
                                                               {"stream", stream},
                                                               {"logit_bias", {{"256", -100}}}}));
    }
    ASSERT_TRUE(soon([&] { return server_->load().live > 0; }));
    for (Client& each : clients) each.reset();
    EXPECT_TRUE(all_free());
    EXPECT_LT(server_->load().new_tokens - before.new_tokens, 16u * 16 * 90) << "they did not finish";
  }
  EXPECT_EQ(completion({{"prompt", "a"}})["choices"].size(), 1u);
}

}  // namespace
}  // namespace ddl
