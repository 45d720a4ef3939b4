#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "core/bf16.h"
#include "core/error.h"
#include "io/half.h"
#include "io/safetensors.h"

namespace ddl {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::uint32_t kGgufVersion = 3;
constexpr std::size_t kGgufAlignment = 32;  // the default, which files without "general.alignment" have
constexpr std::size_t kGgufBlockBytes = 2 + kGgufBlock;
constexpr std::uint32_t kGgufDimensions = 4;

// The types of values.
enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kDouble
};

// IEEE half precision, to the nearest, ties to even. (Compilers of today's Debian have no such type everywhere.)
std::uint16_t half_bits(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(all >> 16 & 0x8000u);
  std::uint32_t u = all & 0x7fffffffu;
  if (u >= 0x47800000u) return static_cast<std::uint16_t>(sign | (u > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (u < 0x38800000u)  // below 2^-14: a multiple of 2^-24
    return static_cast<std::uint16_t>(
        sign | static_cast<std::uint16_t>(std::nearbyint(std::bit_cast<float>(u) * 0x1p24f)));
  u += 0xfffu + (u >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (u - 0x38000000u) >> 13);
}

std::size_t aligned(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::string gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return "F32";
    case GgufType::kF16:
      return "F16";
    case GgufType::kQ8:
      return "Q8_0";
    case GgufType::kBf16:
      return "BF16";
  }
  return "type " + std::to_string(static_cast<std::uint32_t>(type));
}

std::size_t gguf_bytes(GgufType type, Index count) {
  const auto n = static_cast<std::size_t>(count);
  if (type == GgufType::kQ8) return n / kGgufBlock * kGgufBlockBytes;
  return n * (type == GgufType::kF32 ? 4 : 2);
}

void gguf_encode(GgufType type, std::span<const float> numbers, std::vector<std::byte>& out) {
  out.resize(gguf_bytes(type, std::ssize(numbers)));
  std::byte* at = out.data();
  const auto put = [&](const auto& value) { std::memcpy(at, &value, sizeof value), at += sizeof value; };
  if (type != GgufType::kQ8) {
    for (const float x : numbers) {
      if (type == GgufType::kF32) put(x);
      if (type == GgufType::kBf16) put(to_bf16(x).bits);
      if (type == GgufType::kF16) put(half_bits(x));
    }
    return;
  }
  DDL_CHECK(numbers.size() % kGgufBlock == 0, "{} numbers are no whole blocks", numbers.size());
  for (std::size_t b = 0; b < numbers.size(); b += kGgufBlock) {
    float largest = 0;
    for (Index i = 0; i < kGgufBlock; ++i) largest = std::max(largest, std::abs(numbers[b + i]));
    const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    put(half_bits(d));
    for (Index i = 0; i < kGgufBlock; ++i)
      put(static_cast<std::int8_t>(std::round(numbers[b + i] * inverse)));
  }
}

void gguf_decode(GgufType type, std::span<const std::byte> bytes, float* out) {
  const std::byte *at = bytes.data(), *const end = at + bytes.size();
  if (type == GgufType::kQ8) {
    for (; at != end; at += kGgufBlockBytes) {
      const float d = half_to_float(load<std::uint16_t>(at));
      for (Index i = 0; i < kGgufBlock; ++i) *out++ = d * static_cast<float>(load<std::int8_t>(at + 2 + i));
    }
    return;
  }
  const std::size_t size = type == GgufType::kF32 ? 4 : 2;
  for (; at != end; at += size)
    *out++ = type == GgufType::kF32    ? load<float>(at)
             : type == GgufType::kBf16 ? to_float(bf16{load<std::uint16_t>(at)})
                                       : half_to_float(load<std::uint16_t>(at));
}

// Writing.

namespace {

class GgufHeaderText {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number<std::uint64_t>(value.size());
    bytes_ += value;
  }
  void value(const GgufValue& v) {
    std::visit([&](const auto& x) { typed(x); }, v);
  }
  void pad() { bytes_.resize(aligned(bytes_.size(), kGgufAlignment), '\0'); }
  const std::string& bytes() const { return bytes_; }

 private:
  void typed(std::uint32_t x) { number<std::uint32_t>(kU32), number(x); }
  void typed(float x) { number<std::uint32_t>(kFloat), number(x); }
  void typed(bool x) { number<std::uint32_t>(kBool), number<std::uint8_t>(x); }
  void typed(const std::string& x) { number<std::uint32_t>(kString), text(x); }
  void typed(const std::vector<std::string>& list) {
    array(kString, list.size());
    for (const std::string& x : list) text(x);
  }
  void typed(const std::vector<std::int32_t>& list) {
    array(kI32, list.size());
    for (const std::int32_t x : list) number(x);
  }
  void array(ValueType type, std::size_t count) {
    number<std::uint32_t>(kArray), number<std::uint32_t>(type), number<std::uint64_t>(count);
  }
  std::string bytes_;
};

}  // namespace

