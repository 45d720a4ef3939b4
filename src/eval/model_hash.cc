#include "eval/model_hash.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "io/sha256.h"

namespace ddl {

std::string hash_model_folder(const std::string& folder, const std::string& precision) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && name.ends_with(".safetensors");
    if (weights || name == "config.json" || name == "tokenizer.json") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string all = precision;
  for (const std::string& name : names) all += " " + name + " " + sha256_file(folder + "/" + name);
  return sha256_hex(all);
}

}  // namespace ddl
