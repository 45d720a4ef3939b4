#include "model/weights.h"

#include <filesystem>
#include <set>

namespace ddl {
namespace {

// The shards that an index names. A name may not lead out of the folder.
std::set<std::string> shard_names(const std::string& index_path) {
  const Json json = parse_json(read_file(index_path));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw UserError("{}: expected a JSON object with \"weight_map\"", index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().empty() ||
        file.get<std::string>().find('/') != std::string::npos)
      throw UserError("{}: tensor '{}' is in {}, expected the name of a file beside it", index_path,
                      tensor.substr(0, 80), to_line(file).substr(0, 80));
    names.insert(file.get<std::string>());
  }
  return names;
}

}  // namespace

WeightFolder::WeightFolder(const std::string& folder) : folder_(folder) {
  const std::string whole = folder + "/model.safetensors", index = whole + ".index.json";
  if (std::filesystem::exists(whole)) {
    files_.push_back(std::make_unique<SafetensorsFile>(whole));
  } else if (std::filesystem::exists(index)) {
    for (const std::string& name : shard_names(index))
      files_.push_back(std::make_unique<SafetensorsFile>(folder + "/" + name));
  } else {
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
  if (found == file_of_.end()) throw UserError("{}: there is no tensor '{}'", folder_, name);
  return *files_[found->second];
}

const TensorInfo& WeightFolder::info(std::string_view name) const { return *file(name).find(name); }

void WeightFolder::read(std::string_view name, std::span<const Index> shape, float* out) const {
  file(name).read(name, shape, out);
}

void load_weights(Model& model, const std::string& folder, const Exec& ex) {
  const WeightFolder weights(folder);
  std::set<std::string> known;
  for (const Param& p : model.table().list()) {
    weights.read(p.name, p.shape, model.params().data() + p.offset);
    known.insert(p.name);
  }
  for (const std::string& name : weights.names())
    if (!known.contains(name))
      throw UserError("{}: tensor '{}' is not one of this model's (residual = {})", folder, name,
                      model.config().residual);
  model.params_changed(ex);
}

}  // namespace ddl
