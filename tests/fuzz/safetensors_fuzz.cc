// Any bytes as a safetensors file: a UserError, or tensors that lie inside the file and do not overlap.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/driver.h"
#include "io/safetensors.h"

namespace {

std::string file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, 'x');
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
           R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
           26),
      file(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[0,4],"data_offsets":[0,0]}}   )",
           0),
      file("{}", 0)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header =
        ddl::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
    std::size_t at = header.data_begin;
    for (const ddl::TensorInfo& tensor : header.tensors) {
      if (header.data_begin + tensor.begin != at) std::abort();
      at += tensor.byte_count;
    }
    if (at != size) std::abort();
  } catch (const ddl::UserError&) {
  }
  return 0;
}
