// The safetensors format: eight bytes of header length (little-endian), a JSON header that gives every
// tensor its type, shape and byte range, then the bytes. A file is mapped, its header checked completely
// before anything is believed: nothing is allocated from a size the header claims.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/index.h"
#include "io/file.h"

namespace ddl {

struct TensorInfo {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F16", ...
  std::vector<Index> shape;
  Index count = 0;        // elements
  std::size_t begin = 0;  // of its bytes, from the start of the data
  std::size_t byte_count = 0;
};

std::string describe_tensor(std::string_view dtype, std::span<const Index> shape);  // "F32 [2, 3]"

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::size_t data_begin = 0;  // in the file
};

// Throws UserError naming the source, the tensor, what was expected and what was found. Accepts a header
// only where the ranges cover the data exactly: no overlap, no hole, nothing after the end.
// `beginning` is of a file of so many bytes, and holds the header unless that claims more than there is.
SafetensorsHeader parse_safetensors(std::span<const std::byte> beginning, std::size_t file_bytes,
                                    const std::string& source_name);
inline SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& source_name) {
  return parse_safetensors(file, file.size(), source_name);
}

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // null where there is none

  // What read() would check before it reads; throws the same way. Nothing need be allocated for a tensor that
  // is not what its reader expects.
  const TensorInfo& expect(std::string_view name, std::span<const Index> shape) const;
  // The tensor as f32 (F32, BF16, F16 and F64 are read). Throws UserError where it is missing, has another
  // shape or another type, or holds a value that is not finite.
  void read(std::string_view name, std::span<const Index> shape, float* out) const;
  // The same for a tensor of one type, read as it is.
  const TensorInfo& expect_bytes(std::string_view name, std::string_view dtype,
                                 std::span<const Index> shape) const;
  void read_bytes(std::string_view name, std::string_view dtype, std::span<const Index> shape,
                  void* out) const;

 private:
  std::string path_;
  SteadyFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_of_;  // of a name in header_.tensors
};

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<Index> shape;
  const void* data = nullptr;  // little-endian, contiguous
};

// The file's bytes, piece by piece, into `sink`; the second form into a file that exists whole or not at all.
using ByteSink = FunctionRef<void(const void* data, std::size_t bytes)>;
void write_safetensors(ByteSink sink, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata);
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace ddl
