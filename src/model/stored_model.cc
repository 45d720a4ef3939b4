#include "model/stored_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "io/checkpoint_folder.h"
#include "model/config_json.h"
#include "model/hunyuan_layout.h"
#include "model/packed_folder.h"
#include "model/reference_layout.h"

namespace ddl {
namespace {

// A model is used without the optimizer's state, which is two thirds of a checkpoint.
constexpr auto belongs_to_model = [](std::string_view file) { return file != "optimizer.safetensors"; };

StoredLayout layout_of(const std::string& config_text) {
  if (is_reference_config(config_text)) return StoredLayout::kReleased;
  if (is_hunyuan_config(config_text)) return StoredLayout::kHunyuan;
  return is_transformers_config(config_text) ? StoredLayout::kTransformers : StoredLayout::kOwn;
}

}  // namespace

void expect_model_folder(const std::string& path) {
  if (std::filesystem::is_directory(path)) return;
  if (!std::filesystem::exists(path)) throw UserError("{}: there is no such folder", path);
  throw UserError("{}: a file, expected a run or the folder of a model{}", path,
                  path.ends_with(".gguf") ? "; `./ddl import` makes one of a GGUF file" : "");
}

std::string find_model_folder(const std::string& path) {
  namespace fs = std::filesystem;
  expect_model_folder(path);
  if (fs::exists(path + "/config.json")) {
    if (fs::exists(path + "/manifest.json")) verify_checkpoint(path, belongs_to_model);
    return path;
  }
  if (!fs::is_directory(path + "/checkpoints"))
    throw UserError(
        "{}: expected a run (with checkpoints/) or a folder with config.json and model.safetensors", path);
  std::vector<std::string> rejected;
  const auto newest = latest_valid_checkpoint(path + "/checkpoints", &rejected, belongs_to_model);
  if (!newest)
    throw UserError("{}: the run has no valid checkpoint yet{}", path,
                    rejected.empty() ? "" : "; the newest: " + rejected.front());
  return newest->folder;
}

StoredModel::StoredModel(const std::string& path) : folder_(find_model_folder(path)), weights_(folder_) {
  const std::string config_path = folder_ + "/config.json", text = read_file(config_path);
  check_config_size(text, config_path);
  layout_ = layout_of(text);
  config_ = layout_ == StoredLayout::kReleased  ? from_reference_config(text, config_path, weights_)
            : layout_ == StoredLayout::kHunyuan ? from_hunyuan_config(text, config_path)
                                                : parse_model_config(text, config_path);
  if (layout_ == StoredLayout::kOwn) format_ = parse_stored_format(text, config_path);
  const ParamTable table = param_table(config_, format_);
  if (format_ != WeightFormat::kF32)
    check_packed_weights(table, format_, weights_);
  else if (layout_ == StoredLayout::kReleased)
    check_reference_weights(table, config_, weights_);
  else if (layout_ == StoredLayout::kHunyuan)
    check_hunyuan_weights(table, weights_);
  else
    check_weights(table, weights_);
}

void StoredModel::load(Weights& weights, const Exec& ex) const {
  if (weights.format() != format_) {
    Weights stored(weights.config(), format_);
    load(stored, ex);
    Weights converted = to_format(stored, weights.format(), ex);
    if (weights.packed()) {
      weights = std::move(converted);
    } else {  // small weights know f32 alone, and what was asked for may compute in bf16
      std::copy_n(converted.values().begin(), converted.values().size(), weights.values().begin());
      weights.update_copy(ex);
    }
  } else if (format_ != WeightFormat::kF32)
    load_packed_weights(weights, weights_, ex);
  else if (layout_ == StoredLayout::kReleased)
    load_reference_weights(weights, weights_, ex);
  else if (layout_ == StoredLayout::kHunyuan)
    load_hunyuan_weights(weights, weights_, ex);
  else
    load_weights(weights, weights_, ex);
}

}  // namespace ddl
