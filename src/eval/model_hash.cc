#include "eval/model_hash.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "io/sha256.h"

namespace ddl {

namespace {

std::string hash_tokenizer(const Tokenizer& tokenizer) {
  Sha256 hash;
  hash.update(fmt::format("{} {}", tokenizer.name(), tokenizer.end_of_text()));
  for (TokenId id = 0; static_cast<Index>(id) < tokenizer.vocab_size(); ++id) {
    const std::string token = tokenizer.decode({&id, 1});
    hash.update(fmt::format(" {}:{}", token.size(), token));
  }
  return hash.hex();
}

}  // namespace

std::string hash_model_folder(const std::string& folder, const std::string& precision,
                              const Tokenizer* other) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool weights =
        (name.starts_with("model") || name == "average.safetensors") && name.ends_with(".safetensors");
    if (weights || name == "config.json" || (name == "tokenizer.json" && !other)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string all = precision;
  if (other) all += " tokenizer " + hash_tokenizer(*other);
  for (const std::string& name : names) all += " " + name + " " + sha256_file(folder + "/" + name);
  return sha256_hex(all);
}

}  // namespace ddl
