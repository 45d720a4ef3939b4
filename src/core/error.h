// Three tiers of failure:
//   DDL_CHECK(cond, "...", values)   our bug; always on; aborts with the values
//   DDL_DCHECK(cond, "...", values)  the same, in debug and sanitizer builds only (hot loops)
//   throw UserError("...")           their input: says what, what was expected, what was found, what to do;
//                                    caught once in main(), which prints it and exits with 2
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ddl {

class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message) : std::runtime_error(message) {}
  template <class... Args>
  explicit UserError(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace ddl

#define DDL_CHECK(condition, ...)                                                      \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::ddl::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#if defined(DDL_DEBUG_CHECKS)
#define DDL_DCHECK(...) DDL_CHECK(__VA_ARGS__)
#else
#define DDL_DCHECK(...) \
  do {                  \
  } while (false)
#endif
