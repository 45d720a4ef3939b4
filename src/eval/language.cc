#include "eval/language.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/progress_line.h"
#include "eval/python_words.h"
#include "eval/rolling_windows.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr Index kTokensAtOnce = 16384;  // in one call of the scorer: many passes, little memory

Estimate scaled(const Estimate& e, double factor) {
  return {e.value * factor, e.error ? std::optional(*e.error * factor) : std::nullopt};
}
// e^x, its error to first order.
Estimate exponential(const Estimate& e) {
  const double value = std::exp(e.value);
  return {value, e.error ? std::optional(*e.error * value) : std::nullopt};
}

class Evaluation {
 public:
  Evaluation(Scorer& scorer, const std::string& path, const LanguageOptions& options)
      : scorer_(scorer),
        options_(options),
        context_(scorer.config().context),
        seconds_before_(scorer.cost().seconds),
        line_(path, ProgressLine::Unit::kTokens, 0, options.progress) {
    report_.source = path;
  }

  LanguageReport text(const Tokenizer& tokenizer) {
    report_.kind = "text";
    CorpusReader reader({report_.source}, options_.corpus);
    const auto begin = static_cast<std::int32_t>(tokenizer.end_of_text());
    const double total_bytes = static_cast<double>(reader.bytes_total());
    RollingWindows windows(begin, context_);
    PythonWords words;
    std::vector<TokenId> ids;
    const auto push_window = [&](ScoreRequest window) { push(std::move(window)); };
    const auto share_read = [&] {
      return total_bytes > 0 ? static_cast<double>(reader.bytes_read()) / total_bytes : 0;
    };
    bool inside = false;
    double read = 0;  // share of the input that is behind us, scored or waiting
    const auto end_document = [&] {
      if (inside) windows.finish(push_window), documents_.back().words = words.count();
      inside = false;
    };
    for (Document piece; reader.next(piece);) {
      if (piece.piece == 0) {
        end_document();
        if (options_.limit > 0 && report_.documents == options_.limit) break;
        inside = true;
        ++report_.documents;
        documents_.push_back({});
        windows = RollingWindows(begin, context_);
        words = {};
      }
      documents_.back().bytes += std::ssize(piece.text);
      words.add(piece.text);
      ids.clear();
      tokenizer.encode(piece.text, ids);
      const double from = std::exchange(read, share_read()), to = read;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        windows.add(static_cast<std::int32_t>(ids[i]), push_window);
        if (waiting_tokens_ < kTokensAtOnce) continue;
        score_waiting(from + (to - from) * static_cast<double>(i) / static_cast<double>(ids.size()));
        count_documents(1);  // the last one has more pieces
      }
    }
    end_document();
    if (report_.documents == 0) throw UserError("{}: no text in it", report_.source);
    report_.bad_rows = reader.bad_rows().count(), report_.bad_first = reader.bad_rows().first();
    score_waiting(1);
    count_documents(0);
    return finish();
  }

  LanguageReport tokens(const TokenStream& stream) {
    report_.kind = "tokens";
    const FixedWindows windows(stream, std::nullopt, context_,
                               options_.limit > 0 ? options_.limit : std::numeric_limits<Index>::max());
    Batch batch;
    for (Index i = 0; i < windows.count(); ++i) {
      windows.load(i, 1, batch);
      push({{batch.inputs_BT.front()}, {batch.targets_BT.begin(), batch.targets_BT.end()}});
      if (waiting_tokens_ >= kTokensAtOnce)
        score_waiting(static_cast<double>(i + 1) / static_cast<double>(windows.count()));
    }
    score_waiting(1);
    return finish();
  }

 private:
  struct Totals {
    double loss = 0;  // summed over its tokens
    Index tokens = 0, bytes = 0, words = 0;
  };

  void push(ScoreRequest window) {
    waiting_tokens_ += std::ssize(window.continuation);
    waiting_.push_back(std::move(window));
    document_of_.push_back(std::ssize(documents_) - 1);
  }

  // `share` of the input lies behind us afterwards.
  void score_waiting(double share) {
    const auto done = [&](Index windows) {
      show(behind_ + (share - behind_) * static_cast<double>(windows) / static_cast<double>(waiting_.size()));
    };
    const std::vector<Score> scores = scorer_.score_all(waiting_, done);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const Index tokens = std::ssize(waiting_[i].continuation);
      const double loss = -scores[i].log_likelihood;
      of_windows_.add(loss, static_cast<double>(tokens));
      report_.windows += 1, report_.tokens += tokens;
      report_.log_likelihood -= loss;
      if (documents_.empty()) continue;
      documents_[document_of_[i]].loss += loss;
      documents_[document_of_[i]].tokens += tokens;
    }
    waiting_.clear(), document_of_.clear();
    waiting_tokens_ = 0, behind_ = share;
  }

  // All but the last `open` documents are complete.
  void count_documents(std::size_t open) {
    const std::size_t complete = documents_.size() - open;
    for (std::size_t i = 0; i < complete; ++i) {
      const Totals& d = documents_[i];
      per_token_.add(d.loss, static_cast<double>(d.tokens));
      per_byte_.add(d.loss, static_cast<double>(d.bytes));
      per_word_.add(d.loss, static_cast<double>(d.words));
      report_.bytes += d.bytes, report_.words += d.words;
    }
    documents_.erase(documents_.begin(), documents_.begin() + static_cast<std::ptrdiff_t>(complete));
  }

  LanguageReport finish() {
    const bool several = per_token_.units() > 1;
    report_.loss = several ? per_token_.estimate() : of_windows_.estimate();
    report_.perplexity = exponential(report_.loss);
    if (report_.kind == "text") {
      const auto per = [&](const RatioEstimate& over_documents, Index count) {
        return several
                   ? over_documents.estimate()
                   : scaled(report_.loss, static_cast<double>(report_.tokens) / static_cast<double>(count));
      };
      const Estimate byte = per(per_byte_, report_.bytes);
      report_.bits_per_byte = scaled(byte, 1 / std::log(2.0));
      report_.byte_perplexity = exponential(byte);
      report_.word_perplexity = exponential(per(per_word_, report_.words));
    }
    report_.seconds = scorer_.cost().seconds - seconds_before_;
    return report_;
  }

  // How many tokens there are is known only at the end; which share of the input is behind us, always.
  void show(double share) {
    std::string note =
        report_.tokens > 0
            ? fmt::format("loss {:.4f}", -report_.log_likelihood / static_cast<double>(report_.tokens))
            : "";
    if (share > 0)
      note += fmt::format(", {:.0f}%, {} left", 100 * share,
                          format_seconds((now() - start_) * (1 - share) / share));
    line_.update(static_cast<std::uint64_t>(report_.tokens), note);
  }

  Scorer& scorer_;
  const LanguageOptions& options_;
  const Index context_;
  const double seconds_before_;
  const double start_ = now();
  ProgressLine line_;
  LanguageReport report_;
  std::vector<ScoreRequest> waiting_;
  std::vector<Index> document_of_;  // of each window that waits
  std::vector<Totals> documents_;   // those with windows that wait, and the one that is being read
  Index waiting_tokens_ = 0;
  double behind_ = 0;  // share of the input that is scored
  RatioEstimate of_windows_, per_token_, per_byte_, per_word_;
};

