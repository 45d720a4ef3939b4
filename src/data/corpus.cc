#include "data/corpus.h"

#include <algorithm>
#include <filesystem>

#include "data/document_source.h"
#include "data/text_cut.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

// "" where the name says nothing.
std::string format_of(const std::string& path) {
  const std::string name = without_compression_suffix(path);
  if (name.ends_with(".txt") || name.ends_with(".md")) return "text";
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return "jsonl";
  if (name.ends_with(".csv")) return "csv";
  if (name.ends_with(".tsv")) return "tsv";
  if (path.ends_with(".parquet")) return "parquet";
  return "";
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error, leads_nowhere;  // a link to nothing, or in a circle, is no file
  fs::recursive_directory_iterator it(folder, error), end;
  while (!error && it != end) {
    if (hidden(it->path())) {
      if (it->is_directory(leads_nowhere)) it.disable_recursion_pending();
    } else if (it->is_regular_file(leads_nowhere) && !format_of(it->path().string()).empty()) {
      found.push_back(it->path().string());
    }
    it.increment(error);
  }
  if (error) throw UserError("{}: the folder cannot be read ({})", folder, error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void BadRows::add(const std::string& message) {
  ++count_;
  if (count_ > allowed_) {
    if (allowed_ == 0) throw UserError("{} (--skip-bad N leaves out up to N such rows)", message);
    throw UserError("{}; that is bad row {}, more than --skip-bad {} allows", message, count_, allowed_);
  }
  if (first_.size() < kShown) first_.push_back(message);
}

std::vector<InputFile> find_inputs(const std::vector<std::string>& inputs, const CorpusOptions& options) {
  std::vector<InputFile> files;
  const auto add = [&](const std::string& path) {
    std::string format = options.format == "auto" ? format_of(path) : options.format;
    if (format.empty()) format = "text";
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    files.push_back({path, format, error ? 0 : static_cast<std::uint64_t>(bytes)});
  };
  for (const std::string& input : inputs) {
    if (input == ByteStream::kStdin) {
      files.push_back({input, options.format, 0});
    } else if (fs::is_directory(input)) {
      const auto found = files_in(input);
      if (found.empty())
        throw UserError(
            "{}: no .txt, .md, .jsonl, .csv, .tsv or .parquet file in this folder (.gz and .zst are fine "
            "too)",
            input);
      for (const std::string& path : found) add(path);
    } else if (fs::exists(input)) {
      add(input);
    } else {
      throw UserError("{}: no such file or folder", input);
    }
  }
  if (files.empty()) throw UserError("no input given: name files or folders, or - for standard input");
  return files;
}

CorpusReader::CorpusReader(const std::vector<std::string>& inputs, CorpusOptions options)
    : options_(std::move(options)), inputs_(find_inputs(inputs, options_)), bad_rows_(options_.skip_bad) {
  const bool known =
      std::all_of(inputs_.begin(), inputs_.end(), [](const InputFile& f) { return f.path != "-"; });
  for (const InputFile& file : inputs_) bytes_total_ += known ? file.bytes : 0;
}

CorpusReader::~CorpusReader() = default;

std::uint64_t CorpusReader::bytes_read() const {
  return bytes_before_ + (source_ ? source_->bytes_read() : 0);
}

bool CorpusReader::next(Document& document) {
  for (;;) {
    if (!source_) {
      if (next_input_ == inputs_.size()) return false;
      const InputFile& file = inputs_[next_input_++];
      if (file.format == "parquet")
        source_ = open_parquet_source(file.path, options_, bad_rows_);
      else if (file.format == "jsonl")
        source_ = open_jsonl_source(file.path, options_, bad_rows_);
      else if (file.format == "csv" || file.format == "tsv")
        source_ = open_csv_source(file.path, file.format == "csv" ? ',' : '\t', options_, bad_rows_);
      else if (file.format == "text")
        source_ = open_text_source(file.path, options_);
      else
        source_ = open_stdin_source(options_, bad_rows_);
    }
    document.answers.clear();
    if (!source_->next(document)) {
      bytes_before_ += source_->bytes_read();
      source_.reset();
      continue;
    }
    if (document.piece == 0) {
      // A document of this size has no second piece, so leaving it out leaves nothing behind.
      if (document.text.size() < kPieceBytes && is_blank(document.text)) {
        ++blank_;
        continue;
      }
      ++documents_;
    }
    document.index = documents_ - 1;
    return true;
  }
}

}  // namespace ddl
