#include "io/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/file.h"
#include "io/sha256.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp-", kRemoved = ".old-";

// The step a finished checkpoint's name says; none for any other name.
std::optional<Index> step_of(const std::string& name) {
  const std::string digits = name.starts_with(kPrefix) ? name.substr(5) : "";
  if (digits.size() < 8 || digits.size() > 18 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return static_cast<Index>(std::stoll(digits));
}

std::vector<std::string> folders_in(const std::string& parent) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (const auto& entry : fs::directory_iterator(parent, error))
    if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  return names;  // a folder that is not there holds none
}

}  // namespace

struct CheckpointWriter::File {
  std::string name;
  FileWriter writer;
  Sha256 hash;
  void write(const void* data, std::size_t bytes) {
    hash.update(data, bytes);
    writer.write(data, bytes);
  }
};

std::string checkpoint_name(Index step) { return fmt::format("{}{:08}", kPrefix, step); }

CheckpointWriter::CheckpointWriter(std::string parent, Index step)
    : parent_(std::move(parent)),
      folder_(fmt::format("{}/{}{}{}", parent_, checkpoint_name(step), kUnfinished, ::getpid())),
      step_(step) {
  remove_all(folder_);
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) throw UserError("{}: the folder cannot be created ({})", folder_, error.message());
}

CheckpointWriter::~CheckpointWriter() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void CheckpointWriter::finish(File& file) {
  file.writer.sync();
  files_[file.name] = Json{{"bytes", file.writer.bytes_written()}, {"sha256", file.hash.hex()}};
}

void CheckpointWriter::add_text(const std::string& name, std::string_view contents) {
  File file{name, FileWriter(folder_ + "/" + name), {}};
  file.write(contents.data(), contents.size());
  finish(file);
}

void CheckpointWriter::add_tensors(const std::string& name, std::span<const TensorToWrite> tensors) {
  File file{name, FileWriter(folder_ + "/" + name), {}};
  write_safetensors([&](const void* data, std::size_t bytes) { file.write(data, bytes); }, tensors,
                    {{"format", "pt"}});
  finish(file);
}

std::string CheckpointWriter::commit() {
  Json manifest = Json{{"format", "ddl-checkpoint"}, {"version", 1}, {"step", step_}, {"files", files_}};
  {
    FileWriter file(fmt::format("{}/{}", folder_, kManifest));
    file.write(to_text(manifest));
    file.sync();
  }
  sync_folder(folder_);
  const std::string target = parent_ + "/" + checkpoint_name(step_);
  if (fs::exists(target)) {
    exchange_paths(folder_, target);
    committed_ = true;
    remove_all(folder_);  // now the one that was replaced
  } else {
    rename_path(folder_, target);
    committed_ = true;
  }
  return target;
}

std::vector<CheckpointEntry> list_checkpoint_folders(const std::string& parent) {
  std::vector<CheckpointEntry> found;
  for (const std::string& name : folders_in(parent))
    if (const auto step = step_of(name)) found.push_back({*step, parent + "/" + name});
  std::sort(found.begin(), found.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return found;
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& parent) {
  auto found = list_checkpoint_folders(parent);
  std::erase_if(found, [](const auto& entry) { return !fs::exists(entry.folder + "/" + kManifest); });
  return found;
}

void verify_checkpoint(const std::string& folder, FileChoice hashed) {
  const std::string path = fmt::format("{}/{}", folder, kManifest);
  if (!fs::exists(path))
    throw UserError("{}: no {}, so this is not a complete checkpoint", folder, kManifest);
  const Json json = parse_json(read_file(path));
  const JsonFields manifest(json, path);
  if (manifest.at("format") != "ddl-checkpoint" || manifest.at("version") != 1)
    throw UserError("{}: not a checkpoint of this program, or of a newer version", path);
  const JsonFields files = manifest.object("files");
  for (const auto& [name, ignored] : manifest.at("files").items()) {
    if (fs::path(name).filename() != name) throw UserError("{}: '{}' is not a plain file name", path, name);
    const JsonFields entry = files.object(name);
    const std::string file = folder + "/" + name;
    std::error_code error;
    const auto found_bytes = fs::file_size(file, error);
    if (error) throw UserError("{}: missing, though the manifest lists it", file);
    if (found_bytes != static_cast<std::uintmax_t>(entry.whole("bytes")))
      throw UserError("{}: {} bytes, the manifest says {}", file, found_bytes, entry.whole("bytes"));
    if (!hashed(name)) continue;
    if (const std::string hash = sha256_file(file); hash != entry.text("sha256"))
      throw UserError("{}: changed since it was written: SHA-256 {}, the manifest says {}", file, hash,
                      entry.text("sha256"));
  }
}

std::optional<CheckpointEntry> latest_valid_checkpoint(const std::string& parent,
                                                       std::vector<std::string>* rejected,
                                                       FileChoice hashed) {
  const auto entries = list_checkpoint_folders(parent);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      verify_checkpoint(entry->folder, hashed);
      return *entry;
    } catch (const UserError& error) {
      if (rejected) rejected->push_back(error.what());
    }
  }
  return std::nullopt;
}

void remove_checkpoint(const std::string& folder) {
  const std::string aside = fmt::format("{}{}{}", folder, kRemoved, ::getpid());
  rename_path(folder, aside);
  remove_all(aside);
}

void remove_unfinished_checkpoints(const std::string& parent) {
  for (const std::string& name : folders_in(parent))
    if (name.starts_with(kPrefix) &&
        (name.find(kUnfinished) != std::string::npos || name.find(kRemoved) != std::string::npos))
      remove_all(parent + "/" + name);
}

}  // namespace ddl
