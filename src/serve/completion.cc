#include "serve/completion.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/error.h"
#include "eval/request_tree.h"
#include "infer/text_stream.h"
#include "serve/access.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr Index kSliceTokens = 512;  // scored in one turn: others wait so long

// One request from its first slice to its answer. Everything but the constructor runs on the thread that computes.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(CompletionRequest request, HttpReplyPtr reply)
      : request_(std::move(request)),
        reply_(std::move(reply)),
        id_(random_id(request_.chat ? "chatcmpl" : "cmpl")),
        created_(std::time(nullptr)) {
    choices_.resize(request_.prompts.size() * static_cast<std::size_t>(request_.n));
    for (std::size_t i = 0; i < choices_.size(); ++i) choices_[i].index = static_cast<Index>(i);
    unfinished_ = std::ssize(choices_);
  }

  ComputeJob job() {
    ComputeJob job;
    job.model = request_.model;
    job.abandoned = [self = shared_from_this()] { return self->over(); };
    job.failed = [self = shared_from_this()](const std::exception& error) { self->fail(error.what()); };
    if (request_.echo || request_.max_tokens == 0)
      job.slice = [self = shared_from_this()](const Exec& ex) { return self->score_some(ex); };
    if (!one_pass()) job.sequences = [self = shared_from_this()] { return self->sequences(); };
    return job;
  }

 private:
  bool over() const { return over_ || reply_->gone(); }
  bool scores_echo() const { return request_.echo && request_.logprobs >= 0; }
  // The scoring of the prompt also says what follows it: enough for one token.
  bool one_pass() const { return request_.max_tokens == 0 || (scores_echo() && request_.max_tokens == 1); }
  Choice& choice(std::size_t prompt, Index k) {
    return choices_[prompt * static_cast<std::size_t>(request_.n) + static_cast<std::size_t>(k)];
  }

  // The echo of the next prompts; true where there are more.
  bool score_some(const Exec& ex) {
    Index tokens = 0;
    const std::size_t begin = scored_;
    while (scored_ < request_.prompts.size() && (scored_ == begin || tokens < kSliceTokens))
      tokens += std::ssize(*request_.prompts[scored_++].tokens);
    if (scores_echo())
      score(begin, scored_, ex);
    else
      for (std::size_t p = begin; p < scored_; ++p) echo(p, {});
    return scored_ < request_.prompts.size();
  }

  // As the evaluation does it: a request asks for what follows every token but the last, and, by one token more that
  // does not matter, for what follows that.
  void score(std::size_t begin, std::size_t end, const Exec& ex) {
    std::vector<ScoreRequest> asked;
    for (std::size_t p = begin; p < end; ++p) {
      const auto& tokens = *request_.prompts[p].tokens;
      asked.push_back({{tokens[0]}, {tokens.begin() + 1, tokens.end()}});
      asked.back().continuation.push_back(0);
    }
    TreeScorer& scorer = request_.model->scorer(ex);
    const RequestTree tree(asked, request_.model->context(), scorer.shape().depths);
    std::vector<std::vector<EchoedToken>> echoes(asked.size());
    for (std::size_t r = 0; r < asked.size(); ++r) echoes[r].push_back({asked[r].context[0], {}});
    scorer.run(
        tree.runs(),
        [&](Index run, Index token, const NextToken& next) {
          tree.for_each_asked(run, token, [&](const RequestTree::Asked& ask) {
            if (!ask.last)
              return echoes[ask.request].push_back(
                  {ask.token, score_token(next, ask.token, request_.logprobs)});
            const std::size_t p = begin + static_cast<std::size_t>(ask.request);
            echo(p, std::move(echoes[ask.request]));
            if (request_.max_tokens == 1) choose_one(p, next);
          });
        },
        ex);
  }

  void echo(std::size_t p, std::vector<EchoedToken> tokens) {
    const Prompt& prompt = request_.prompts[p];
    tokens.erase(tokens.begin(), tokens.begin() + std::min(prompt.hidden, std::ssize(tokens)));
    for (Index k = 0; k < request_.n; ++k) {
      if (request_.echo) add(choice(p, k), prompt.text, tokens);
      if (request_.max_tokens == 0) end(choice(p, k), "length");
    }
  }

  void choose_one(std::size_t p, const NextToken& next) {
    const Tokenizer& tokenizer = request_.model->tokenizer();
    std::vector<float> logits(
        static_cast<std::size_t>(std::min(tokenizer.vocab_size(), std::ssize(next.logits_V))));
    std::transform(next.logits_V.begin(), next.logits_V.begin() + std::ssize(logits), logits.begin(),
                   [&](float logit) { return logit * next.scale; });
    for (Index k = 0; k < request_.n; ++k) {
      const std::int32_t token =
          Sampler(request_.sampling, static_cast<std::uint64_t>(k)).next(logits, *request_.prompts[p].tokens);
      const TokenId id = static_cast<TokenId>(token);
      TextStream stream(request_.stops);
      std::string text;
      if (id != tokenizer.end_of_text()) {
        text = stream.push(tokenizer.decode({&id, 1}));
        text += stream.finish();
      }
      ++completion_tokens_;
      add(choice(p, k), text, {{token, score_token(next, token, request_.logprobs)}});
      end(choice(p, k), id == tokenizer.end_of_text() || stream.stopped() ? "stop" : "length");
    }
  }

  std::vector<Sequence> sequences() {
    std::vector<Sequence> all;
    for (std::size_t p = 0; p < request_.prompts.size(); ++p)
      for (Index k = 0; k < request_.n; ++k) {
        Choice* target = &choice(p, k);
        Sequence sequence;
        sequence.prompt = request_.prompts[p].tokens;
        sequence.max_tokens = request_.max_tokens;
        sequence.sampling = request_.sampling;
        sequence.stream = static_cast<std::uint64_t>(k);
        sequence.stops = request_.stops;
        sequence.best = request_.logprobs;
        sequence.abandoned = [self = shared_from_this()] { return self->over(); };
        sequence.on_token = [self = shared_from_this(), target](std::string text,
                                                                std::optional<TokenScore> score) {
          std::vector<EchoedToken> tokens;
          if (score) tokens.push_back({score->token, std::move(score)});
          ++self->completion_tokens_;
          self->add(*target, text, tokens);
        };
        sequence.on_end = [self = shared_from_this(), target](Sequence::End how, const std::string& error) {
          if (how == Sequence::End::kFailed) return self->fail(error);
          self->end(*target, how == Sequence::End::kStop ? "stop" : "length");
        };
        all.push_back(std::move(sequence));
      }
    return all;
  }

  void add(Choice& target, std::string_view text, const std::vector<EchoedToken>& tokens) {
    if (over_) return;
    // The prompt of a chat ends with a colon, and the model writes the space behind it.
    if (request_.chat && target.text.empty() && text.starts_with(' ')) text.remove_prefix(1);
    if (request_.stream && (!text.empty() || !tokens.empty())) send_chunk(target, text, tokens, nullptr);
    target.text += text;
    if (!request_.stream) target.tokens.insert(target.tokens.end(), tokens.begin(), tokens.end());
  }

  void end(Choice& target, const char* reason) {
    if (over_) return;
    target.finish_reason = reason;
    if (request_.stream) send_chunk(target, "", {}, reason);
    if (--unfinished_ == 0) answer();
  }

  void fail(const std::string& message) {
    if (std::exchange(over_, true)) return;
    const HttpResponse error = error_response(500, message);
    if (!streaming_) return reply_->send(error);
    reply_->write("data: " + error.body + "\n\n");
    reply_->finish();
  }

  Json frame(const char* object) const {
    return Json{{"id", id_}, {"object", object}, {"created", created_}, {"model", request_.model_name}};
  }
  const char* chunk_object() const { return request_.chat ? "chat.completion.chunk" : "text_completion"; }
  Json usage() const {
    Index prompt_tokens = 0;
    for (const Prompt& prompt : request_.prompts) prompt_tokens += std::ssize(*prompt.tokens);
    return Json{{"prompt_tokens", prompt_tokens},
                {"completion_tokens", completion_tokens_},
                {"total_tokens", prompt_tokens + completion_tokens_}};
  }
  Json logprobs(const std::vector<EchoedToken>& tokens, Index& offset) const {
    if (request_.logprobs < 0) return nullptr;
    return request_.chat ? chat_logprobs_json(*request_.model, tokens)
                         : logprobs_json(*request_.model, tokens, offset);
  }

  void write_event(const Json& json) { reply_->write("data: " + to_line(json) + "\n\n"); }

  void begin_stream() {
    if (std::exchange(streaming_, true)) return;
    reply_->start_stream({.content_type = "text/event-stream; charset=utf-8"});
    if (!request_.chat) return;
    for (const Choice& each : choices_)
      write_chunk(Json{{"index", each.index},
                       {"delta", {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}});
  }

  void write_chunk(Json choice_json) {
    Json json = frame(chunk_object());
    json["choices"] = Json::array({std::move(choice_json)});
    if (request_.include_usage) json["usage"] = nullptr;
    write_event(json);
  }

  void send_chunk(Choice& target, std::string_view text, const std::vector<EchoedToken>& tokens,
                  const char* reason) {
    begin_stream();
    Json json{{"index", target.index}};
    if (request_.chat) {
      json["delta"] = Json::object();
      if (!reason) json["delta"]["content"] = text;
    } else {
      json["text"] = text;
    }
    json["logprobs"] = tokens.empty() ? Json() : logprobs(tokens, target.offset);
    json["finish_reason"] = reason ? Json(reason) : Json();
    write_chunk(std::move(json));
  }

  void answer() {
    over_ = true;
    if (request_.stream) {
      if (request_.include_usage) {
        Json json = frame(chunk_object());
        json["choices"] = Json::array();
        json["usage"] = usage();
        write_event(json);
      }
      reply_->write("data: [DONE]\n\n");
      return reply_->finish();
    }
    Json json = frame(request_.chat ? "chat.completion" : "text_completion");
    json["choices"] = Json::array();
    for (Choice& each : choices_) {
      Json entry{{"index", each.index}};
      if (request_.chat)
        entry["message"] = {{"role", "assistant"}, {"content", each.text}, {"refusal", nullptr}};
      else
        entry["text"] = each.text;
      entry["logprobs"] = logprobs(each.tokens, each.offset);
      entry["finish_reason"] = each.finish_reason;
      json["choices"].push_back(std::move(entry));
    }
    json["usage"] = usage();
    reply_->send({.body = to_line(json)});
  }

  const CompletionRequest request_;
  const HttpReplyPtr reply_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<Choice> choices_;
  std::size_t scored_ = 0;  // prompts
  Index unfinished_ = 0, completion_tokens_ = 0;
  bool streaming_ = false, over_ = false;
};

}  // namespace

void start_completion(CompletionRequest request, const HttpReplyPtr& reply, ComputeThread& compute) {
  const auto completion = std::make_shared<Completion>(std::move(request), reply);
  submit_or_refuse(compute, completion->job());
}

}  // namespace ddl
