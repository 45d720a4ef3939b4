// ./ddl bench: speed beside the hardware's limit.
#include <CLI/CLI.hpp>
#include <memory>

#include "bench/kernels_bench.h"
#include "bench/loader_bench.h"
#include "bench/step_bench.h"
#include "bench/tokenizer_bench.h"
#include "cli/commands.h"

namespace ddl {

void add_bench_command(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Speed beside the hardware's limit, measured in the same run");
  bench->require_subcommand(1);

  auto kernels_options = std::make_shared<KernelsBenchOptions>();
  CLI::App* kernels =
      bench->add_subcommand("kernels", "Every kernel at the paper's small shapes and at tiny ones");
  kernels->add_flag("--json", kernels_options->json, "One JSON record per line");
  kernels->add_option("--only", kernels_options->only, "Only kernels whose name contains this");
  kernels->callback([kernels_options] { run_kernels_bench(*kernels_options, default_exec()); });

  auto step_options = std::make_shared<StepBenchOptions>();
  CLI::App* step =
      bench->add_subcommand("step", "A training step per residual interface, beside its GEMM floor");
  step->add_option("--preset", step_options->preset, "tiny, mini, small or medium")->capture_default_str();
  step->add_option("--residual", step_options->residual, "One residual interface, or all")
      ->capture_default_str();
  step->add_option("--precision", step_options->precision, "auto, f32 or bf16")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
  step->add_option("--batch", step_options->batch, "Sequences a step")->capture_default_str();
  step->add_option("--context", step_options->context, "Tokens a sequence (default: the preset's)");
  step->add_option("--steps", step_options->steps, "Timed steps; the best counts")->capture_default_str();
  step->add_flag("--profile", step_options->profile, "Where the time goes, by kernel");
  step->add_flag("--json", step_options->json, "One JSON record per line");
  step->callback([step_options] { run_step_bench(*step_options, default_exec()); });

  auto tokenizer_options = std::make_shared<TokenizerBenchOptions>();
  CLI::App* tokenizer = bench->add_subcommand("tokenizer", "Encode and train tokenizers");
  tokenizer->add_option("--text", tokenizer_options->text,
                        "A .txt or .jsonl file; without it, generated text");
  tokenizer->add_option("--tokenizer", tokenizer_options->tokenizer,
                        "A tokenizer; without it, the one trained here");
  tokenizer->add_flag("--json", tokenizer_options->json, "Print JSON records");
  tokenizer->callback([tokenizer_options] { run_tokenizer_bench(*tokenizer_options); });

  auto loader_options = std::make_shared<LoaderBenchOptions>();
  CLI::App* loader = bench->add_subcommand("loader", "Batches from mapped shards");
  loader->add_option("--data", loader_options->data, "A dataset; without it, random tokens");
  loader->add_option("--rows", loader_options->rows, "Rows of a batch")->capture_default_str();
  loader->add_option("--context", loader_options->context, "Tokens of a row")->capture_default_str();
  loader->add_option("--consumed", loader_options->consumed_tokens_per_s,
                     "Tokens/s of training, to compare with");
  loader->add_flag("--json", loader_options->json, "One JSON record per line");
  loader->callback([loader_options] { run_loader_bench(*loader_options); });
}

}  // namespace ddl
