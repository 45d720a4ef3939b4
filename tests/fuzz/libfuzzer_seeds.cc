// Gives libFuzzer the seeds of a target, as files in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "fuzz/driver.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::string option = "-seed_inputs=";
  for (const std::string& seed : fuzz_seeds()) {
    const int file = ::memfd_create("seed", 0);
    if (file < 0 || ::write(file, seed.data(), seed.size()) != static_cast<ssize_t>(seed.size()))
      std::abort();
    option += "/proc/self/fd/" + std::to_string(file) + ",";
  }
  option.pop_back();
  static std::vector<char*> arguments(*argv, *argv + *argc);
  arguments.push_back(option.data());
  arguments.push_back(nullptr);
  *argc += 1;
  *argv = arguments.data();
  return 0;
}
