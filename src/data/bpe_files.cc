// Finds out what a path holds and loads it.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/record.h"
#include "data/bpe_parse.h"
#include "data/stored_tokenizers.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

std::string read_small_file(const fs::path& path) { return read_file(path.string(), kTokenizerFileBytes); }

// The end-of-text token named by tokenizer_config.json in the same folder, if any. That file is optional
// and has other uses, so anything odd in it is no error.
std::string configured_end_of_text(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / "tokenizer_config.json", error)) return "";
  const auto config = parse_json(read_small_file(folder / "tokenizer_config.json"));
  if (!config.is_object() || !config.contains("eos_token")) return "";
  const auto& token = config["eos_token"];
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return "";
}

BpeVocabulary load_tokenizer_json(const fs::path& path) {
  return parse_tokenizer_json(read_small_file(path), path.string(),
                              configured_end_of_text(path.parent_path()));
}

BpeVocabulary load_pair(const fs::path& vocab, const fs::path& merges) {
  return parse_vocab_and_merges(read_small_file(vocab), vocab.string(), read_small_file(merges),
                                merges.string());
}

// A rank file does not say how text is cut into words. Files that cut otherwise than GPT-2 are known by name.
BpeVocabulary load_tiktoken(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* other : {"cl100k", "o200k"})
    if (name.find(other) != name.npos)
      throw UserError(
          "{}: expected a vocabulary with GPT-2's pre-tokenisation (r50k_base, p50k_base), found {}",
          path.string(), other);
  return parse_tiktoken(read_small_file(path), path.string());
}

constexpr std::pair<const char*, const char*> kPairs[] = {{"vocab.json", "merges.txt"},
                                                          {"encoder.json", "vocab.bpe"}};

BpeVocabulary load_folder(const fs::path& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::is_regular_file(folder / name, error); };
  if (has("tokenizer.json")) return load_tokenizer_json(folder / "tokenizer.json");
  for (const auto& [vocab, merges] : kPairs)
    if (has(vocab) && has(merges)) return load_pair(folder / vocab, folder / merges);
  std::vector<std::string> ranks;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".tiktoken") ranks.push_back(entry.path().string());
  if (error) throw UserError("{}: cannot be read ({})", folder.string(), error.message());
  if (ranks.size() == 1) return load_tiktoken(ranks[0]);
  std::sort(ranks.begin(), ranks.end());
  throw UserError(
      "{}: expected tokenizer.json, vocab.json + merges.txt, encoder.json + vocab.bpe or one .tiktoken file "
      "in this "
      "folder, found {}",
      folder.string(), ranks.empty() ? "none of them" : fmt::format("{}", fmt::join(ranks, " and ")));
}

// One of a pair was given: "gpt2-vocab.json" wants "gpt2-merges.txt".
BpeVocabulary load_half_of_pair(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto neighbour = [&](std::string_view ending, std::string_view other) {
    return path.parent_path() / (name.substr(0, name.size() - ending.size()) + std::string(other));
  };
  for (const auto& [vocab, merges] : kPairs) {
    if (name.ends_with(vocab)) return load_pair(path, neighbour(vocab, merges));
    if (name.ends_with(merges)) return load_pair(neighbour(merges, vocab), path);
  }
  throw UserError(
      "{}: expected a tokenizer: tokenizer.json, vocab.json + merges.txt, encoder.json + vocab.bpe, "
      "*.tiktoken, a "
      "folder with one of these, or the word \"bytes\"; found a file of another name",
      path.string());
}

BpeVocabulary load_any(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return load_folder(path);
  if (!fs::exists(path, error))
    throw UserError(
        "{}: expected a tokenizer (a file or folder, or the word \"bytes\"), found nothing there{}",
        path.string(),
        path.has_parent_path()
            ? ""
            : fmt::format(", nor one that was added by that name; there are: {} (./ddl tokenizer add)",
                          stored_tokenizer_names().empty()
                              ? "none"
                              : fmt::format("{}", fmt::join(stored_tokenizer_names(), ", "))));
  const std::string name = path.filename().string();
  if (path.extension() == ".tiktoken") return load_tiktoken(path);
  for (const auto& [vocab, merges] : kPairs)
    if (name.ends_with(vocab) || name.ends_with(merges)) return load_half_of_pair(path);
  if (path.extension() == ".json") return load_tokenizer_json(path);
  return load_half_of_pair(path);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (path == "bytes") return std::make_unique<BpeTokenizer>(byte_vocabulary());
  std::error_code error;
  if (!fs::exists(path, error))
    if (const std::string stored = stored_tokenizer_folder(path); !stored.empty())
      return std::make_unique<BpeTokenizer>(load_any(stored));
  return std::make_unique<BpeTokenizer>(load_any(path));
}

}  // namespace ddl
