#include "data/stored_tokenizers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "io/file.h"

namespace ddl {
namespace {

namespace stored_fs = std::filesystem;

// "" where the system names no home.
std::string stored_root() {
  const auto from = [](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    return value && *value ? std::string(value) + below : std::string();
  };
  const std::string data = from("XDG_DATA_HOME", "/ddl/tokenizers");
  return data.empty() ? from("HOME", "/.local/share/ddl/tokenizers") : data;
}

bool can_be_a_name(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && name != "bytes" && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), good);
}

}  // namespace

std::string stored_tokenizer_folder(const std::string& name) {
  const std::string root = stored_root();
  if (root.empty() || !can_be_a_name(name)) return "";
  std::error_code error;
  const std::string folder = root + "/" + name;
  return stored_fs::is_regular_file(folder + "/tokenizer.json", error) ? folder : "";
}

std::vector<std::string> stored_tokenizer_names() {
  std::vector<std::string> names;
  const std::string root = stored_root();
  std::error_code error;
  if (root.empty() || !stored_fs::is_directory(root, error)) return names;
  for (const auto& entry : stored_fs::directory_iterator(root, error))
    if (const std::string name = entry.path().filename().string(); !stored_tokenizer_folder(name).empty())
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string store_tokenizer(const std::string& name, const std::vector<std::string>& files) {
  if (!can_be_a_name(name))
    throw UserError("'{}': expected a name of letters, digits, -, _ and . that is not \"bytes\"",
                    name.substr(0, 80));
  const std::string root = stored_root();
  if (root.empty())
    throw UserError("there is no place to keep tokenizers: neither XDG_DATA_HOME nor HOME is set");
  std::unique_ptr<Tokenizer> tokenizer;
  if (files.size() == 1) {
    tokenizer = load_tokenizer(files[0]);
  } else if (files.size() == 2) {
    const bool json_first = files[0].ends_with(".json");
    const std::string &vocab = files[json_first ? 0 : 1], &merges = files[json_first ? 1 : 0];
    tokenizer = std::make_unique<BpeTokenizer>(parse_vocab_and_merges(
        read_file(vocab, kTokenizerFileBytes), vocab, read_file(merges, kTokenizerFileBytes), merges));
  } else {
    throw UserError("{} files: expected a tokenizer (one path), or a vocabulary and its merges (two)",
                    files.size());
  }
  const std::string folder = root + "/" + name;
  tokenizer->save(folder);
  return folder;
}

}  // namespace ddl
