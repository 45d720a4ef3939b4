// How fast text is encoded (MB/s on one core) and a tokenizer trained (seconds on all).
#pragma once

#include <string>

namespace ddl {

struct TokenizerBenchOptions {
  std::string text;       // a .txt or .jsonl file (field "text"); "" generates text that resembles English
  std::string tokenizer;  // as load_tokenizer; "" takes the one that the benchmark trains
  bool json = false;      // print records instead of a table
};

void run_tokenizer_bench(const TokenizerBenchOptions& options);

}  // namespace ddl