// The validation shards `path` stands for; none where it is not made of shards.
std::vector<TokenShard> find_shards(const std::string& path) {
  if (path.ends_with(".bin") && fs::is_regular_file(path)) {
    std::vector<TokenShard> shards;
    shards.emplace_back(path, BareFiles::kAccept);
    return shards;
  }
  if (!fs::is_directory(path)) return {};
  const ShardFiles files = find_shard_files(path);
  if (files.val.empty() && !files.train.empty())
    throw UserError(
        "{}: training shards, but no validation shards (*_val_*.bin, or val.bin with train.bin); name a "
        "shard to use it",
        path);
  return files.open(files.val);
}

Json with_error(const Estimate& e) { return e.error ? Json(*e.error) : Json(nullptr); }

std::string shown(const Estimate& e, int digits) {
  return e.error ? fmt::format("{:>11.{}f} +- {:.{}f}", e.value, digits, *e.error, digits)
                 : fmt::format("{:>11.{}f}", e.value, digits);
}

}  // namespace

void RatioEstimate::add(double y, double x) {
  ++n_;
  y_ += y, x_ += x;
  yy_ += y * y, yx_ += y * x, xx_ += x * x;
}

Estimate RatioEstimate::estimate() const {
  const double ratio = y_ / x_;
  if (n_ < 2) return {ratio, std::nullopt};
  const double squares = std::max(0.0, yy_ - 2 * ratio * yx_ + ratio * ratio * xx_);
  const double n = static_cast<double>(n_);
  return {ratio, std::sqrt(n / (n - 1) * squares) / x_};
}

