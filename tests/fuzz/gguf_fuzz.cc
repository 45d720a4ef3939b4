// Any bytes as a GGUF file: a UserError, or tensors that lie inside the file and whose numbers can be read.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "fuzz/driver.h"
#include "io/gguf.h"

namespace {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& bytes, const std::string& text) {
  put<std::uint64_t>(bytes, text.size());
  bytes += text;
}

std::string small_file(std::uint32_t type, std::size_t data_bytes) {
  std::string bytes = "GGUF";
  put<std::uint32_t>(bytes, 3), put<std::uint64_t>(bytes, 1), put<std::uint64_t>(bytes, 2);
  put_text(bytes, "k"), put<std::uint32_t>(bytes, 6), put(bytes, 1.5f);
  put_text(bytes, "l"), put<std::uint32_t>(bytes, 9), put<std::uint32_t>(bytes, 8),
      put<std::uint64_t>(bytes, 2);
  put_text(bytes, "x"), put_text(bytes, "");
  put_text(bytes, "w"), put<std::uint32_t>(bytes, 2), put<std::uint64_t>(bytes, 32),
      put<std::uint64_t>(bytes, 2);
  put<std::uint32_t>(bytes, type), put<std::uint64_t>(bytes, 0);
  bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  return bytes + std::string(data_bytes, 'x');
}

}  // namespace

std::vector<std::string> fuzz_seeds() { return {small_file(0, 256), small_file(8, 68), small_file(30, 128)}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  try {
    const ddl::GgufHeader header = ddl::parse_gguf(file, "fuzz.gguf");
    for (const ddl::GgufTensor& tensor : header.tensors) {
      if (tensor.begin > size || tensor.byte_count > size - tensor.begin) std::abort();
      std::vector<float> numbers(static_cast<std::size_t>(tensor.count));
      ddl::gguf_decode(tensor.type, file.subspan(tensor.begin, tensor.byte_count), numbers.data());
    }
  } catch (const ddl::UserError&) {
  }
  return 0;
}
