// The fields of a request's JSON object, each as the type and within the range it must have; null means absent.
// Whatever is wrong is a 400 that names the field. At the end every field must have been asked for: none is accepted
// silently.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "core/index.h"
#include "core/json.h"

namespace ddl {

class RequestFields {
 public:
  static constexpr int kMaxDepth = 32;

  explicit RequestFields(const std::string& body);        // throws ApiError where it is no JSON object
  RequestFields(const Json& object, std::string within);  // an object inside another: "stream_options."

  // Null where the field is absent or null.
  const Json* find(const std::string& name);
  const Json& required(const std::string& name);

  Index whole(const std::string& name, Index otherwise, Index low, Index high);
  double number(const std::string& name, double otherwise, double low, double high);
  bool flag(const std::string& name, bool otherwise);
  std::string text(const std::string& name, const std::string& otherwise);

  // What a field holds, as token numbers; whether they are in a vocabulary is not looked at.
  std::vector<std::int32_t> tokens(const std::string& name, const Json& list,
                                   const std::string& expected) const;

  // Fields that change nothing here, and fields that would change the answer and are not supported.
  void ignore(std::initializer_list<const char*> names);
  void refuse(std::initializer_list<const char*> names);
  void finish();  // throws ApiError on a field that nobody asked for

  [[noreturn]] void fail(const std::string& name, const std::string& expected) const;

 private:
  Json json_;
  std::string within_;
  std::set<std::string> asked_;
};

}  // namespace ddl
