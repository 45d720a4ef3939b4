// Reading memory and doing nothing else: what every kernel that is bound by reading is measured against.
#pragma once

#include <cstdint>

#include "core/exec.h"

namespace ddl {

// The exclusive or of n words. Every thread reads several streams at once, which is the fastest way.
std::uint32_t read_words(const std::uint32_t* x_n, Index n, const Exec& ex);

}  // namespace ddl
