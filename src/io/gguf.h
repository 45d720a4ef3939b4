// The GGUF format of llama.cpp, version 3: a magic word, counts, keys with values, the tensors' names, shapes, types and
// places, then their bytes, each tensor at a multiple of the alignment. The reader believes nothing before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "core/json.h"
#include "io/file.h"

namespace ddl {

enum class GgufType : std::uint32_t { kF32 = 0, kF16 = 1, kQ8 = 8, kBf16 = 30 };  // llama.cpp calls kQ8 Q8_0

// Blocks of 32 numbers: a half-precision scale d and 32 signed bytes q;  x = d q,  d = max |x| / 127.
inline constexpr Index kGgufBlock = 32;

std::string gguf_type_name(GgufType type);           // "F32", "Q8_0"
std::size_t gguf_bytes(GgufType type, Index count);  // of so many numbers, whole blocks
void gguf_encode(GgufType type, std::span<const float> numbers,
                 std::vector<std::byte>& out);  // replaces `out`
void gguf_decode(GgufType type, std::span<const std::byte> bytes, float* out);

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<std::int32_t>>;

struct GgufTensorToWrite {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<Index> shape;  // rows first, as everywhere in this project; the file has the reverse
  const float* data = nullptr;
};
void write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& keys,
                const std::vector<GgufTensorToWrite>& tensors);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<Index> shape;
  Index count = 0;
  std::size_t begin = 0, byte_count = 0;  // in the file
};

struct GgufHeader {
  Json keys = Json::object();
  std::vector<GgufTensor> tensors;  // in the order of the file
};

// Throws UserError naming the source, the key or tensor, what was expected and what was found. `file` is all of it.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& source_name);

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  const Json& keys() const { return header_.keys; }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }
  // Throws UserError where it is missing or has another shape.
  const GgufTensor& expect(std::string_view name, std::span<const Index> shape) const;
  // The tensor as f32; throws, too, where it holds what is not finite.
  void read(std::string_view name, std::span<const Index> shape, float* out) const;

 private:
  std::string path_;
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace ddl
