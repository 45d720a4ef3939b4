#include "infer/load.h"

#include <filesystem>

#include "io/checkpoint.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/weights.h"

namespace ddl {

std::string find_model_folder(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) throw UserError("{}: there is no such folder", path);
  if (fs::exists(path + "/config.json")) {
    if (fs::exists(path + "/manifest.json")) verify_checkpoint(path);
    return path;
  }
  if (!fs::is_directory(path + "/checkpoints"))
    throw UserError(
        "{}: expected a run (with checkpoints/) or a folder with config.json and model.safetensors", path);
  std::vector<std::string> rejected;
  const auto newest = latest_valid_checkpoint(path + "/checkpoints", &rejected);
  if (!newest)
    throw UserError("{}: the run has no valid checkpoint yet{}", path,
                    rejected.empty() ? "" : "; the newest: " + rejected.front());
  return newest->folder;
}

LoadedModel load_model(const std::string& path, const std::string& precision, const Exec& ex) {
  LoadedModel loaded;
  loaded.folder = find_model_folder(path);
  const std::string config_path = loaded.folder + "/config.json";
  ModelConfig config = parse_model_config(read_file(config_path), config_path);
  if (!precision.empty()) config.precision = precision;
  loaded.model = make_model(config, {1, 1}, Model::Mode::kInfer, 0, ex);
  load_weights(*loaded.model, loaded.folder, ex);
  loaded.tokenizer = load_tokenizer(loaded.folder);
  if (loaded.tokenizer->vocab_size() > config.vocab)
    throw UserError("{}: the tokenizer ({}) has {} tokens, the model {}: not this model's", loaded.folder,
                    loaded.tokenizer->name(), loaded.tokenizer->vocab_size(), config.vocab);
  return loaded;
}

}  // namespace ddl
