// The members of a JSON object that was read from a file, each as the type it must have. Whatever is missing or
// of another type is a UserError that names the file, the member, what was expected and what was found.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/index.h"
#include "core/json.h"

namespace ddl {

class JsonFields {
 public:
  // Refers to `json`, which must be an object. `within`: what stands before a member's name, "progress." or "".
  JsonFields(const Json& json, std::string file, std::string within = "");

  bool has(const std::string& name) const { return json_->contains(name); }
  const Json& at(const std::string& name) const;
  Index whole(const std::string& name, Index low = 0, Index high = std::numeric_limits<Index>::max()) const;
  double number(const std::string& name) const;
  std::string text(const std::string& name) const;
  JsonFields object(const std::string& name) const;
  std::vector<JsonFields> objects(const std::string& name) const;  // of an array

  // For a member that is there and still wrong.
  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const;

 private:
  const Json* json_;
  std::string file_, within_;
};

}  // namespace ddl
