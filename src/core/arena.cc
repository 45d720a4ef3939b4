#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#ifdef DDL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace ddl {
namespace {

#ifdef DDL_ADDRESS_SANITIZER
void forbid(std::byte* begin, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(begin, bytes); }
void allow(std::byte* begin, std::size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(begin, bytes); }
#else
void forbid(std::byte*, std::size_t) {}
void allow(std::byte*, std::size_t) {}
#endif

// Weights and activations are read from end to end. With pages of 4 KiB the processor looks up an address for every
// 64 lines of them; with pages of 2 MiB, which many kernels give only to those who ask, for every 32 thousand.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::byte* allocate(std::size_t bytes) {
  const bool huge = bytes >= kHugePageBytes;
  void* memory = nullptr;
  if (::posix_memalign(&memory, huge ? kHugePageBytes : Arena::kAlignBytes, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  if (huge) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: where it is refused, small pages do
#endif
  return static_cast<std::byte*>(memory);
}

}  // namespace

void Arena::Free::operator()(std::byte* p) const {
  allow(p, capacity_bytes);
  std::free(p);
}

Arena::Arena(std::size_t capacity_bytes, bool owning) : capacity_bytes_(capacity_bytes), owning_(owning) {
  if (!owning || capacity_bytes == 0) return;
  capacity_bytes_ = (capacity_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  memory_ = {allocate(capacity_bytes_), Free{capacity_bytes_}};
  if (!memory_)
    throw UserError("not enough memory: {} could not be allocated", format_bytes(capacity_bytes_));
  std::memset(memory_.get(), 0, capacity_bytes_);
}

void* Arena::take_bytes(std::string_view name, Index count, std::size_t element_bytes) {
  DDL_CHECK(count >= 0, "arena: '{}' asks for {} elements", name, count);
  const auto max_count = std::numeric_limits<std::size_t>::max() / 2 / element_bytes;
  if (static_cast<std::size_t>(count) > max_count)
    throw UserError("'{}' would need {} elements of {} bytes, more than any machine has", name, count,
                    element_bytes);
  const std::size_t exact_bytes = static_cast<std::size_t>(count) * element_bytes;
  const std::size_t bytes = (exact_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes + kGapBytes;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2 - used_bytes_)
    throw UserError("'{}' would bring the memory needed beyond {}, more than any machine has", name,
                    format_bytes(used_bytes_));
  DDL_CHECK(!owning_ || bytes <= capacity_bytes_ - used_bytes_, "arena: '{}' needs {} B, {} B left", name,
            bytes, capacity_bytes_ - used_bytes_);
  std::byte* slice = owning_ ? memory_.get() + used_bytes_ : nullptr;
  if (owning_) forbid(slice + exact_bytes, bytes - exact_bytes);
  used_bytes_ += bytes;
  const auto entry =
      std::find_if(ledger_.begin(), ledger_.end(), [&](const Entry& e) { return e.name == name; });
  if (entry == ledger_.end())
    ledger_.push_back({std::string(name), bytes - kGapBytes});
  else
    entry->bytes += bytes - kGapBytes;
  return slice;
}

std::string format_bytes(std::size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value, unit >= 3 ? 2 : 1, units[unit]);
}

}  // namespace ddl
