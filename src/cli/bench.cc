// ./ddl bench: speed beside the hardware's limit.
#include <CLI/CLI.hpp>
#include <memory>

#include "bench/kernels_bench.h"
#include "bench/tokenizer_bench.h"
#include "cli/commands.h"

namespace ddl {

void add_bench_command(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Speed beside the hardware's limit, measured in the same run");
  bench->require_subcommand(1);

  auto options = std::make_shared<KernelsBenchOptions>();
  CLI::App* kernels =
      bench->add_subcommand("kernels", "Every kernel at the paper's small shapes and at tiny ones");
  kernels->add_flag("--json", options->json, "One JSON record per line");
  kernels->add_option("--only", options->only, "Only kernels whose name contains this");
  kernels->callback([options] { run_kernels_bench(*options, default_exec()); });

  auto text = std::make_shared<TokenizerBenchOptions>();
  CLI::App* tokenizer = bench->add_subcommand("tokenizer", "Encode and train tokenizers");
  tokenizer->add_option("--text", text->text, "A .txt or .jsonl file; without it, generated text");
  tokenizer->add_option("--tokenizer", text->tokenizer, "A tokenizer; without it, the one trained here");
  tokenizer->add_flag("--json", text->json, "Print JSON records");
  tokenizer->callback([text] { run_tokenizer_bench(*text); });
}

}  // namespace ddl
