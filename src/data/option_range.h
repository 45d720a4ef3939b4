// A number of the user's, held to its range.
#pragma once

#include "core/error.h"

namespace ddl {

template <class T>
void check_between(const char* name, T value, T low, T high) {
  if (!(value >= low && value <= high)) throw UserError("{} {}: expected {} to {}", name, value, low, high);
}

}  // namespace ddl
