// How well a model predicts text: loss per token, perplexity, bits per byte and word perplexity of documents,
// in the rolling windows of lm-evaluation-harness, and the validation loss of token shards, in the windows
// that training uses. Memory is bounded for texts of any length.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "core/record.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "eval/scorer.h"

namespace ddl {

struct Estimate {
  double value = 0;
  std::optional<double> error;  // standard error; none where there is a single unit
};

// sum y / sum x over units that were drawn independently, and its standard error to first order:
//   R     = sum_i y_i / sum_i x_i
//   error = sqrt(n / (n - 1) sum_i (y_i - R x_i)^2) / sum_i x_i
class RatioEstimate {
 public:
  void add(double y, double x);
  Index units() const { return n_; }
  Estimate estimate() const;

 private:
  Index n_ = 0;
  double y_ = 0, x_ = 0, yy_ = 0, yx_ = 0, xx_ = 0;
};

struct LanguageReport {
  std::string source, kind;  // kind: "text" | "tokens"
  Index documents = 0;       // of text
  Index windows = 0, tokens = 0, bytes = 0, words = 0;
  Index bad_rows = 0;                  // left out
  std::vector<std::string> bad_first;  // what was wrong with the first of them
  double log_likelihood = 0;           // natural logarithm, of all tokens
  Estimate loss, perplexity;           // per token
  // Of text. Errors are over documents; with a single one over its windows.
  std::optional<Estimate> bits_per_byte, byte_perplexity, word_perplexity;
  double seconds = 0;

  Json json() const;
  std::string table() const;
};

struct LanguageOptions {
  Index limit = 0;                // documents of text, windows of shards (spread evenly over them); 0: all
  CorpusOptions corpus;           // how text is read
  std::FILE* progress = nullptr;  // null: silent
};

// `path`: a text, JSON Lines or Parquet file or a folder of such; a token shard (.bin); or a folder with
// validation shards (*_val_*.bin, val.bin). Throws UserError where it is none of these or there is nothing in
// it. Shards need no tokenizer: it may be null.
LanguageReport evaluate_language(Scorer& scorer, const Tokenizer* tokenizer, const std::string& path,
                                 const LanguageOptions& options, const Exec& ex);
// Is `path` made of token shards, rather than of text?
bool holds_token_shards(const std::string& path);

}  // namespace ddl
