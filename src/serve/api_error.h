// What an endpoint throws where a request is wrong: the answer that says so.
#pragma once

#include <stdexcept>
#include <string>

#include "serve/access.h"

namespace ddl {

class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  HttpResponse response() const { return error_response(status_, what(), param_, code_); }

 private:
  int status_;
  std::string param_, code_;
};

}  // namespace ddl
