#include "model/weight_folder.h"

#include <filesystem>

namespace ddl {
namespace {

// lm_head shares its memory with the embedding, which safetensors refuses; it is not needed.
constexpr const char* kConvertPyTorch =
    "  import glob, torch, safetensors.torch\n"
    "  safetensors.torch.save_file({k: v.contiguous() for f in glob.glob(\"pytorch_model*.bin\") for k, v in "
    "torch.load(f, weights_only=True).items() if k != \"lm_head.weight\"}, \"model.safetensors\")";

}  // namespace

std::set<std::string> parse_weight_index(std::string_view text, const std::string& source) {
  const Json json = parse_json(text);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw UserError("{}: expected a JSON object with \"weight_map\"", source);
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw UserError("{}: tensor '{}' is in {}, expected the name of a file next to it", source,
                      tensor.substr(0, 80), to_line(file).substr(0, 80));
    names.insert(name);
  }
  return names;
}

WeightFolder::WeightFolder(const std::string& folder) : source_(folder + "/average.safetensors") {
  if (!std::filesystem::exists(source_)) source_ = folder + "/model.safetensors";
  const std::string index = source_ + ".index.json";
  if (std::filesystem::exists(source_)) {
    files_.push_back(std::make_unique<SafetensorsFile>(source_));
  } else if (std::filesystem::exists(index)) {
    source_ = index;
    for (const std::string& name : parse_weight_index(read_file(index), index))
      files_.push_back(std::make_unique<SafetensorsFile>(folder + "/" + name));
  } else {
    if (std::filesystem::exists(folder + "/pytorch_model.bin") ||
        std::filesystem::exists(folder + "/pytorch_model.bin.index.json"))
      throw UserError(
          "{}: the weights are in PyTorch's own format (pytorch_model.bin), which this program does not "
          "read; there "
          "is no model.safetensors. These two lines of Python, run in that folder, write it:\n{}",
          folder, kConvertPyTorch);
    throw UserError("{}: no model.safetensors and no model.safetensors.index.json", folder);
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const TensorInfo& tensor : files_[i]->tensors())
      if (!file_of_.emplace(tensor.name, i).second)
        throw UserError("{}: tensor '{}' is also in {}", files_[i]->path(), tensor.name,
                        files_[file_of_.at(tensor.name)]->path());
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsFile& WeightFolder::file(std::string_view name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end())
    throw UserError("{}: tensor '{}' is missing ({} others are there)", source_, name, file_of_.size());
  return *files_[found->second];
}

void WeightFolder::expect(std::string_view name, std::span<const Index> shape) const {
  if (!contains(name))
    throw UserError("{}: tensor '{}' is missing, expected {}", source_, name, describe_tensor("F32", shape));
  file(name).expect(name, shape);
}

void WeightFolder::read(std::string_view name, std::span<const Index> shape, float* out) const {
  expect(name, shape);
  file(name).read(name, shape, out);
}

void WeightFolder::expect_bytes(std::string_view name, std::string_view dtype,
                                std::span<const Index> shape) const {
  if (!contains(name))
    throw UserError("{}: tensor '{}' is missing, expected {}", source_, name, describe_tensor(dtype, shape));
  file(name).expect_bytes(name, dtype, shape);
}

void WeightFolder::read_bytes(std::string_view name, std::string_view dtype, std::span<const Index> shape,
                              void* out) const {
  expect_bytes(name, dtype, shape);
  file(name).read_bytes(name, dtype, shape, out);
}

void check_weights(const ParamTable& table, const WeightFolder& weights) {
  std::set<std::string> known;
  for (const Param& p : table.list()) {
    weights.expect(p.name, p.shape);
    known.insert(p.name);
  }
  for (const std::string& name : weights.names())
    if (!known.contains(name))
      throw UserError("{}: tensor '{}' is not one of those this model has (config.json)",
                      weights.path_of(name), name);
}

void load_weights(Weights& weights, const WeightFolder& folder, const Exec& ex) {
  check_weights(weights.table(), folder);
  for (const Param& p : weights.table().list())
    folder.read(p.name, p.shape, weights.values().data() + p.offset);
  weights.update_copy(ex);
}

}  // namespace ddl