void write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& keys,
                const std::vector<GgufTensorToWrite>& tensors) {
  const auto count_of = [](const GgufTensorToWrite& t) {
    Index count = 1;
    for (const Index extent : t.shape) count *= extent;
    return count;
  };
  GgufHeaderText header;
  for (const char c : kGgufMagic) header.number(c);
  header.number(kGgufVersion);
  header.number<std::uint64_t>(tensors.size());
  header.number<std::uint64_t>(keys.size());
  for (const auto& [key, value] : keys) header.text(key), header.value(value);
  std::size_t offset = 0;
  for (const GgufTensorToWrite& t : tensors) {
    header.text(t.name);
    header.number(static_cast<std::uint32_t>(t.shape.size()));
    for (auto extent = t.shape.rbegin(); extent != t.shape.rend(); ++extent)
      header.number(static_cast<std::uint64_t>(*extent));
    header.number(static_cast<std::uint32_t>(t.type));
    header.number<std::uint64_t>(offset);
    offset += aligned(gguf_bytes(t.type, count_of(t)), kGgufAlignment);
  }
  header.pad();
  make_folders(parent_folder(path));
  AtomicFile file(path);
  file.write(header.bytes());
  constexpr Index kAtATime = Index{1} << 18;  // whole blocks
  std::vector<std::byte> bytes;
  for (const GgufTensorToWrite& t : tensors) {
    const Index count = count_of(t);
    for (Index i = 0; i < count; i += kAtATime) {
      gguf_encode(t.type, {t.data + i, static_cast<std::size_t>(std::min(kAtATime, count - i))}, bytes);
      file.write(bytes.data(), bytes.size());
    }
    const std::size_t written = gguf_bytes(t.type, count);
    file.write(std::string(aligned(written, kGgufAlignment) - written, '\0'));
  }
  file.commit();
}

// Reading.

