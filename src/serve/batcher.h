// Continuous batching over the slots of one decoder: sequences join and leave between steps. A step appends one token
// to every sequence that is writing and a piece of the prompt of those that have just come, so that a long prompt
// does not hold up the others. Where a prompt is cut does not depend on who else is there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/exec.h"
#include "data/tokenizer.h"
#include "infer/sampler.h"
#include "infer/text_stream.h"
#include "model/decoder.h"
#include "model/next_token.h"

namespace ddl {

// A token with its log-probability by the model: before temperature and penalties.
struct TokenScore {
  std::int32_t token = 0;
  double log_probability = 0;
  std::vector<std::pair<std::int32_t, double>> best;  // most likely first, as many as were asked for
};

// log p of a token and of the `best` most likely ones.
TokenScore score_token(const NextToken& next, std::int32_t token, Index best);

struct Sequence {
  // Shared by the sequences that continue one prompt, which is then computed once where they come together.
  std::shared_ptr<const std::vector<std::int32_t>> prompt;
  Index max_tokens = 16;  // at least 1
  SamplerOptions sampling;
  std::uint64_t stream = 0;  // of the sampler
  std::vector<std::string> stops;
  Index best = -1;  // log-probabilities of this many tokens besides the chosen one; -1: none at all

  // Events, on the thread of step(). `text` is what can be shown from here on; it may be empty.
  std::function<void(std::string text, std::optional<TokenScore> score)> on_token;
  enum class End { kStop, kLength, kFailed };
  std::function<void(End end, const std::string& error)> on_end;
  std::function<bool()> abandoned = [] {
    return false;
  };  // then it leaves before the next step, without an event
};

class Batcher {
 public:
  // Both must outlive it.
  Batcher(Decoder& decoder, const Tokenizer& tokenizer);

  void add(Sequence sequence);  // its prompt fits the context
  Index slots() const { return decoder_.slots(); }
  Index live() const { return std::ssize(live_); }
  Index waiting() const { return std::ssize(waiting_); }
  bool idle() const { return live_.empty() && waiting_.empty(); }

  // Lets go of those that were abandoned, takes in those that wait, and computes one step. What the decoder throws
  // ends all that are live with an error.
  void step(const Exec& ex);
  void clear();  // lets go of all, without an event

  struct Counts {
    std::uint64_t prompt_tokens = 0, new_tokens = 0, steps = 0;
  };
  const Counts& counts() const { return counts_; }

  static constexpr Index kPiece = 64;        // tokens of a prompt in a step
  static constexpr Index kStepTokens = 256;  // of a step, but for one piece

 private:
  struct Live {
    Sequence asked;
    Index slot = 0, fed = 0;  // tokens of the prompt in the decoder
    Sampler sampler;
    TextStream stream;
    std::vector<std::int32_t> tokens;  // prompt and what came after
    Index new_tokens = 0;
    bool reads_prompt() const { return fed < std::ssize(*asked.prompt); }
  };
  // What a sequence's logits lead to; computed side by side.
  struct Choice {
    std::int32_t token = -1;
    std::optional<TokenScore> score;
    std::string error;
  };

  void leave_abandoned();
  void admit();
  bool sibling_reads_prompt(const Sequence& sequence) const;
  std::unique_ptr<Live> begin(Sequence sequence, Index slot) const;
  Choice choose(Live& live, std::span<const float> logits) const;
  bool take(Live& live, const Choice& choice);  // whether it continues
  void release(Index slot);

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Live>> live_;  // in order of arrival
  std::deque<Sequence> waiting_;
  std::vector<Index> free_;  // slots
  Counts counts_;
};

}  // namespace ddl
