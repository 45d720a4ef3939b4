// Documents of CSV and TSV files: one per row, the field of a column that the first row names.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/csv_rows.h"
#include "data/document_source.h"
#include "io/byte_stream.h"

namespace ddl {
namespace {

class CsvSource final : public DocumentSource {
 public:
  CsvSource(const std::string& path, char delimiter, const CorpusOptions& options, BadRows& bad)
      : stream_(path),
        rows_([this](char* out, std::size_t bytes) { return stream_.read(out, bytes); }, delimiter),
        bad_(bad) {
    std::vector<std::string> header;
    try {
      rows_.next(header);
    } catch (const BadCsvRow& error) {
      throw UserError("{}:{}: the header cannot be read: {}", stream_.name(), rows_.line(), error.what());
    }
    columns_ = header.size();
    const auto found = std::ranges::find(header, options.field);
    if (found == header.end())
      throw UserError("{}: no column '{}' in the first row; it has {} (--field names another)",
                      stream_.name(), options.field, shown(header));
    column_ = static_cast<std::size_t>(found - header.begin());
    if (std::find(found + 1, header.end(), options.field) != header.end())
      throw UserError("{}: two columns are called '{}' in the first row, which has {}; rename one",
                      stream_.name(), options.field, shown(header));
  }

  bool next(Document& document) override {
    if (splitter_.next(document)) return true;
    for (;;) {
      try {
        if (!rows_.next(fields_)) return false;
        if (fields_.size() != columns_)
          throw BadCsvRow("expected {} fields, as in the first row, found {}", columns_, fields_.size());
      } catch (const BadCsvRow& error) {
        bad_.add(fmt::format("{}:{}: {}", stream_.name(), rows_.line(), error.what()));
        continue;
      }
      if (fields_[column_].empty()) {
        document.text.clear();
        document.piece = 0;
        return true;
      }
      splitter_.start(std::move(fields_[column_]));
      return splitter_.next(document);
    }
  }

  std::uint64_t bytes_read() const override {
    return handed_out(stream_.file_offset(), rows_.bytes_taken(),
                      rows_.bytes_waiting() + splitter_.bytes_left());
  }

 private:
  static std::string shown(const std::vector<std::string>& header) {
    if (header.empty()) return "nothing: the file is empty";
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(header.size(), 20); ++i)
      names += (i ? ", " : "") + header[i].substr(0, 40);
    return names + (header.size() > 20 ? ", ..." : "");
  }

  ByteStream stream_;
  CsvRows rows_;
  BadRows& bad_;
  std::vector<std::string> fields_;
  PieceSplitter splitter_;
  std::size_t columns_ = 0, column_ = 0;
};

}  // namespace

std::unique_ptr<DocumentSource> open_csv_source(const std::string& path, char delimiter,
                                                const CorpusOptions& options, BadRows& bad) {
  return std::make_unique<CsvSource>(path, delimiter, options, bad);
}

}  // namespace ddl
