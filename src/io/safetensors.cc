#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/bf16.h"
#include "core/cache_line.h"
#include "core/error.h"
#include "core/record.h"
#include "io/half.h"

namespace ddl {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian in the file");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// Bytes per element; 0 for a name that the format does not have.
std::size_t dtype_bytes(std::string_view dtype) {
  struct Entry {
    std::string_view name;
    std::size_t bytes;
  };
  static constexpr Entry kTypes[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2},     {"F64", 8},     {"I64", 8},
                                     {"I32", 4}, {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},
                                     {"U16", 2}, {"U8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};
  for (const Entry& entry : kTypes)
    if (entry.name == dtype) return entry.bytes;
  return 0;
}

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw UserError("{}: not a valid safetensors file: {}", source, what);
}

std::size_t to_size(const Json& value, const std::string& source, const std::string& what) {
  if (!value.is_number_unsigned())
    refuse(source, fmt::format("{}: expected a whole number of 0 or more, found {}", what,
                               to_line(value).substr(0, 80)));
  return value.get<std::size_t>();
}

std::uint64_t header_length(std::span<const std::byte> beginning) {
  std::uint64_t length = 0;
  std::memcpy(&length, beginning.data(), sizeof length);
  return length;
}

SafetensorsHeader read_header(const SteadyFile& file) {
  std::vector<std::byte> beginning(std::min<std::size_t>(file.size(), kLengthBytes));
  file.read(0, beginning.data(), beginning.size());
  if (beginning.size() == kLengthBytes) {
    const std::uint64_t length = header_length(beginning), after = file.size() - kLengthBytes;
    if (length <= std::min<std::uint64_t>(after, kMaxHeaderBytes)) {  // else it is refused without being read
      beginning.resize(kLengthBytes + length);
      file.read(kLengthBytes, beginning.data() + kLengthBytes, length);
    }
  }
  return parse_safetensors(beginning, file.size(), file.path());
}

TensorInfo parse_tensor(const std::string& name, const Json& entry, std::size_t data_bytes,
                        const std::string& source) {
  const std::string what = fmt::format("tensor '{}'", name);
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    refuse(source, what + ": expected an object with dtype, shape and data_offsets");
  TensorInfo tensor;
  tensor.name = name;
  if (!entry["dtype"].is_string()) refuse(source, what + ": its dtype is not a string");
  tensor.dtype = entry["dtype"].get<std::string>();
  const std::size_t element_bytes = dtype_bytes(tensor.dtype);
  if (element_bytes == 0)
    refuse(source, fmt::format("{}: unknown dtype '{}', expected F32, BF16, F16 or another of the format",
                               what, tensor.dtype.substr(0, 80)));
  const Json& shape = entry["shape"];
  if (!shape.is_array()) refuse(source, what + ": its shape is not an array");
  std::size_t count = 1;
  for (const Json& extent_json : shape) {
    const std::size_t extent = to_size(extent_json, source, what + ": shape");
    // In two steps, so that no product can overflow: a tensor larger than the file cannot be true.
    if (extent > data_bytes || (extent != 0 && count > data_bytes / extent))
      refuse(source, fmt::format("{}: shape {} needs more than the file's {} bytes", what,
                                 to_line(shape).substr(0, 200), data_bytes));
    count *= extent;
    tensor.shape.push_back(static_cast<Index>(extent));
  }
  tensor.count = static_cast<Index>(count);
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    refuse(source, what + ": expected data_offsets [begin, end]");
  tensor.begin = to_size(offsets[0], source, what + ": data_offsets");
  const std::size_t end = to_size(offsets[1], source, what + ": data_offsets");
  if (end < tensor.begin || end > data_bytes)
    refuse(source, fmt::format("{}: bytes {} to {} lie outside the {} bytes of data", what, tensor.begin, end,
                               data_bytes));
  tensor.byte_count = end - tensor.begin;
  if (count > data_bytes / element_bytes || tensor.byte_count != count * element_bytes)
    refuse(source, fmt::format("{}: {} needs {} bytes, data_offsets give {}", what,
                               describe_tensor(tensor.dtype, tensor.shape), count * element_bytes,
                               tensor.byte_count));
  return tensor;
}

}  // namespace

