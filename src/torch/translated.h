// Torch's errors as ours. Its messages have a stack trace after the first line.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

#include "core/error.h"

namespace ddl {

// `advice`: what helps where the GPU's memory is too small.
template <class Body>
auto translated(const char* advice, const Body& body) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError&) {
    throw UserError("the GPU's memory is too small: {}", advice);
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch: " + std::string(error.what_without_backtrace()));
  }
}

}  // namespace ddl
