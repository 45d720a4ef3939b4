// SHA-256, for the hashes in dataset and checkpoint manifests: they tell a damaged or exchanged file
// from the one that was written. libcrypto computes it, with the processor's instructions for it,
// because speed matters: a dataset is hashed at the start of every run, and checkpoints are hashed
// while training continues.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace ddl {

class Sha256 {
 public:
  Sha256();
  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // 64 lower-case digits; ends the hash: call once, after the last update

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string sha256_hex(std::string_view text);
std::string sha256_file(const std::string& path);  // throws UserError where it cannot be read

}  // namespace ddl