std::string describe_tensor(std::string_view dtype, std::span<const Index> shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> beginning, std::size_t file_bytes,
                                    const std::string& source) {
  if (file_bytes < kLengthBytes)
    refuse(source, fmt::format("it has {} bytes, the header's length alone takes 8", file_bytes));
  const std::uint64_t length = header_length(beginning);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes)
    refuse(source, fmt::format("its header claims {} bytes, the file has {} after the length", length,
                               file_bytes - kLengthBytes));
  DDL_CHECK(beginning.size() >= kLengthBytes + length, "{} bytes of a header of {}", beginning.size(),
            length);
  const auto* text = reinterpret_cast<const char*>(beginning.data() + kLengthBytes);
  if (length == 0 || *text != '{') refuse(source, "its header does not begin with '{'");
  const Json root = parse_json({text, static_cast<std::size_t>(length)});
  if (!root.is_object())
    refuse(source, "its header is not a JSON object (truncated, damaged or absurdly nested)");

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<std::size_t>(length);
  const std::size_t data_bytes = file_bytes - header.data_begin;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) refuse(source, "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) refuse(source, fmt::format("__metadata__ '{}' is not a string", key));
        header.metadata[key] = value.get<std::string>();
      }
    } else {
      header.tensors.push_back(parse_tensor(name, entry, data_bytes, source));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.byte_count < b.byte_count;
                   });
  std::size_t at = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != at)
      refuse(source,
             fmt::format("tensor '{}' begins at byte {} of the data, expected {} ({})", tensor.name,
                         tensor.begin, at, tensor.begin < at ? "it overlaps the one before" : "a hole"));
    at += tensor.byte_count;
  }
  if (at != data_bytes)
    refuse(source, fmt::format("its tensors take {} bytes, the file has {} of data", at, data_bytes));
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path), header_(read_header(file_)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_of_.emplace(header_.tensors[i].name, i);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_of_.find(name);
  return found == index_of_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorInfo& SafetensorsFile::expect(std::string_view name, std::span<const Index> shape) const {
  const TensorInfo* tensor = find(name);
  if (!tensor)
    throw UserError("{}: tensor '{}' is missing, expected {}", path_, name, describe_tensor("F32", shape));
  const bool readable =
      tensor->dtype == "F32" || tensor->dtype == "BF16" || tensor->dtype == "F16" || tensor->dtype == "F64";
  if (!readable || !std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end()))
    throw UserError("{}: tensor '{}' is {}, expected {}{}", path_, name,
                    describe_tensor(tensor->dtype, tensor->shape), describe_tensor("F32", shape),
                    readable ? "" : " (or BF16, F16)");
  return *tensor;
}

void SafetensorsFile::read(std::string_view name, std::span<const Index> shape, float* out) const {
  const TensorInfo* tensor = &expect(name, shape);
  constexpr Index kAtOnce = Index{1} << 16;
  const auto convert = [&]<class Stored>(Stored, auto to_float) {
    std::vector<Stored> stored(static_cast<std::size_t>(std::min(tensor->count, kAtOnce)));
    for (Index begin = 0; begin < tensor->count; begin += kAtOnce) {
      const Index count = std::min(tensor->count - begin, kAtOnce);
      file_.read(header_.data_begin + tensor->begin + static_cast<std::size_t>(begin) * sizeof(Stored),
                 stored.data(), static_cast<std::size_t>(count) * sizeof(Stored));
      for (Index i = 0; i < count; ++i) {
        out[begin + i] = to_float(stored[i]);
        if (!std::isfinite(out[begin + i]))
          throw UserError("{}: tensor '{}' holds {} at element {}, expected finite numbers", path_, name,
                          out[begin + i], begin + i);
      }
    }
  };
  if (tensor->dtype == "F32")
    convert(float{}, [](float x) { return x; });
  else if (tensor->dtype == "BF16")
    convert(std::uint16_t{}, [](std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); });
  else if (tensor->dtype == "F16")
    convert(std::uint16_t{}, half_to_float);
  else
    convert(double{}, [](double x) { return static_cast<float>(x); });
}

const TensorInfo& SafetensorsFile::expect_bytes(std::string_view name, std::string_view dtype,
                                                std::span<const Index> shape) const {
  const TensorInfo* tensor = find(name);
  const std::string expected = describe_tensor(dtype, shape);
  if (!tensor) throw UserError("{}: tensor '{}' is missing, expected {}", path_, name, expected);
  if (const std::string found = describe_tensor(tensor->dtype, tensor->shape); found != expected)
    throw UserError("{}: tensor '{}' is {}, expected {}", path_, name, found, expected);
  return *tensor;
}

void SafetensorsFile::read_bytes(std::string_view name, std::string_view dtype, std::span<const Index> shape,
                                 void* out) const {
  const TensorInfo& tensor = expect_bytes(name, dtype, shape);
  file_.read(header_.data_begin + tensor.begin, out, tensor.byte_count);
}

void write_safetensors(ByteSink sink, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  std::vector<std::size_t> sizes;
  for (const TensorToWrite& tensor : tensors) {
    std::size_t bytes = dtype_bytes(tensor.dtype);
    DDL_CHECK(bytes > 0 && !header.contains(tensor.name), "tensor {} of type {}", tensor.name, tensor.dtype);
    for (const Index extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
    header[tensor.name] =
        Json{{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    sizes.push_back(bytes);
    at += bytes;
  }
  std::string text = to_line(header);
  // Tensors begin on a cache line of a mapping of the file.
  const Index data_begin = round_up(static_cast<Index>(text.size() + kLengthBytes), kCacheLineBytes);
  text.resize(static_cast<std::size_t>(data_begin) - kLengthBytes, ' ');
  const std::uint64_t length = text.size();
  sink(&length, sizeof length);
  sink(text.data(), text.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) sink(tensors[i].data, sizes[i]);
}

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  AtomicFile file(path);
  write_safetensors([&](const void* data, std::size_t bytes) { file.write(data, bytes); }, tensors, metadata);
  file.commit();
}

}  // namespace ddl
