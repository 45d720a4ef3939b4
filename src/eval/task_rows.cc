#include "eval/task_rows.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/index.h"
#include "data/parquet_rows.h"
#include "data/text_cut.h"
#include "eval/python_text.h"
#include "io/byte_stream.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
const std::vector<std::string> kJsonEndings = {".jsonl",     ".json",    ".jsonl.gz",
                                               ".jsonl.zst", ".json.gz", ".json.zst"};

std::string read_all(const std::string& path) {
  ByteStream stream(path);
  std::string text;
  for (std::size_t have = 0;;) {
    text.resize(have + (std::size_t{1} << 20));
    const std::size_t got = stream.read(text.data() + have, text.size() - have);
    text.resize(have += got);
    if (got == 0) return text;
    if (have > kMaxFileBytes)
      throw UserError("{}: larger than {} MB, not a task's file", path, kMaxFileBytes >> 20);
  }
}

// `name`-00000-of-00003.parquet and the others, all of which must be there.
std::vector<std::string> parquet_shards(const fs::path& name) {
  std::error_code ignored;
  std::vector<std::string> found;
  const std::string prefix = name.filename().string() + "-";
  Index expected = 0;
  for (const auto& entry : fs::directory_iterator(name.parent_path(), ignored)) {
    const std::string file = entry.path().filename().string();
    constexpr std::string_view kPattern = "NNNNN-of-NNNNN.parquet";
    if (!file.starts_with(prefix) || file.size() != prefix.size() + kPattern.size() ||
        !file.ends_with(".parquet"))
      continue;
    const std::string tail = file.substr(prefix.size());
    const auto digits = [&](std::size_t at) {
      return tail.find_first_not_of("0123456789", at) >= at + 5 ? std::stol(tail.substr(at, 5)) : -1;
    };
    if (tail.substr(5, 4) != "-of-" || digits(0) < 0 || digits(9) < 0) continue;
    expected = digits(9);
    found.push_back(entry.path().string());
  }
  if (std::ssize(found) != expected)
    throw UserError("{}-*.parquet: {} files, expected {} by their names", name.string(), found.size(),
                    expected);
  std::sort(found.begin(), found.end());
  return found;
}

struct SplitFiles {
  std::string name;  // without ending: labels are in name-labels.lst
  std::vector<std::string> paths;
};

SplitFiles find_files(const Task& task, const std::string& folder, const std::string& split) {
  const fs::path task_folder = fs::path(folder) / task.name;
  std::vector<std::string> looked_for;
  for (const std::string& name : task.file_names(split)) {
    const std::string base = (task_folder / name).string();
    for (const std::string& ending : kJsonEndings)
      if (fs::is_regular_file(base + ending)) return {base, {base + ending}};
    if (fs::is_regular_file(base + ".parquet")) return {base, {base + ".parquet"}};
    if (auto shards = parquet_shards(base); !shards.empty()) return {base, std::move(shards)};
    looked_for.push_back(name + ".jsonl");
  }
  throw UserError(
      "{}: no data for its {} split in {}{}; looked for {} (also .json and .parquet). Where it comes "
      "from: docs/evaluation.md",
      task.name, split, task_folder.string(), fs::is_directory(task_folder) ? "" : ", which is no folder",
      fmt::join(looked_for, ", "));
}

std::vector<std::string> read_labels(const std::string& path) {
  std::vector<std::string> labels;
  const std::string text = read_all(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    labels.emplace_back(python_strip(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  while (!labels.empty() && labels.back().empty()) labels.pop_back();
  return labels;
}

// Turns rows into documents, one at a time.
class DocumentMaker {
 public:
  DocumentMaker(const Task& task, std::string labels_path)
      : task_(task), labels_path_(std::move(labels_path)) {}

  void add(Json& row, const std::string& path, Index number) {
    if (!row.is_object()) throw UserError("{}, expected an object", json_kind(row));
    if (!task_.label_column.empty() && !row.contains(task_.label_column)) fill_in_label(row);
    for (const TaskForm& form : task_.forms)
      if (form.fits(row)) {
        documents_.push_back(form.fill(row));
        documents_.back().place = fmt::format("{}: row {}", path, number);
        return;
      }
    std::vector<std::string> columns;
    for (const auto& [name, value] : row.items()) columns.push_back(name);
    throw UserError(
        "expected the columns {}{}; found {}: a file of another task?",
        fmt::join(task_.forms.front().columns(), ", "),
        task_.label_column.empty() ? "" : fmt::format(" ({} also from {})", task_.label_column, labels_path_),
        columns.empty() ? "none" : fmt::format("{}", fmt::join(columns, ", ")));
  }

  std::vector<TaskDocument> finish() {
    if (labels_ && labels_->size() != documents_.size())
      throw UserError("{}: {}: {} labels for {} rows", task_.name, labels_path_, labels_->size(),
                      documents_.size());
    return std::move(documents_);
  }

 private:
  void fill_in_label(Json& row) {
    if (!labels_) {
      if (!fs::is_regular_file(labels_path_)) return;  // the forms will miss the column
      labels_ = read_labels(labels_path_);
    }
    if (documents_.size() >= labels_->size())
      throw UserError("{} holds {} labels only", labels_path_, labels_->size());
    row[task_.label_column] = (*labels_)[documents_.size()];
  }

  const Task& task_;
  std::string labels_path_;
  std::optional<std::vector<std::string>> labels_;
  std::vector<TaskDocument> documents_;
};

}  // namespace

void parse_json_rows(std::string_view text, FunctionRef<void(Json&, Index)> on_row) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const auto give = [&](Json& row, Index number) {
    try {
      on_row(row, number);
    } catch (const UserError& refusal) {
      throw UserError("row {}: {}", number, refusal.what());
    }
  };
  std::string error;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    Json array = parse_json(text, &error);
    if (array.is_discarded()) throw UserError("not a valid JSON array: {}", error);
    Index number = 0;
    for (Json& row : array) give(row, ++number);
    return;
  }
  Index number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (is_blank(line)) continue;
    Json row = parse_json(line, &error);
    if (row.is_discarded()) throw UserError("row {}: not valid JSON: {}", number, error);
    give(row, number);
  }
}

std::vector<TaskDocument> read_split(const Task& task, const std::string& folder, const std::string& split) {
  const SplitFiles files = find_files(task, folder, split);
  DocumentMaker maker(task, files.name + "-labels.lst");
  for (const std::string& path : files.paths) {
    try {
      if (!path.ends_with(".parquet")) {
        parse_json_rows(read_all(path), [&](Json& row, Index number) { maker.add(row, path, number); });
        continue;
      }
      Index number = 0;
      read_parquet_rows(path, [&](Json& row) {
        ++number;
        try {
          maker.add(row, path, number);
        } catch (const UserError& error) {
          throw UserError("row {}: {}", number, error.what());
        }
      });
    } catch (const UserError& error) {
      const std::string what = error.what();
      // Readers of files name theirs already.
      throw UserError("{}: {}{}", task.name, what.starts_with(path) ? "" : path + ": ", what);
    }
  }
  std::vector<TaskDocument> documents = maker.finish();
  if (documents.empty()) throw UserError("{}: {}: no rows", task.name, files.paths.front());
  return documents;
}

}  // namespace ddl
