// The shard reader: any bytes in a file give a shard whose every token can be read, or a UserError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/shard.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A file in memory: thousands of runs should not wait for a disk.
  static const int file = ::memfd_create("shard", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  for (const auto bare : {ddl::BareFiles::kRefuse, ddl::BareFiles::kAccept}) {
    try {
      const ddl::TokenShard shard(path, bare);
      if (static_cast<std::size_t>(shard.tokens()) > size) std::abort();
      std::vector<ddl::TokenId> tokens(static_cast<std::size_t>(shard.tokens()));
      shard.read(0, shard.tokens(), tokens.data());
      const auto bad = shard.find_out_of_range(1000, ddl::Exec{});
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool here = bad && static_cast<std::size_t>(bad->position) == i;
        if ((tokens[i] >= 1000) != here) std::abort();
        if (here) break;
      }
    } catch (const ddl::UserError&) {
    }
  }
  return 0;
}
