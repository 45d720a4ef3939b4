// ./ddl export and ./ddl import: weights that move between this program and the paper's released code.
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "infer/load.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/reference_layout.h"

namespace ddl {
namespace {

void refuse_used_folder(const std::string& folder) {
  if (std::filesystem::exists(folder) && !std::filesystem::is_empty(folder))
    throw UserError("{}: exists and is not empty; name a new folder", folder);
  make_folders(folder);
}

// config.json comes last: a folder with it is complete.
void write_folder(const std::string& folder, const std::vector<TensorToWrite>& tensors,
                  const Tokenizer* tokenizer, Index context, const Json& config) {
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  Json generation{{"max_length", context}};
  if (tokenizer) {
    tokenizer->save(folder);
    generation["bos_token_id"] = tokenizer->end_of_text(),
    generation["eos_token_id"] = tokenizer->end_of_text();
  }
  write_file_atomic(folder + "/generation_config.json", to_text(generation));
  write_file_atomic(folder + "/config.json", to_text(config));
}

std::vector<TensorToWrite> own_tensors(Model& model) {
  std::vector<TensorToWrite> tensors;
  for (const Param& p : model.table().list())
    tensors.push_back({p.name, "F32", p.shape, model.params().data() + p.offset});
  return tensors;
}

void export_run(const std::string& run, const std::string& layout, const std::string& out) {
  const LoadedModel loaded = load_model(run, "", default_exec());
  const ModelConfig& config = loaded.model->config();
  if (layout == "reference") {
    const ReferenceModel reference = to_reference(*loaded.model);  // before the folder: it may refuse
    refuse_used_folder(out);
    write_folder(out, reference.tensors, loaded.tokenizer.get(), config.context, reference.config);
  } else {
    refuse_used_folder(out);
    write_folder(out, own_tensors(*loaded.model), loaded.tokenizer.get(), config.context,
                 model_config_json(config));
  }
  fmt::print("{} -> {}: {} in the {} layout, {} parameters\n", loaded.folder, out, config.residual, layout,
             loaded.model->table().parameter_count());
}

void import_folder(const std::string& folder, const std::string& tokenizer_path, const std::string& out) {
  const Exec ex = default_exec();
  const std::string config_path = folder + "/config.json";
  const Json json = parse_json(read_file(config_path));
  const WeightFolder weights(folder);
  const ModelConfig config = from_reference_config(json, config_path, weights);
  const auto model = make_model(config, {1, 1}, Model::Mode::kInfer, 0, ex);
  load_reference_weights(*model, weights, ex);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!tokenizer_path.empty())
    tokenizer = load_tokenizer(tokenizer_path);
  else if (std::filesystem::exists(folder + "/tokenizer.json"))
    tokenizer = load_tokenizer(folder);
  else
    fmt::print(stderr, "ddl: {} has no tokenizer.json; generating text needs one (--tokenizer)\n", folder);
  refuse_used_folder(out);
  write_folder(out, own_tensors(*model), tokenizer.get(), config.context, model_config_json(config));
  fmt::print("{} -> {}: {}, {} layers of width {}, {} parameters\n", folder, out, config.residual,
             config.layers, config.width, model->table().parameter_count());
}

struct WeightsCommand {
  std::string from, out, layout = "reference", tokenizer;
};

}  // namespace

void add_export_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command("export", "A model's weights as a folder for other programs");
  command.add_option("run", c->from, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  command.add_option("--layout", c->layout, "reference: the paper's released names; own: this program's")
      .one_of({"reference", "own"})
      .show_default();
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] { export_run(c->from, c->layout, c->out); });
}

void add_import_command(Command app) {
  auto c = std::make_shared<WeightsCommand>();
  Command command = app.add_command("import", "Weights of the paper's released code, for this program");
  command.add_option("folder", c->from, "config.json and safetensors (one file, or shards with an index)")
      .required();
  command.add_option("--tokenizer", c->tokenizer, "The tokenizer, where the folder has none");
  command.add_option("--out", c->out, "The new folder").required();
  command.on_run([c] { import_folder(c->from, c->tokenizer, c->out); });
}

}  // namespace ddl
