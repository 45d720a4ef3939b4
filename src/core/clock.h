#pragma once

#include <chrono>

namespace ddl {

// Seconds since some fixed moment; never goes back.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ddl
