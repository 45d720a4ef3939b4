// ./ddl export and ./ddl import: weights that move between this program and others.
// ./ddl quantize: weights in a small format.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "core/arena.h"
#include "core/error.h"
#include "core/exec.h"
#include "infer/model_folder.h"

namespace ddl {
namespace {

struct WeightsCommand {
  std::string from, out, layout = "own", type = "f32", format = "q8", tokenizer;

  WrittenModel write() const {
    const Exec ex = default_exec();
    if (layout != "gguf") {
      if (type != "f32") throw UserError("--type {}: only --layout gguf has types; the others are f32", type);
      if (!tokenizer.empty())
        throw UserError("--tokenizer: only --layout gguf takes one; the others copy the model's");
      return export_model(from,
                          layout == "own"         ? Layout::kOwn
                          : layout == "reference" ? Layout::kReference
                                                  : Layout::kTransformers,
                          out, ex);
    }
    const GgufType gguf = type == "q8_0" ? GgufType::kQ8 : type == "bf16" ? GgufType::kBf16 : GgufType::kF32;
    return export_gguf(from, gguf, tokenizer, out, ex);
  }
};

}  // namespace

void add_export_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command("export", "A model's weights for other programs");
  command.add_option("run", c->from, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  command
      .add_option(
          "--layout", c->layout,
          "own: this program's; transformers: for AutoModelForCausalLM; gguf: for llama.cpp (baseline only); "
          "reference: the paper's released names")
      .one_of({"own", "transformers", "gguf", "reference"})
      .show_default();
  command.add_option("--type", c->type, "Numbers of a GGUF file's matrices")
      .one_of({"f32", "bf16", "q8_0"})
      .show_default();
  command.add_option("--tokenizer", c->tokenizer, "For a GGUF file, where the model's folder has none");
  command.add_option("--out", c->out, "The new folder; the new file for gguf").required();
  command.on_run([c] {
    const WrittenModel done = c->write();
    fmt::print("{} -> {}: {} in the {} layout, {} parameters\n", done.from, done.to, done.config.residual(),
               c->layout, done.parameters);
  });
}

void add_quantize_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command("quantize", "A model with small weights, for inference");
  command.add_option("run", c->from, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  command
      .add_option("--weights", c->format,
                  "bf16; q8: 8 bits in blocks of 32; q4: 4 bits, the embedding 8 (docs/small-weights.md)")
      .one_of({"bf16", "q8", "q4"})
      .show_default();
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] {
    const WrittenModel done = quantize_model(c->from, parse_weight_format(c->format), c->out, default_exec());
    fmt::print("{} -> {}: {}, {} parameters, {} as {}\n", done.from, done.to, done.config.residual(),
               done.parameters, format_bytes(done.bytes), c->format);
  });
}

void add_import_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command(
      "import", "Weights of transformers, llama.cpp or the paper's released code, for this program");
  command.add_option("source", c->from, "A folder with config.json and safetensors, or a GGUF file")
      .required();
  command.add_option("--tokenizer", c->tokenizer, "The tokenizer, where the source has none");
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] {
    const WrittenModel done = import_model(c->from, c->tokenizer, c->out, default_exec());
    fmt::print("{} -> {}: {}, {} layers of width {}, {} parameters\n", done.from, done.to,
               done.config.residual(), done.config.layers, done.config.width, done.parameters);
    if (!done.has_tokenizer)
      fmt::print(stderr, "ddl: {}; to generate text, name one (--tokenizer)\n",
                 done.from.ends_with(".gguf")
                     ? "the file has no tokenizer.json inside (tokenizer.huggingface.json)"
                     : done.from + " has no tokenizer");
  });
}

}  // namespace ddl
