// ./ddl bench: speed beside the hardware's limit.
#include <CLI/CLI.hpp>
#include <memory>

#include "bench/decode_bench.h"
#include "bench/kernels_bench.h"
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

  auto decode_options = std::make_shared<DecodeBenchOptions>();
  CLI::App* decode = bench->add_subcommand(
      "decode", "Prompts and single tokens per residual interface, beside GEMM and memory limits");
  decode->add_option("--preset", decode_options->preset, "Model size")->capture_default_str();
  decode->add_option("--residual", decode_options->residuals, "Residual interfaces, or all")
      ->delimiter(',')
      ->capture_default_str();
  decode->add_option("--batch", decode_options->batches, "Sequences per step")
      ->delimiter(',')
      ->capture_default_str();
  decode->add_option("--prompt", decode_options->prompt, "Tokens of the timed prompt")->capture_default_str();
  decode->add_option("--rounds", decode_options->rounds, "Rounds; the best counts")->capture_default_str();
  decode->add_option("--precision", decode_options->precision, "auto, f32 or bf16")->capture_default_str();
  decode->add_flag("--json", decode_options->json, "One JSON record per line");
  decode->add_flag("--profile", decode_options->profile, "Also where the time goes");
  decode->callback([decode_options] { run_decode_bench(*decode_options, default_exec()); });
}

}  // namespace ddl
