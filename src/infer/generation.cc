#include "infer/generation.h"

#include <algorithm>

#include "infer/text_stream.h"

namespace ddl {
namespace {

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, Index vocab) {
  std::vector<TokenId> ids{tokenizer.end_of_text()};
  tokenizer.encode(prompt, ids);
  std::vector<std::int32_t> tokens;
  for (const TokenId id : ids) {
    if (static_cast<Index>(id) >= vocab)
      throw UserError("the tokenizer ({}) gives token {}, the model's vocabulary has {}: not this model's",
                      tokenizer.name(), id, vocab);
    tokens.push_back(static_cast<std::int32_t>(id));
  }
  return tokens;
}

// One text under way.
struct Text {
  Index index, slot;
  Sampler sampler;
  TextStream stream;
  std::vector<std::int32_t> tokens;  // prompt and what came after
  Generation result;
};

class Batch {
 public:
  Batch(Decoder& decoder, const Tokenizer& tokenizer, const GenerateOptions& options,
        const GenerateEvents& events, const Exec& ex)
      : decoder_(decoder), tokenizer_(tokenizer), options_(options), events_(events), ex_(ex) {}

  // Texts first .. first + count - 1 from the same prompt, which is computed once.
  std::vector<Generation> run(const std::vector<std::int32_t>& prompt, Index first, Index count) {
    for (Index i = 0; i < count; ++i) {
      texts_.push_back({first + i,
                        i,
                        Sampler(options_.sampling, static_cast<std::uint64_t>(first + i)),
                        TextStream(options_.stop),
                        prompt,
                        {}});
      texts_.back().result.prompt_tokens = std::ssize(prompt);
    }
    for (Index slot = 0; slot < decoder_.slots(); ++slot) decoder_.reset(slot);
    if (options_.max_new_tokens > 0) {
      decoder_.append(std::vector<Decoder::Append>{{0, fitting(prompt)}}, ex_);
      for (Index i = 1; i < count; ++i) decoder_.copy(i, 0);
    }
    std::vector<Text*> live;
    for (Text& text : texts_) {
      if (options_.max_new_tokens > 0 ? choose(text, decoder_.logits(0)) : end(text, "length"))
        live.push_back(&text);
    }
    while (!live.empty()) step(live);
    std::vector<Generation> results;
    for (Text& text : texts_) results.push_back(std::move(text.result));
    return results;
  }

 private:
  // The prompt, or where it may slide its last half context.
  std::span<const std::int32_t> fitting(const std::vector<std::int32_t>& tokens) {
    const Index context = decoder_.context(), length = std::ssize(tokens);
    if (length <= context) return tokens;
    if (!options_.slide)
      throw UserError(
          "the prompt has {} tokens, the model was made for {} (model.context); shorten it, or let the "
          "context "
          "slide (--slide)",
          length, context);
    events_.notice(
        fmt::format("the context of {} tokens is full: continuing with the last {}", context, half()));
    return std::span(tokens).last(static_cast<std::size_t>(half()));
  }
  Index half() const { return std::max<Index>(1, decoder_.context() / 2); }

  // One token for every live text.
  void step(std::vector<Text*>& live) {
    std::vector<Decoder::Append> appends;
    for (Text* text : live) {
      if (decoder_.length(text->slot) < decoder_.context()) {
        appends.push_back({text->slot, std::span(text->tokens).last(1)});
      } else {  // full, and may slide
        const auto rest = fitting(text->tokens);
        decoder_.reset(text->slot);
        appends.push_back({text->slot, rest});
      }
    }
    decoder_.append(appends, ex_);
    std::vector<Text*> still;
    for (std::size_t i = 0; i < live.size(); ++i)
      if (choose(*live[i], decoder_.logits(static_cast<Index>(i)))) still.push_back(live[i]);
    live = std::move(still);
  }

  // Samples, shows, and says whether the text continues.
  bool choose(Text& text, std::span<const float> logits) {
    const Index known = std::min(tokenizer_.vocab_size(), std::ssize(logits));
    const std::int32_t token = text.sampler.next(logits.first(static_cast<std::size_t>(known)), text.tokens);
    text.tokens.push_back(token);
    ++text.result.new_tokens;
    const TokenId id = static_cast<TokenId>(token);
    if (id == tokenizer_.end_of_text()) return end(text, "end of text");
    show(text, text.stream.push(tokenizer_.decode({&id, 1})));
    if (text.stream.stopped()) return end(text, "stop string");
    if (text.result.new_tokens >= options_.max_new_tokens) return end(text, "length");
    if (!options_.slide && decoder_.length(text.slot) >= decoder_.context()) return end(text, "context");
    return true;
  }

  bool end(Text& text, const char* why) {
    show(text, text.stream.finish());
    text.result.ended = why;
    if (text.result.ended == "context")
      events_.notice(fmt::format(
          "the context of {} tokens is full, and the model was made for no more; --slide continues "
          "with its last half",
          decoder_.context()));
    events_.finished(text.index, text.result);
    return false;
  }

  void show(Text& text, const std::string& piece) {
    if (piece.empty()) return;
    text.result.text += piece;
    events_.text(text.index, piece);
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  const GenerateEvents& events_;
  const Exec& ex_;
  std::vector<Text> texts_;
};

}  // namespace

std::vector<Generation> generate(Decoder& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                                 Index count, const GenerateOptions& options, const GenerateEvents& events,
                                 const Exec& ex) {
  options.sampling.check();
  const auto tokens = prompt_tokens(tokenizer, prompt, decoder.config().vocab);
  std::vector<Generation> all;
  for (Index first = 0; first < count; first += decoder.slots()) {
    const Index now = std::min(decoder.slots(), count - first);
    for (Generation& g : Batch(decoder, tokenizer, options, events, ex).run(tokens, first, now))
      all.push_back(std::move(g));
  }
  return all;
}

}  // namespace ddl
