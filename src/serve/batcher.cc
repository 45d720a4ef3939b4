#include "serve/batcher.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "eval/score_text.h"

namespace ddl {

TokenScore score_token(const NextToken& next, std::int32_t token, Index best) {
  TokenScore score{token, next.log_probability(token), {}};
  for (const std::int32_t id : most_likely(next.logits_V, best))
    score.best.emplace_back(id, next.log_probability(id));
  return score;
}

Batcher::Batcher(Decoder& decoder, const Tokenizer& tokenizer) : decoder_(decoder), tokenizer_(tokenizer) {
  for (Index slot = decoder.slots(); slot-- > 0;) free_.push_back(slot);
}

void Batcher::add(Sequence sequence) {
  DDL_CHECK(!sequence.prompt->empty() && std::ssize(*sequence.prompt) <= decoder_.context(),
            "a prompt of {} tokens", sequence.prompt->size());
  waiting_.push_back(std::move(sequence));
}

void Batcher::release(Index slot) {
  decoder_.reset(slot);
  free_.push_back(slot);
}

void Batcher::leave_abandoned() {
  std::erase_if(live_, [&](const auto& live) {
    if (!live->asked.abandoned()) return false;
    release(live->slot);
    return true;
  });
  std::erase_if(waiting_, [](const Sequence& sequence) { return sequence.abandoned(); });
}

void Batcher::clear() {
  for (const auto& live : live_) release(live->slot);
  live_.clear();
  waiting_.clear();
}

std::unique_ptr<Batcher::Live> Batcher::begin(Sequence sequence, Index slot) const {
  const SamplerOptions sampling = sequence.sampling;
  const std::uint64_t stream = sequence.stream;
  TextStream text(sequence.stops);
  std::vector<std::int32_t> tokens = *sequence.prompt;
  return std::make_unique<Live>(
      Live{std::move(sequence), slot, 0, Sampler(sampling, stream), std::move(text), std::move(tokens), 0});
}

bool Batcher::sibling_reads_prompt(const Sequence& sequence) const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& live) {
    return live->asked.prompt == sequence.prompt && live->reads_prompt();
  });
}

void Batcher::admit() {
  for (auto next = waiting_.begin(); next != waiting_.end() && !free_.empty();) {
    if (sibling_reads_prompt(*next)) {  // its prompt will be copied
      ++next;
      continue;
    }
    const Index slot = free_.back();
    free_.pop_back();
    live_.push_back(begin(std::move(*next), slot));
    next = waiting_.erase(next);
  }
}

void Batcher::step(const Exec& ex) {
  leave_abandoned();
  admit();
  if (live_.empty()) return;
  std::vector<Decoder::Append> appends;
  std::vector<Live*> appended;
  Index tokens = 0;
  bool reads = false;
  for (const auto& live : live_)
    if (!live->reads_prompt()) {
      appends.push_back({live->slot, std::span(live->tokens).last(1)});
      appended.push_back(live.get());
      ++tokens;
    }
  for (const auto& live : live_) {
    const Index piece = std::min(kPiece, std::ssize(*live->asked.prompt) - live->fed);
    if (piece == 0 || (reads && tokens + piece > kStepTokens)) continue;
    reads = true;
    appends.push_back(
        {live->slot, std::span(*live->asked.prompt)
                         .subspan(static_cast<std::size_t>(live->fed), static_cast<std::size_t>(piece))});
    appended.push_back(live.get());
    live->fed += piece, tokens += piece;
    counts_.prompt_tokens += static_cast<std::uint64_t>(piece);
  }
  try {
    decoder_.append(appends, ex);
  } catch (const std::exception& error) {
    for (const auto& live : std::exchange(live_, {})) {
      release(live->slot);
      live->asked.on_end(Sequence::End::kFailed, error.what());
    }
    return;
  }
  ++counts_.steps;

  // Those that wait for a prompt that is complete now continue from a copy of it.
  std::vector<std::pair<Live*, Index>> choosing;  // and whose logits
  for (std::size_t i = 0; i < appended.size(); ++i) {
    if (appended[i]->reads_prompt()) continue;
    choosing.emplace_back(appended[i], static_cast<Index>(i));
    if (appended[i]->new_tokens > 0) continue;
    for (auto next = waiting_.begin(); next != waiting_.end() && !free_.empty();) {
      if (next->prompt != appended[i]->asked.prompt) {
        ++next;
        continue;
      }
      const Index slot = free_.back();
      try {
        decoder_.copy(slot, appended[i]->slot);
      } catch (const std::exception& error) {
        next->on_end(Sequence::End::kFailed, error.what());
        next = waiting_.erase(next);
        continue;
      }
      free_.pop_back();
      live_.push_back(begin(std::move(*next), slot));
      live_.back()->fed = std::ssize(*live_.back()->asked.prompt);
      choosing.emplace_back(live_.back().get(), static_cast<Index>(i));
      next = waiting_.erase(next);
    }
  }
  std::vector<Choice> choices(choosing.size());
  parallel_for(std::ssize(choosing), ex, [&](Index i) {
    choices[i] = choose(*choosing[i].first, decoder_.logits(choosing[i].second));
  });
  std::vector<const Live*> ended;
  for (std::size_t i = 0; i < choosing.size(); ++i)
    if (!take(*choosing[i].first, choices[i])) ended.push_back(choosing[i].first);
  std::erase_if(live_, [&](const auto& live) {
    if (std::find(ended.begin(), ended.end(), live.get()) == ended.end()) return false;
    release(live->slot);
    return true;
  });
}

Batcher::Choice Batcher::choose(Live& live, std::span<const float> logits) const {
  Choice choice;
  try {
    const auto known = static_cast<std::size_t>(std::min(tokenizer_.vocab_size(), std::ssize(logits)));
    choice.token = live.sampler.next(logits.first(known), live.tokens);
    if (live.asked.best >= 0) choice.score = score_token(next_token(logits), choice.token, live.asked.best);
  } catch (const std::exception& error) {
    choice.error = error.what();
  }
  return choice;
}

bool Batcher::take(Live& live, const Choice& choice) {
  const auto end = [&](Sequence::End how, const std::string& error = "") {
    live.asked.on_end(how, error);
    return false;
  };
  if (!choice.error.empty()) return end(Sequence::End::kFailed, choice.error);
  live.tokens.push_back(choice.token);
  ++live.new_tokens, ++counts_.new_tokens;
  const TokenId id = static_cast<TokenId>(choice.token);
  const bool end_of_text = id == tokenizer_.end_of_text();
  const bool full =
      live.new_tokens >= live.asked.max_tokens || decoder_.length(live.slot) >= decoder_.context();
  std::string text = end_of_text ? live.stream.finish() : live.stream.push(tokenizer_.decode({&id, 1}));
  const bool stopped = live.stream.stopped();
  if (!end_of_text && !stopped && full) text += live.stream.finish();
  live.asked.on_token(std::move(text), choice.score);
  if (end_of_text || stopped) return end(Sequence::End::kStop);
  if (full) return end(Sequence::End::kLength);
  return true;
}

}  // namespace ddl
