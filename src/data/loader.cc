#include "data/loader.h"

#include <algorithm>

#include "core/error.h"
#include "core/json_fields.h"
#include "core/rng.h"
#include "data/permutation.h"
#include "data/tokenizer.h"

namespace ddl {

void Batch::resize(Index row_count, Index context_tokens, bool with_answers) {
  rows = row_count;
  context = context_tokens;
  const auto count = static_cast<std::size_t>(rows * context);
  inputs_BT.resize(count);
  targets_BT.resize(count);
  answers_BT.resize(with_answers ? count : 0);
}

void fill_row(const TokenStream& stream, Index begin, std::optional<TokenId> end_of_text, Index b,
              Batch& batch) {
  const Index T = batch.context;
  batch.window_.resize(static_cast<std::size_t>(T + 1));
  stream.read(begin, T + 1, batch.window_.data());
  const auto copy_from = [&](Index first, std::vector<std::int32_t>& to_BT) {
    for (Index t = 0; t < T; ++t) to_BT[b * T + t] = static_cast<std::int32_t>(batch.window_[first + t]);
  };
  copy_from(0, batch.inputs_BT);
  copy_from(1, batch.targets_BT);
  if (batch.answers_BT.empty()) return;

  auto* answers_T = batch.answers_BT.data() + b * T;
  stream.read_answers(begin + 1, T, answers_T);
  if (!end_of_text) return;
  // Tokens before the first document that begins here belong to one whose beginning is out of sight.
  const auto visible = std::find(batch.window_.begin(), batch.window_.end() - 1, *end_of_text);
  std::fill_n(answers_T, visible - batch.window_.begin(), std::uint8_t{0});
}

namespace {

Index windows_in(const TokenStream& stream, Index context, const char* what) {
  DDL_CHECK(context >= 1, "context {}", context);
  const Index windows = (stream.tokens() - 1) / context;
  if (stream.tokens() < 1 || windows < 1)
    throw UserError(
        "the {} split has {} tokens, but a context of {} needs {} at least; use more data or a "
        "shorter context",
        what, stream.tokens(), context, context + 1);
  return windows;
}

}  // namespace

Loader::Loader(const TokenStream& stream, std::optional<TokenId> end_of_text, LoaderOptions options)
    : stream_(stream), end_of_text_(end_of_text), options_(std::move(options)) {
  DDL_CHECK(options_.rows >= 1, "{} rows", options_.rows);
  windows_ = windows_in(stream, options_.context, "training");
}

Index Loader::window_begin(Index row) const {
  const Index T = options_.context;
  if (options_.order == WindowOrder::kRandom) {
    const Random random(options_.seed, "loader random");
    return static_cast<Index>(
        random.below(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(stream_.tokens() - T)));
  }
  if (options_.order == WindowOrder::kStream) return row % windows_ * T;
  const Index epoch = row / windows_, place = row % windows_;
  const Index spare = stream_.tokens() - 1 - windows_ * T;  // fewer than T
  const Random shift(options_.seed, "loader shift");
  const Index offset = static_cast<Index>(
      shift.below(static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(spare + 1)));
  const Permutation order(windows_, options_.seed, static_cast<std::uint64_t>(epoch));
  return offset + order(place) * T;
}

void Loader::load(Index step, Batch& batch) const {
  DDL_CHECK(step >= 0, "step {}", step);
  batch.resize(options_.rows, options_.context, stream_.has_answers());
  const Index first = step * options_.rows;
  for (Index b = 0; b < options_.rows; ++b)
    fill_row(stream_, window_begin(first + b), end_of_text_, b, batch);
}

double Loader::epoch_of(Index step) const {
  return static_cast<double>(step * options_.rows) / static_cast<double>(windows_);
}

Json Loader::state(Index step) const {
  return Json{{"order", name_of(options_.order)}, {"seed", options_.seed},      {"context", options_.context},
              {"rows_per_step", options_.rows},   {"tokens", stream_.tokens()}, {"step", step}};
}

Index Loader::resume(const Json& saved, const std::string& where) const {
  const Json ours = state(0);
  const JsonFields fields(saved, where, "loader.");
  for (const auto& [key, value] : ours.items())
    if (key != "step" && fields.at(key) != value)
      throw UserError("{}: loader.{} was {} and is {} now; the run cannot continue where it stopped", where,
                      key, to_line(saved[key]), to_line(value));
  return fields.whole("step");
}

FixedWindows::FixedWindows(const TokenStream& stream, std::optional<TokenId> end_of_text, Index context,
                           Index limit)
    : stream_(stream), end_of_text_(end_of_text), context_(context) {
  DDL_CHECK(limit >= 1, "limit {}", limit);
  available_ = windows_in(stream, context, "validation");
  count_ = std::min(limit, available_);
}

void FixedWindows::load(Index first, Index rows, Batch& batch) const {
  DDL_CHECK(first >= 0 && rows >= 1 && first + rows <= count_, "windows {} + {} of {}", first, rows, count_);
  batch.resize(rows, context_, stream_.has_answers());
  for (Index b = 0; b < rows; ++b) {
    // Window i of the spread: i * available / count, without overflow for any stream that fits on a disk.
    const Index window = (first + b) * available_ / count_;
    fill_row(stream_, window * context_, end_of_text_, b, batch);
  }
}

}  // namespace ddl
