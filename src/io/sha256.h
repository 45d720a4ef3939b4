// SHA-256 (FIPS 180-4), for the hashes in dataset and checkpoint manifests: they tell a damaged or exchanged
// file from the one that was written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddl {

class Sha256 {
 public:
  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // 64 lower-case digits; ends the hash: call once, after the last update

 private:
  void block(const std::uint8_t* bytes_64);
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::size_t pending_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

std::string sha256_hex(std::string_view text);
std::string sha256_file(const std::string& path);  // throws UserError where it cannot be read

}  // namespace ddl
