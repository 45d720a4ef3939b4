// What the machine has.
#pragma once

#include <cstddef>

namespace ddl {

std::size_t machine_memory_bytes();  // physical memory; the largest number where the system does not say

}  // namespace ddl
