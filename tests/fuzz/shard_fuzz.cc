// The shard reader: any bytes in a file give a shard whose every token can be read, or a UserError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/shard.h"
#include "fuzz/driver.h"

std::vector<std::string> fuzz_seeds() {
  const auto shard = [](std::int32_t magic, std::int32_t version, const auto& tokens) {
    std::int32_t header[256] = {magic, version, static_cast<std::int32_t>(tokens.size())};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
    return bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0]));
  };
  return {shard(20240520, 1, std::vector<std::uint16_t>{999, 1, 2, 3, 50256, 7}),
          shard(20240520, 2, std::vector<std::uint32_t>{5, 70000, 7}),
          shard(20240801, 7, std::vector<std::uint32_t>{5, 128000, 7}), std::string("\1\0\2\0\3\0", 6)};
}

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
