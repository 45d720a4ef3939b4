// Parquet through Apache Arrow's column reader: one text column, a page at a time.
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "core/index.h"
#include "data/document_source.h"

namespace ddl {
namespace {

constexpr std::int64_t kBatchRows = 64;

class ParquetSource : public DocumentSource {
 public:
  ParquetSource(const std::string& path, const CorpusOptions& options, BadRows& bad)
      : path_(path), field_(options.field), bad_(bad) {
    std::error_code ignored;
    const auto bytes = std::filesystem::file_size(path, ignored);
    file_bytes_ = ignored ? 0 : static_cast<std::uint64_t>(bytes);
    guarded([&] {
      // Buffered: pages of the one column are read as they are needed, not whole row groups. Pages that have a checksum
      // are held to it.
      parquet::ReaderProperties properties;
      properties.enable_buffered_stream();
      properties.set_page_checksum_verification(true);
      file_ = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
      find_column();
    });
  }

  bool next(Document& document) override {
    if (splitter_.next(document)) return true;
    bool found = false;
    guarded([&] { found = next_row(document); });
    return found;
  }

  std::uint64_t bytes_read() const override {
    const int groups = file_->metadata()->num_row_groups();
    return groups == 0 ? file_bytes_ : file_bytes_ * static_cast<std::uint64_t>(groups_begun_) / groups;
  }

 private:
  template <class F>
  void guarded(F&& body) {
    const auto refuse = [&](const std::string& what) {
      throw UserError("{}: not a readable Parquet file ({}): {}", path_, place(), what);
    };
    try {
      body();
    } catch (const parquet::ParquetException& error) {
      refuse(error.what());
    } catch (const std::bad_alloc&) {
      refuse("a size in it asks for more memory than there is");
    } catch (const std::length_error&) {
      refuse("a size in it is impossible");
    }
  }

  std::string place() const {
    if (groups_begun_ == 0) return "its footer";
    return fmt::format("row group {} of {}, column '{}', row {}", groups_begun_,
                       file_->metadata()->num_row_groups(), field_, row_ + 1);
  }

  void find_column() {
    const auto* schema = file_->metadata()->schema();
    std::string names;
    for (int i = 0; i < schema->num_columns(); ++i) {
      const auto* column = schema->Column(i);
      const std::string name = column->path()->ToDotString();
      names += (names.empty() ? "" : ", ") + name;
      if (name != field_) continue;
      if (column->physical_type() != parquet::Type::BYTE_ARRAY || column->max_repetition_level() != 0)
        throw UserError("{}: column '{}' does not hold one string per row", path_, field_);
      column_ = i;
      optional_ = column->max_definition_level() > 0;
      present_level_ = column->max_definition_level();
    }
    if (column_ < 0)
      throw UserError("{}: no column '{}' (found: {}); say which one with --field", path_, field_, names);
  }

  bool next_row(Document& document) {
    for (;;) {
      if (at_ == levels_read_ && !read_batch()) return false;
      const std::int64_t i = at_++;
      ++row_;
      if (optional_ && levels_[i] != present_level_) {
        bad_.add(fmt::format("{}: row {}: column '{}' is null", path_, row_, field_));
        continue;
      }
      if (value_ == values_read_)
        throw parquet::ParquetException("its levels promise more values than there are");
      const parquet::ByteArray& value = values_[value_++];
      std::string text(reinterpret_cast<const char*>(value.ptr), value.len);
      if (text.empty()) {
        document.text.clear();
        document.piece = 0;
        return true;
      }
      splitter_.start(std::move(text));
      return splitter_.next(document);
    }
  }

  // The values point into the current page, which stays until the next call.
  bool read_batch() {
    for (;;) {
      if (reader_ && reader_->HasNext()) {
        values_read_ = 0;
        levels_read_ = reader_->ReadBatch(kBatchRows, optional_ ? levels_.data() : nullptr, nullptr,
                                          values_.data(), &values_read_);
        at_ = value_ = 0;
        if (levels_read_ > 0) return true;
      }
      if (groups_begun_ == file_->metadata()->num_row_groups()) return false;
      group_ = file_->RowGroup(groups_begun_++);
      reader_ = std::static_pointer_cast<parquet::ByteArrayReader>(group_->Column(column_));
    }
  }

  std::string path_, field_;
  BadRows& bad_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<parquet::ParquetFileReader> file_;
  std::shared_ptr<parquet::RowGroupReader> group_;
  std::shared_ptr<parquet::ByteArrayReader> reader_;
  int column_ = -1, groups_begun_ = 0;
  bool optional_ = false;
  std::int16_t present_level_ = 0;
  std::array<std::int16_t, kBatchRows> levels_{};
  std::array<parquet::ByteArray, kBatchRows> values_{};
  std::int64_t levels_read_ = 0, values_read_ = 0, at_ = 0, value_ = 0;
  Index row_ = 0;
  PieceSplitter splitter_;
};

}  // namespace

bool parquet_is_built_in() { return true; }

std::unique_ptr<DocumentSource> open_parquet_source(const std::string& path, const CorpusOptions& options,
                                                    BadRows& bad) {
  return std::make_unique<ParquetSource>(path, options, bad);
}

}  // namespace ddl
