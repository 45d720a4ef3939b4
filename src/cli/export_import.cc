// ./ddl export and ./ddl import: weights that move between this program and the paper's released code.
// ./ddl quantize: weights in a small format.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "core/arena.h"
#include "core/exec.h"
#include "infer/model_folder.h"

namespace ddl {
namespace {

struct WeightsCommand {
  std::string from, out, layout = "own", format = "q8", tokenizer;
};

}  // namespace

void add_export_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command("export", "A model's weights as a folder for other programs");
  command.add_option("run", c->from, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  command
      .add_option("--layout", c->layout,
                  "own: this program's, for every model; reference: the paper's released names")
      .one_of({"own", "reference"})
      .show_default();
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] {
    const Layout layout = c->layout == "own" ? Layout::kOwn : Layout::kReference;
    const WrittenModel done = export_model(c->from, layout, c->out, default_exec());
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
  Command command = app.add_command("import", "Weights of the paper's released code, for this program");
  command.add_option("folder", c->from, "config.json and safetensors (one file, or shards with an index)")
      .required();
  command.add_option("--tokenizer", c->tokenizer, "The tokenizer, where the folder has none");
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] {
    const WrittenModel done = import_model(c->from, c->tokenizer, c->out, default_exec());
    fmt::print("{} -> {}: {}, {} layers of width {}, {} parameters\n", done.from, done.to,
               done.config.residual(), done.config.layers, done.config.width, done.parameters);
    if (!done.has_tokenizer)
      fmt::print(stderr, "ddl: {} has no tokenizer.json; to generate text, name one (--tokenizer)\n",
                 done.from);
  });
}

}  // namespace ddl
