#include "core/json.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace ddl {
namespace {

using Field = std::pair<std::string, Json>;

// Of fields of one name the last counts, in the place of the first.
Json::object_t to_object(std::vector<Field>& fields) {
  std::vector<std::size_t> by_name(fields.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::stable_sort(by_name.begin(), by_name.end(),
                   [&](std::size_t a, std::size_t b) { return fields[a].first < fields[b].first; });
  std::vector<bool> repeated(fields.size());
  for (std::size_t i = 1, first = 0; i < by_name.size(); ++i) {
    if (fields[by_name[i]].first != fields[by_name[first]].first) {
      first = i;
    } else {
      fields[by_name[first]].second = std::move(fields[by_name[i]].second);
      repeated[by_name[i]] = true;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (!repeated[i] && kept++ != i) fields[kept - 1] = std::move(fields[i]);
  fields.resize(kept);
  return Json::object_t(std::move_iterator(fields.begin()), std::move_iterator(fields.end()));
}

// Builds a value from the parser's events. The library's own builder searches all fields of an object for
// each new one (a file of a few MB takes minutes) and nests without limit.
class Builder {
 public:
  Json& root() { return root_; }
  const std::string& error() const { return error_; }

  // The events; false stops the parser.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() {
    Json object = to_object(open_.back().fields);
    open_.pop_back();
    return add(std::move(object));
  }
  bool end_array() {
    Json array = std::move(open_.back().items);
    open_.pop_back();
    return add(std::move(array));
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& exception) {
    error_ = exception.what();
    if (const std::size_t end = error_.find("] "); end != error_.npos) error_.erase(0, end + 2);
    return false;
  }

 private:
  struct Open {  // an object or array whose end has not come
    bool is_object;
    std::string name;           // of the field that comes next
    std::vector<Field> fields;  // of an object
    Json::array_t items;        // of an array
  };

  bool open(bool is_object) {
    if (open_.size() == kMaxJsonDepth) {
      error_ = "nested too deeply";
      return false;
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool add(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (Open& inner = open_.back(); inner.is_object)
      inner.fields.emplace_back(std::move(inner.name), std::move(value));
    else
      inner.items.push_back(std::move(value));
    return true;
  }

  std::vector<Open> open_;
  Json root_;
  std::string error_;
};

}  // namespace

Json parse_json(std::string_view text, std::string* error) {
  Builder builder;
  if (Json::sax_parse(text, &builder)) return std::move(builder.root());
  if (error) *error = builder.error();
  return Json(Json::value_t::discarded);
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddl
