#include "core/toml.h"

#include <toml++/toml.h>

#include "core/error.h"

namespace ddl {
namespace {

Json to_json(const toml::node& node, const std::string& source_name) {
  if (const toml::table* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [name, value] : *table) object[std::string(name.str())] = to_json(value, source_name);
    return object;
  }
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& value : *array) list.push_back(to_json(value, source_name));
    return list;
  }
  if (node.is_string()) return node.as_string()->get();
  if (node.is_integer()) return node.as_integer()->get();
  if (node.is_floating_point()) return node.as_floating_point()->get();
  if (node.is_boolean()) return node.as_boolean()->get();
  throw UserError("{}:{}: dates and times are not used here", source_name, node.source().begin.line);
}

}  // namespace

Json parse_toml(std::string_view text, const std::string& source_name) {
  try {
    return to_json(toml::parse(text, source_name), source_name);
  } catch (const toml::parse_error& error) {
    throw UserError("{}:{}: not valid TOML: {}", source_name, error.source().begin.line, error.description());
  }
}

}  // namespace ddl
