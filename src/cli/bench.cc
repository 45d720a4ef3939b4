// ./ddl bench: speed compared with the hardware's limit.
#include <memory>

#include "bench/decode_bench.h"
#include "bench/eval_bench.h"
#include "bench/kernels_bench.h"
#include "bench/loader_bench.h"
#include "bench/serve_bench.h"
#include "bench/step_bench.h"
#include "bench/tokenizer_bench.h"
#include "cli/commands.h"
#include "core/exec.h"
#include "model/config.h"

namespace ddl {

void add_bench_command(Command app) {
  Command bench =
      app.add_command("bench", "Speed compared with the hardware's limit, measured in the same run");
  bench.require_command();

  auto kernels_options = std::make_shared<KernelsBenchOptions>();
  Command kernels = bench.add_command("kernels", "Every kernel at the paper's small shapes and at tiny ones");
  kernels.add_flag("--json", kernels_options->json, "One JSON record per line");
  kernels.add_option("--only", kernels_options->only, "Only kernels whose name contains this");
  kernels.on_run([kernels_options] { run_kernels_bench(*kernels_options, default_exec()); });

  auto step_options = std::make_shared<StepBenchOptions>();
  Command step =
      bench.add_command("step", "A training step of each residual rule, compared with its GEMM floor");
  step.add_option("--preset", step_options->preset, "tiny, mini, small or medium").show_default();
  step.add_option("--residual", step_options->residuals, "Residual rules, with commas between, or all")
      .separated_by(',')
      .show_default();
  step.add_option("--precision", step_options->precision, "auto, f32 or bf16")
      .one_of({"auto", "f32", "bf16"})
      .show_default();
  step.add_option("--batch", step_options->batch, "Sequences per step").range(1, kMaxBatch).show_default();
  step.add_option("--context", step_options->context, "Tokens per sequence (default: the preset's)")
      .range(1, kMaxContext);
  step.add_option("--steps", step_options->steps, "Timed steps; the best counts")
      .range(1, 1000)
      .show_default();
  step.add_flag("--profile", step_options->profile, "Where the time goes, by kernel");
  step.add_flag("--json", step_options->json, "One JSON record per line");
  step.on_run([step_options] { run_step_bench(*step_options, default_exec()); });

  auto decode_options = std::make_shared<DecodeBenchOptions>();
  Command decode = bench.add_command(
      "decode", "Prompts and single tokens of each residual rule, compared with GEMM and memory limits");
  decode.add_option("--preset", decode_options->preset, "Model size").show_default();
  decode.add_option("--residual", decode_options->residuals, "Residual rules, with commas between, or all")
      .separated_by(',')
      .show_default();
  decode.add_option("--batch", decode_options->batches, "Sequences per step")
      .separated_by(',')
      .range(1, kMaxBatch)
      .show_default();
  decode.add_option("--prompt", decode_options->prompt, "Tokens of the timed prompt").show_default();
  decode.add_option("--rounds", decode_options->rounds, "Rounds; the best counts")
      .range(1, 1000)
      .show_default();
  decode.add_option("--precision", decode_options->precision, "auto, f32 or bf16")
      .one_of({"auto", "f32", "bf16"})
      .show_default();
  decode.add_option("--weights", decode_options->weights, "f32, bf16, q8, q4, with commas between, or all")
      .separated_by(',')
      .show_default();
  decode.add_flag("--json", decode_options->json, "One JSON record per line");
  decode.add_flag("--profile", decode_options->profile, "Also where the time goes");
  decode.on_run([decode_options] { run_decode_bench(*decode_options, default_exec()); });

  auto eval_options = std::make_shared<EvalBenchOptions>();
  Command eval =
      bench.add_command("eval", "Scoring of multiple-choice questions, compared with the rate of a prompt");
  eval.add_option("--preset", eval_options->preset, "Model size").show_default();
  eval.add_option("--residual", eval_options->residuals, "Residual rules, with commas between")
      .separated_by(',')
      .show_default();
  eval.add_option("--questions", eval_options->questions, "At most so many questions")
      .range(1, 1 << 20)
      .show_default();
  eval.add_option("--task", eval_options->task,
                  "A task of `ddl eval`; without it, random tokens like ARC-Easy's");
  eval.add_option("--data", eval_options->data, "The folder with the task's data");
  eval.add_option("--tokenizer", eval_options->tokenizer, "The tokenizer of the task's text");
  eval.add_option("--shots", eval_options->shots, "Examples before each question of the task").show_default();
  eval.add_option("--batch-tokens", eval_options->batch_tokens,
                  "Tokens computed at a time; 0: the scorer's choice")
      .show_default();
  eval.add_option("--prompt", eval_options->prompt, "Tokens of the prompt to compare with").show_default();
  eval.add_option("--rounds", eval_options->rounds, "Parts; the median counts").range(1, 1000).show_default();
  eval.add_option("--precision", eval_options->precision, "auto, f32 or bf16")
      .one_of({"auto", "f32", "bf16"})
      .show_default();
  eval.add_flag("--json", eval_options->json, "One JSON record per line");
  eval.add_flag("--profile", eval_options->profile, "Also where the time goes");
  eval.on_run([eval_options] { run_eval_bench(*eval_options, default_exec()); });

  auto serve_options = std::make_shared<ServeBenchOptions>();
  Command serve = bench.add_command("serve", "Streams through the server, compared with the decoder alone");
  serve.add_option("--preset", serve_options->preset, "Model size").show_default();
  serve.add_option("--residual", serve_options->residual, "Residual rule").show_default();
  serve.add_option("--streams", serve_options->streams, "Requests at a time").range(1, 64).show_default();
  serve.add_option("--prompt", serve_options->prompt, "Tokens of each prompt")
      .range(1, 1 << 20)
      .show_default();
  serve.add_option("--tokens", serve_options->tokens, "Tokens of each text").range(2, 1 << 20).show_default();
  serve.add_option("--rounds", serve_options->rounds, "Rounds; the best counts")
      .range(1, 1000)
      .show_default();
  serve.add_option("--precision", serve_options->precision, "auto, f32 or bf16")
      .one_of({"auto", "f32", "bf16"})
      .show_default();
  serve.add_flag("--json", serve_options->json, "A JSON record");
  serve.on_run([serve_options] { run_serve_bench(*serve_options, default_exec()); });

  auto tokenizer_options = std::make_shared<TokenizerBenchOptions>();
  Command tokenizer = bench.add_command("tokenizer", "Encode and train tokenizers");
  tokenizer.add_option("--text", tokenizer_options->text,
                       "A .txt or .jsonl file; without it, generated text");
  tokenizer.add_option("--tokenizer", tokenizer_options->tokenizer,
                       "A tokenizer; without it, the one trained here");
  tokenizer.add_flag("--json", tokenizer_options->json, "Print JSON records");
  tokenizer.on_run([tokenizer_options] { run_tokenizer_bench(*tokenizer_options); });

  auto loader_options = std::make_shared<LoaderBenchOptions>();
  Command loader = bench.add_command("loader", "Batches from mapped shards");
  loader.add_option("--data", loader_options->data, "A dataset; without it, random tokens");
  loader.add_option("--rows", loader_options->rows, "Rows per batch").range(1, kMaxBatch).show_default();
  loader.add_option("--context", loader_options->context, "Tokens per row")
      .range(1, kMaxContext)
      .show_default();
  loader.add_option("--consumed", loader_options->consumed_tokens_per_s,
                    "Tokens/s of training, to compare with");
  loader.add_flag("--json", loader_options->json, "One JSON record per line");
  loader.on_run([loader_options] { run_loader_bench(*loader_options); });
}

}  // namespace ddl