Json LanguageReport::json() const {
  Json json = make_record("language");
  json["source"] = source;
  json["kind"] = kind;
  if (kind == "text") {
    json["documents"] = documents, json["bytes"] = bytes, json["words"] = words;
    json["bad_rows_left_out"] = bad_rows;
  }
  json["windows"] = windows;
  json["tokens"] = tokens;
  json["log_likelihood"] = log_likelihood;
  const auto add = [&](const char* name, const Estimate& e) {
    json[name] = e.value;
    json[std::string(name) + "_stderr"] = with_error(e);
  };
  add("loss", loss);
  add("perplexity", perplexity);
  if (bits_per_byte) add("bits_per_byte", *bits_per_byte);
  if (byte_perplexity) add("byte_perplexity", *byte_perplexity);
  if (word_perplexity) add("word_perplexity", *word_perplexity);
  json["seconds"] = seconds;
  return json;
}

std::string LanguageReport::table() const {
  std::string out = fmt::format("{}: {} tokens in {} windows", source, tokens, windows);
  if (kind == "text")
    out += fmt::format("; {} document{}, {} bytes, {} words", documents, documents == 1 ? "" : "s", bytes,
                       words);
  if (bad_rows > 0) out += fmt::format("; {} bad row{} left out", bad_rows, bad_rows == 1 ? "" : "s");
  out +=
      fmt::format("\n  loss per token   {}\n  perplexity       {}\n", shown(loss, 4), shown(perplexity, 3));
  if (bits_per_byte) out += fmt::format("  bits per byte    {}\n", shown(*bits_per_byte, 4));
  if (byte_perplexity) out += fmt::format("  byte perplexity  {}\n", shown(*byte_perplexity, 4));
  if (word_perplexity) out += fmt::format("  word perplexity  {}\n", shown(*word_perplexity, 2));
  if (loss.error)
    out += fmt::format("  (+- one standard error over {})\n",
                       kind == "text" && documents > 1 ? "documents" : "windows");
  return out;
}

bool holds_token_shards(const std::string& path) { return !find_shards(path).empty(); }

LanguageReport evaluate_language(Scorer& scorer, const Tokenizer* tokenizer, const std::string& path,
                                 const LanguageOptions& options, const Exec& ex) {
  const Index context = scorer.config().context, vocab = scorer.config().vocab;
  if (!fs::exists(path)) throw UserError("{}: no such file or folder", path);
  std::vector<TokenShard> shards = find_shards(path);
  Evaluation evaluation(scorer, path, options);
  if (shards.empty()) {
    if (!tokenizer) throw UserError("{}: text needs a tokenizer; name one (--tokenizer)", path);
    return evaluation.text(*tokenizer);
  }
  for (const TokenShard& shard : shards)
    if (const auto bad = shard.find_out_of_range(vocab, ex))
      throw UserError("{}: token {} at position {} is outside the model's vocabulary of {}", shard.path(),
                      bad->token, bad->position, vocab);
  const TokenStream stream(std::move(shards));
  if (stream.tokens() <= context)
    throw UserError("{}: {} tokens, fewer than one window of {} and its successor", path, stream.tokens(),
                    context);
  return evaluation.tokens(stream);
}

}  // namespace ddl
