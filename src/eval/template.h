// Text with columns of a row filled in: "Question: {{goal | strip}}\nAnswer:". A column is a path,
// `question.stem`. A path into a list of objects, `choices.text`, is the list of that member of each.
// `name?` may be missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/record.h"
#include "eval/text_filter.h"

namespace ddl {

class Template {
 public:
  explicit Template(std::string_view source);  // throws UserError: an unknown filter, a {{ without its }}

  // Strings as they are, whole numbers in decimal, True and False as Python writes them. Throws UserError
  // naming the column where it is missing, something else, or its filter fails.
  std::string fill(const Json& row) const;
  const std::vector<std::string>& columns() const { return columns_; }  // that a row must have

 private:
  friend class ListTemplate;
  struct Part {
    std::string text;       // what stands before the column
    std::string column;     // "" in the last part
    bool optional = false;  // {{name?}}: nothing where the row has no such column, or null there
    std::vector<TextFilter> filters;
  };
  std::vector<Part> parts_;
  std::vector<std::string> columns_;
};

// Several texts: one column that is a list, "{{choices.text}}", or a list of templates,
// ["{{sol1}}", "{{sol2}}"].
class ListTemplate {
 public:
  explicit ListTemplate(const Json& source);
  std::vector<std::string> fill(const Json& row) const;
  const std::vector<std::string>& columns() const { return columns_; }

 private:
  std::vector<Template> templates_;
  bool is_column_ = false;  // templates_ is one, whose column is the list
  std::vector<std::string> columns_;
};

bool has_column(const Json& row, std::string_view path);
const char* json_kind(const Json& value);  // "a string", "a list", ...

}  // namespace ddl
