#include "data/dataset.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json_fields.h"
#include "data/partial_folder.h"
#include "io/byte_stream.h"
#include "io/file.h"
#include "io/sha256.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr TokenId kGpt2EndOfText = 50256;

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename());
  if (error) throw UserError("{}: the folder cannot be read ({})", folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::string plain_name(const JsonFields& fields, const char* name) {
  std::string text = fields.text(name);
  if (text.empty() || fs::path(text).filename() != text || text.find('\0') != text.npos)
    fields.refuse(name, "the name of a file in the folder");
  return text;
}

// Files a manifest lists, with their entries.
struct ListedFile {
  std::string name, sha256;
};
std::vector<ListedFile> listed_files(const Json& json, const std::string& path) {
  const JsonFields manifest(json, path);
  std::vector<ListedFile> files;
  for (const char* split : {"train", "val"})
    for (const JsonFields& shard : manifest.object(split).objects("shards")) {
      files.push_back({plain_name(shard, "file"), shard.text("sha256")});
      if (!shard.has("answers")) continue;
      const JsonFields answers = shard.object("answers");
      files.push_back({plain_name(answers, "file"), answers.text("sha256")});
    }
  return files;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name);
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenShard> shards) : shards_(std::move(shards)) {
  for (const TokenShard& shard : shards_) {
    starts_.push_back(starts_.back() + shard.tokens());
    has_answers_ = has_answers_ || shard.has_answers();
  }
}

template <class F>
void TokenStream::for_each_piece(Index begin, Index count, F&& piece) const {
  DDL_CHECK(begin >= 0 && count >= 0 && begin + count <= tokens(), "{} + {} of {}", begin, count, tokens());
  auto shard = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
  for (Index done = 0; done < count; ++shard) {
    const Index at = begin + done, here = std::min(count - done, starts_[shard + 1] - at);
    if (here > 0) piece(shards_[shard], at - starts_[shard], here, done);
    done += here;
  }
}

void TokenStream::read(Index begin, Index count, TokenId* out) const {
  for_each_piece(begin, count, [&](const TokenShard& shard, Index at, Index here, Index done) {
    shard.read(at, here, out + done);
  });
}

void TokenStream::read_answers(Index begin, Index count, std::uint8_t* out) const {
  for_each_piece(begin, count, [&](const TokenShard& shard, Index at, Index here, Index done) {
    shard.read_answers(at, here, out + done);
  });
}

Dataset Dataset::open(const std::string& folder, const Exec& ex) {
  if (fs::is_regular_file(folder)) {
    const std::string name = fs::path(without_compression_suffix(folder)).stem().string();
    throw UserError(
        "{0}: a file, expected the folder of a dataset. Make one of it:\n"
        "  ./ddl tokenizer train {0} --vocab 4096 --out tokenizer\n"
        "  ./ddl data prepare {0} --tokenizer tokenizer --out data/{1}\n"
        "then give --data data/{1}",
        folder, name);
  }
  if (!fs::is_directory(folder))
    throw UserError("{}: no such folder; make a dataset with `./ddl data prepare INPUT... --out {}`", folder,
                    folder);
  Dataset dataset;
  dataset.folder_ = folder;
  const auto names = names_in(folder);
  // The marker is in the parent of the folder that is being written.
  if (has(names, kIncompleteMarker) || fs::exists(folder + "/../" + kIncompleteMarker))
    throw UserError("{}: left by an interrupted `ddl data prepare`; run that command again", folder);
  if (has(names, "tokenizer.json")) dataset.tokenizer_path_ = folder + "/tokenizer.json";
  if (has(names, "dataset.json"))
    dataset.open_prepared(read_file(folder + "/dataset.json"));
  else
    dataset.open_shards();
  if (dataset.train_.tokens() == 0) throw UserError("{}: the training split has no tokens", folder);
  dataset.read_all(ex);
  if (dataset.vocab_size_ > 0) dataset.check_vocab(dataset.vocab_size_, ex);
  return dataset;
}

void Dataset::open_prepared(const std::string& text) {
  const std::string path = folder_ + "/dataset.json";
  form_ = "ddl";
  std::string error;
  manifest_ = parse_json(text, &error);
  if (!manifest_.is_object())
    throw UserError("{}: damaged: not a JSON object{}", path, error.empty() ? "" : ": " + error);
  const JsonFields manifest(manifest_, path);
  if (manifest.at("format") != "ddl-dataset" || manifest.at("version") != 1)
    throw UserError("{}: not a dataset of this program, or of a newer version", path);
  vocab_size_ = manifest.whole("vocab_size", 1, std::numeric_limits<std::int32_t>::max());
  end_of_text_ = static_cast<TokenId>(manifest.whole("end_of_text", 0, vocab_size_ - 1));
  const auto open_split = [&](const char* split) {
    std::vector<TokenShard> shards;
    for (const JsonFields& entry : manifest.object(split).objects("shards")) {
      const std::string name = plain_name(entry, "file");
      shards.emplace_back(folder_ + "/" + name);
      const Index tokens = entry.whole("tokens");
      if (shards.back().tokens() != tokens)
        throw UserError("{}: {} tokens, but dataset.json says {}", shards.back().path(),
                        shards.back().tokens(), tokens);
      if (shards.back().has_answers() != entry.has("answers"))
        throw UserError("{}: dataset.json and the folder disagree on whether it exists",
                        answers_path(shards.back().path()));
    }
    return TokenStream(std::move(shards));
  };
  train_ = open_split("train");
  val_ = open_split("val");
}

std::vector<TokenShard> ShardFiles::open(const std::vector<std::string>& paths) const {
  std::vector<TokenShard> shards;
  for (const std::string& path : paths)
    shards.emplace_back(path, bare ? BareFiles::kAccept : BareFiles::kRefuse);
  return shards;
}

ShardFiles find_shard_files(const std::string& folder) {
  ShardFiles files;
  const auto names = names_in(folder);
  for (const std::string& name : names) {
    if (!name.ends_with(".bin")) continue;
    if (name.find("_train_") != std::string::npos) files.train.push_back(folder + "/" + name);
    if (name.find("_val_") != std::string::npos) files.val.push_back(folder + "/" + name);
  }
  if (!files.train.empty() || !files.val.empty()) return files;
  files.bare = true;
  if (has(names, "train.bin")) files.train.push_back(folder + "/train.bin");
  if (has(names, "val.bin")) files.val.push_back(folder + "/val.bin");
  return files;
}

void Dataset::open_shards() {
  const ShardFiles files = find_shard_files(folder_);
  form_ = files.bare ? "nanogpt" : "llm.c";
  if (files.train.empty())
    throw UserError(
        "{}: no dataset here: expected dataset.json (from `ddl data prepare`), *_train_*.bin shards, or "
        "train.bin",
        folder_);
  train_ = TokenStream(files.open(files.train));
  val_ = TokenStream(files.open(files.val));
  // Shards of these forms in circulation are GPT-2's; one that begins with its end of text certainly is.
  TokenId first = 0;
  if (train_.tokens() > 0) train_.read(0, 1, &first);
  if (first == kGpt2EndOfText) end_of_text_ = kGpt2EndOfText;
}

void Dataset::read_all(const Exec& ex) {
  Sha256 hash;
  for (TokenStream* stream : {&train_, &val_})
    for (TokenShard& shard : stream->shards()) {
      const TokenShard::Contents contents = shard.read_all(ex);
      shard.expect_at_most(contents.largest);
      largest_.push_back(contents.largest);
      hash.update(fmt::format("|{}|{}|{}|{}|", stream == &train_ ? "train" : "val", shard.tokens(),
                              shard.token_bytes(), shard.has_answers()));
      hash.update(contents.checksums.data(), contents.checksums.size() * sizeof contents.checksums[0]);
    }
  fingerprint_ = hash.hex();
}

void Dataset::check_vocab(Index vocab_size, const Exec& ex) const {
  auto largest = largest_.begin();
  for (const TokenStream* stream : {&train_, &val_})
    for (const TokenShard& shard : stream->shards()) {
      if (static_cast<Index>(*largest++) < vocab_size) continue;
      if (const auto bad = shard.find_out_of_range(vocab_size, ex))
        throw UserError("{}: token {} at position {} is outside the vocabulary of {}", shard.path(),
                        bad->token, bad->position, vocab_size);
    }
}

void Dataset::verify_hashes(const Exec& ex) const {
  if (manifest_.is_null())
    throw UserError("{}: no dataset.json, so there are no hashes to compare with", folder_);
  const std::vector<ListedFile> files = listed_files(manifest_, folder_ + "/dataset.json");
  parallel_for(std::ssize(files), ex, [&](Index i) {
    const auto& [name, expected] = files[i];
    const std::string found = sha256_file(folder_ + "/" + name);
    if (found != expected)
      throw UserError("{}/{}: changed since it was prepared: SHA-256 {}, expected {}", folder_, name, found,
                      expected);
  });
}

std::string first_foreign_entry(const std::string& folder) {
  const std::string path = folder + "/dataset.json";
  std::vector<std::string> own = {"dataset.json", "tokenizer.json", "tokenizer_config.json"};
  for (ListedFile& file : listed_files(parse_json(read_file(path)), path))
    own.push_back(std::move(file.name));
  std::sort(own.begin(), own.end());
  for (const std::string& name : names_in(folder))
    if (!has(own, name.c_str())) return folder + "/" + name;
  return "";
}

}  // namespace ddl
