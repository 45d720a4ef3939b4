// Batches of a token stream, each a pure function of (seed, step): nothing advances, nothing is stored, any
// step can be asked for at once. Reading is a copy out of mapped memory.
//
// order "epoch": the stream is cut into windows of T inputs, which are visited in a random order. Each token
//   is a target once per epoch, except for fewer than T at the ends; where the cuts fall changes with the
//   epoch, so those differ too. Rows are numbered through all steps (row = step * B + b), so two micro-steps
//   of 4 rows have the rows of one step of 8.
// order "random": each row begins at a uniformly random token, as in nanoGPT.
// order "stream": windows of T inputs one after another, from the beginning, and from the beginning again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/index.h"
#include "core/named_enum.h"
#include "core/record.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

namespace ddl {

// B rows of T tokens. targets[b, t] follows inputs[b, t] in the stream. answers[b, t] is about targets[b, t]:
// 0 ordinary, 1 first token of an answer, 2 a further token of it. Only answers whose document begins within
// the row are kept, because the others cannot be known from it. Token ids are signed here, as in the model.
struct Batch {
  Index rows = 0, context = 0;
  std::vector<std::int32_t> inputs_BT, targets_BT;
  std::vector<std::uint8_t> answers_BT;  // empty where the stream has no answers

  void resize(Index row_count, Index context_tokens, bool with_answers);

 private:
  friend void fill_row(const TokenStream&, Index, std::optional<TokenId>, Index, Batch&);
  std::vector<TokenId> window_;  // scratch: T + 1 tokens
  std::vector<std::uint8_t> window_answers_;
};

// Row b of the batch from the tokens [begin, begin + T + 1).
void fill_row(const TokenStream& stream, Index begin, std::optional<TokenId> end_of_text, Index b,
              Batch& batch);

enum class WindowOrder { kEpoch, kRandom, kStream };
constexpr auto names_of(WindowOrder) { return std::array{"epoch", "random", "stream"}; }

struct LoaderOptions {
  Index rows = 8;       // B: rows of one batch
  Index context = 256;  // T
  std::uint64_t seed = 0;
  WindowOrder order = WindowOrder::kEpoch;
};

class Loader {
 public:
  // The stream must outlive the loader. Throws UserError where it is shorter than one window.
  Loader(const TokenStream& stream, std::optional<TokenId> end_of_text, LoaderOptions options);

  // Where a micro-step of an accumulated update counts as a step of its own. Any step >= 0, in any order,
  // from any thread (with a batch each).
  void load(Index step, Batch& batch) const;

  Index windows_per_epoch() const { return windows_; }
  double epoch_of(Index step) const;  // epochs consumed before this step

  // The few integers a checkpoint keeps; `step` is the next one to load.
  Json state(Index step) const;
  // The next step to load. Throws UserError, which begins with `where` (a file's name), showing the difference
  // where the state belongs to other data, seed, order or batch shape.
  Index resume(const Json& state, const std::string& where = "loader state") const;

 private:
  Index window_begin(Index row) const;
  const TokenStream& stream_;
  std::optional<TokenId> end_of_text_;
  LoaderOptions options_;
  Index windows_ = 0;
};

// A fixed set of windows for validation: at most `limit`, evenly spread over the stream, none overlapping.
// The same for every run on the same data, whatever its seed.
class FixedWindows {
 public:
  FixedWindows(const TokenStream& stream, std::optional<TokenId> end_of_text, Index context, Index limit);
  Index count() const { return count_; }
  // Windows [first, first + rows) as a batch; first + rows <= count().
  void load(Index first, Index rows, Batch& batch) const;

 private:
  const TokenStream& stream_;
  std::optional<TokenId> end_of_text_;
  Index context_, count_ = 0, available_ = 0;
};

}  // namespace ddl
