// The unit in which processors share memory: two threads that write to one line slow each other down.
#pragma once

#include "core/index.h"

namespace ddl {

inline constexpr Index kCacheLineBytes = 64;  // also the widest vector
inline constexpr Index kCacheLineFloats = kCacheLineBytes / static_cast<Index>(sizeof(float));

}  // namespace ddl
