// A fuzz target gives these two; the driver (or libFuzzer) does the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

std::vector<std::string> fuzz_seeds();  // well-formed inputs to mutate
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
