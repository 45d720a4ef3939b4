// ddl bench tokenizer
#include <CLI/CLI.hpp>

#include "bench/tokenizer_bench.h"
#include "cli/commands.h"

namespace ddl {

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);
  auto options = std::make_shared<TokenizerBenchOptions>();
  CLI::App* command = bench->add_subcommand("tokenizer", "Encode and train tokenizers");
  command->add_option("--text", options->text, "A .txt or .jsonl file; without it, generated text");
  command->add_option("--tokenizer", options->tokenizer, "A tokenizer; without it, the one trained here");
  command->add_flag("--json", options->json, "Print JSON records");
  command->callback([options] { run_tokenizer_bench(*options); });
}

}  // namespace ddl