namespace {

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, const std::string& source) : file_(file), source_(source) {}

  GgufHeader read() {
    if (file_.size() < 24 || std::memcmp(file_.data(), kGgufMagic.data(), 4) != 0)
      throw UserError("{}: expected a GGUF file, which begins with \"GGUF\"; found something else", source_);
    at_ = 4;
    if (const auto version = take<std::uint32_t>("its version"); version != kGgufVersion)
      throw UserError("{}: GGUF version {}; this program reads version {}", source_, version, kGgufVersion);
    const auto tensors = take<std::uint64_t>("the number of tensors");
    const auto keys = take<std::uint64_t>("the number of keys");
    for (std::uint64_t k = 0; k < keys; ++k) take_key();
    for (std::uint64_t t = 0; t < tensors; ++t) take_tensor();
    place_tensors();
    return std::move(header_);
  }

 private:
  // At least so many bytes are left; what a file claims is compared with this before anything is made of it.
  void need(std::uint64_t bytes, const std::string& what) const {
    if (bytes > file_.size() - at_)
      throw UserError(
          "{}: {} needs {} more bytes at byte {}, and the file has {}; it is truncated or damaged", source_,
          what, bytes, at_, file_.size() - at_);
  }
  template <class T>
  T take(const std::string& what) {
    need(sizeof(T), what);
    const T value = load<T>(file_.data() + at_);
    at_ += sizeof(T);
    return value;
  }
  std::string take_text(const std::string& what) {
    const auto size = take<std::uint64_t>(what);
    need(size, what);
    std::string text(reinterpret_cast<const char*>(file_.data() + at_), size);
    at_ += size;
    return text;
  }

  Json take_value(std::uint32_t type, const std::string& key) {
    switch (type) {
      case kU8:
        return take<std::uint8_t>(key);
      case kI8:
        return take<std::int8_t>(key);
      case kU16:
        return take<std::uint16_t>(key);
      case kI16:
        return take<std::int16_t>(key);
      case kU32:
        return take<std::uint32_t>(key);
      case kI32:
        return take<std::int32_t>(key);
      case kFloat:
        return take<float>(key);
      case kBool:
        return take<std::uint8_t>(key) != 0;
      case kString:
        return take_text(key);
      case kU64:
        return take<std::uint64_t>(key);
      case kI64:
        return take<std::int64_t>(key);
      case kDouble:
        return take<double>(key);
    }
    throw UserError("{}: key '{}' has a value of type {}, which GGUF does not have here", source_,
                    to_line(key).substr(0, 80), type);
  }
  static std::size_t smallest(std::uint32_t type) {  // bytes of a value
    if (type == kString || type == kU64 || type == kI64 || type == kDouble) return 8;
    if (type == kU32 || type == kI32 || type == kFloat) return 4;
    return type == kU16 || type == kI16 ? 2 : 1;
  }

  void take_key() {
    const std::string key = take_text("a key's name");
    if (header_.keys.contains(key)) throw UserError("{}: key '{}' is there twice", source_, shown(key));
    const auto type = take<std::uint32_t>(key);
    if (type != kArray) {
      header_.keys[key] = take_value(type, key);
      return;
    }
    const auto element = take<std::uint32_t>(key);
    const auto count = take<std::uint64_t>(key);
    if (count > file_.size()) need(count, "array '" + shown(key) + "'");
    need(count * smallest(element), "array '" + shown(key) + "'");
    Json list = Json::array();
    for (std::uint64_t i = 0; i < count; ++i) list.push_back(take_value(element, key));
    header_.keys[key] = std::move(list);
  }

  void take_tensor() {
    GgufTensor t;
    t.name = take_text("a tensor's name");
    if (!names_.insert(t.name).second)
      throw UserError("{}: tensor '{}' is there twice", source_, shown(t.name));
    const std::string what = "tensor '" + shown(t.name) + "'";
    const auto dimensions = take<std::uint32_t>(what);
    if (dimensions < 1 || dimensions > kGgufDimensions)
      throw UserError("{}: {} has {} dimensions, expected 1 to {}", source_, what, dimensions,
                      kGgufDimensions);
    t.count = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto extent = take<std::uint64_t>(what);
      if (extent < 1 || extent > file_.size() * kGgufBlock / static_cast<std::uint64_t>(t.count))
        throw UserError("{}: {} has {} in dimension {}, more than the file can hold", source_, what, extent,
                        i);
      t.count *= static_cast<Index>(extent);
      t.shape.insert(t.shape.begin(), static_cast<Index>(extent));
    }
    const auto type = take<std::uint32_t>(what);
    t.type = static_cast<GgufType>(type);
    if (t.type != GgufType::kF32 && t.type != GgufType::kF16 && t.type != GgufType::kBf16 &&
        t.type != GgufType::kQ8)
      throw UserError("{}: {} is of type {}; this program reads F32, F16, BF16 and Q8_0", source_, what,
                      type);
    if (t.type == GgufType::kQ8 && t.shape.back() % kGgufBlock != 0)
      throw UserError("{}: {} is Q8_0 with rows of {}, which are no whole blocks of {}", source_, what,
                      t.shape.back(), kGgufBlock);
    t.byte_count = gguf_bytes(t.type, t.count);
    t.begin = take<std::uint64_t>(what);  // from the start of the data, for now
    header_.tensors.push_back(std::move(t));
  }

  void place_tensors() {
    std::size_t alignment = kGgufAlignment;
    if (const auto at = header_.keys.find("general.alignment"); at != header_.keys.end()) {
      if (!at->is_number_unsigned() || at->get<std::uint64_t>() > 1 << 20 ||
          !std::has_single_bit(at->get<std::uint64_t>()))
        throw UserError("{}: general.alignment is {}, expected a power of two", source_,
                        to_line(*at).substr(0, 80));
      alignment = at->get<std::size_t>();
    }
    const std::size_t data = aligned(at_, alignment);
    std::vector<const GgufTensor*> order;
    for (GgufTensor& t : header_.tensors) {
      const std::size_t left = file_.size() > data ? file_.size() - data : 0;
      if (t.begin % alignment != 0 || t.begin > left || t.byte_count > left - t.begin)
        throw UserError(
            "{}: tensor '{}' has {} bytes at {} of the data, which has {}; it is truncated or damaged",
            source_, shown(t.name), t.byte_count, t.begin, left);
      t.begin += data;
      order.push_back(&t);
    }
    std::ranges::sort(order, {}, &GgufTensor::begin);
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i - 1]->begin + order[i - 1]->byte_count > order[i]->begin)
        throw UserError("{}: tensors '{}' and '{}' overlap", source_, shown(order[i - 1]->name),
                        shown(order[i]->name));
  }

  static std::string shown(const std::string& name) {
    const std::string quoted = to_line(Json(name.substr(0, 80)));
    return quoted.substr(1, quoted.size() - 2);
  }

  const std::span<const std::byte> file_;
  const std::string source_;
  std::size_t at_ = 0;
  GgufHeader header_;
  std::set<std::string> names_;
};

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& source_name) {
  return GgufReader(file, source_name).read();
}

GgufFile::GgufFile(const std::string& path)
    : path_(path), file_(path), header_(parse_gguf(file_.bytes(), path)) {}

const GgufTensor& GgufFile::expect(std::string_view name, std::span<const Index> shape) const {
  const auto t = std::ranges::find(header_.tensors, name, &GgufTensor::name);
  if (t == header_.tensors.end()) throw UserError("{}: tensor '{}' is missing", path_, name);
  if (!std::ranges::equal(t->shape, shape))
    throw UserError("{}: tensor '{}' is {}, expected {}", path_, name,
                    describe_tensor(gguf_type_name(t->type), t->shape),
                    describe_tensor(gguf_type_name(t->type), shape));
  return *t;
}

void GgufFile::read(std::string_view name, std::span<const Index> shape, float* out) const {
  const GgufTensor& t = expect(name, shape);
  gguf_decode(t.type, file_.bytes().subspan(t.begin, t.byte_count), out);
  for (Index i = 0; i < t.count; ++i)
    if (!std::isfinite(out[i]))
      throw UserError("{}: tensor '{}' holds a value that is not finite (at {})", path_, name, i);
}

}  // namespace ddl
