#include "io/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "core/error.h"
#include "io/byte_stream.h"

namespace ddl {
namespace {

void require(bool done) {
  if (!done)
    throw UserError("libcrypto cannot compute a SHA-256: see whether OpenSSL's configuration is whole");
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  require(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(const void* data, std::size_t bytes) {
  require(EVP_DigestUpdate(context_.get(), data, bytes) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_file(const std::string& path) {
  Sha256 hash;
  ByteStream file(path, Compression::kNone);
  std::string buffer(1 << 18, '\0');
  while (const std::size_t got = file.read(buffer.data(), buffer.size())) hash.update(buffer.data(), got);
  return hash.hex();
}

}  // namespace ddl
