// What the machine has.
#pragma once

#include <cstddef>
#include <string>

namespace ddl {

std::string machine_name();          // its host name
std::size_t machine_memory_bytes();  // physical memory; the largest number where the system does not say

}  // namespace ddl
