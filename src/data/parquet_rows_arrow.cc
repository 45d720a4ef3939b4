#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "data/parquet_rows.h"

namespace ddl {
namespace {

constexpr std::int64_t kBatch = 256;

// The place of a leaf column in a row: {"choices", "text"} for choices.text.list.element.
struct Leaf {
  std::vector<std::string> path;
  std::int16_t list_level = 0;  // definition level from which on the list has an element; 0: no list
};

Leaf describe(const parquet::ColumnDescriptor& column) {
  std::vector<const parquet::schema::Node*> nodes;  // from the root's child down to the leaf
  for (const auto* node = column.schema_node().get(); node->parent() != nullptr; node = node->parent())
    nodes.insert(nodes.begin(), node);
  Leaf leaf;
  std::int16_t level = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i]->is_required()) ++level;
    if (nodes[i]->is_repeated()) {
      leaf.list_level = level;
      // The list's own two names, list.element, say nothing; a bare repeated leaf has only its own.
      const bool bare = i + 1 == nodes.size();
      if (bare) leaf.path.push_back(nodes[i]->name());
      if (!bare && i + 1 < nodes.size() && !nodes[++i]->is_required()) ++level;
      continue;
    }
    leaf.path.push_back(nodes[i]->name());
  }
  return leaf;
}

Json to_value(const parquet::ByteArray& v) {
  return std::string(reinterpret_cast<const char*>(v.ptr), v.len);
}
template <class T>
Json to_value(T v) {
  return v;
}

// One Json per row of the group: null, a value, or a list.
template <class Type>
void read_column(parquet::ColumnReader& any, const Leaf& leaf, std::vector<Json>& rows) {
  auto& reader = static_cast<parquet::TypedColumnReader<Type>&>(any);
  const std::int16_t present = any.descr()->max_definition_level();
  std::array<std::int16_t, kBatch> definition{}, repetition{};
  std::array<typename Type::c_type, kBatch> values{};
  while (reader.HasNext()) {
    std::int64_t value_count = 0, at = 0;
    const std::int64_t levels =
        reader.ReadBatch(kBatch, definition.data(), repetition.data(), values.data(), &value_count);
    for (std::int64_t i = 0; i < levels; ++i) {
      const bool is_there = present == 0 || definition[i] == present;
      if (is_there && at == value_count)
        throw parquet::ParquetException("its levels promise more values than there are");
      Json value = is_there ? to_value(values[at++]) : Json();
      if (leaf.list_level == 0) {
        rows.push_back(std::move(value));
        continue;
      }
      if (repetition[i] == 0) rows.push_back(Json::array());
      if (rows.empty()) throw parquet::ParquetException("a list continues that never began");
      if (definition[i] >= leaf.list_level) rows.back().push_back(std::move(value));
    }
  }
}

// False where the column's type is none of ours.
bool read_any_column(parquet::ColumnReader& reader, const Leaf& leaf, std::vector<Json>& rows) {
  switch (reader.type()) {
    case parquet::Type::BYTE_ARRAY:
      read_column<parquet::ByteArrayType>(reader, leaf, rows);
      return true;
    case parquet::Type::INT32:
      read_column<parquet::Int32Type>(reader, leaf, rows);
      return true;
    case parquet::Type::INT64:
      read_column<parquet::Int64Type>(reader, leaf, rows);
      return true;
    case parquet::Type::BOOLEAN:
      read_column<parquet::BooleanType>(reader, leaf, rows);
      return true;
    case parquet::Type::FLOAT:
      read_column<parquet::FloatType>(reader, leaf, rows);
      return true;
    case parquet::Type::DOUBLE:
      read_column<parquet::DoubleType>(reader, leaf, rows);
      return true;
    default:
      return false;
  }
}

void read_group(parquet::RowGroupReader& group, const parquet::SchemaDescriptor& schema,
                std::vector<Json>& rows) {
  for (int c = 0; c < schema.num_columns(); ++c) {
    if (schema.Column(c)->max_repetition_level() > 1) continue;  // lists of lists
    const Leaf leaf = describe(*schema.Column(c));
    std::vector<Json> column;
    if (!read_any_column(*group.Column(c), leaf, column)) continue;
    if (column.size() != rows.size())
      throw UserError("a column of {} rows in a group of {}", column.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Json* place = &rows[i];
      for (const std::string& name : leaf.path) place = &(*place)[name];
      *place = std::move(column[i]);
    }
  }
}

}  // namespace

void read_parquet_rows(const std::string& path, FunctionRef<void(Json&)> on_row) {
  try {
    parquet::ReaderProperties properties;
    properties.set_page_checksum_verification(true);
    const auto file = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
    for (int g = 0; g < file->metadata()->num_row_groups(); ++g) {
      const auto group = file->RowGroup(g);
      std::vector<Json> rows(static_cast<std::size_t>(group->metadata()->num_rows()), Json::object());
      read_group(*group, *file->metadata()->schema(), rows);
      for (Json& row : rows) on_row(row);
    }
  } catch (const parquet::ParquetException& error) {
    throw UserError("{}: not a readable Parquet file: {}", path, error.what());
  } catch (const std::bad_alloc&) {
    throw UserError("{}: not a readable Parquet file: a size in it asks for more memory than there is", path);
  } catch (const std::length_error&) {
    throw UserError("{}: not a readable Parquet file: a size in it is impossible", path);
  } catch (const Json::exception&) {
    throw UserError("{}: not a table of rows: of two columns one is inside the other", path);
  }
}

}  // namespace ddl
