// One block of memory, handed out as named slices and never returned. The same planning code runs twice:
// first on a measuring arena (no memory, take() returns null) to learn the size, then on one of that size.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cache_line.h"
#include "core/index.h"
#include "core/sanitizer.h"

namespace ddl {

class Arena {
 public:
  struct Entry {
    std::string name;
    std::size_t bytes;  // as reserved: rounded up to the alignment
  };
  static constexpr std::size_t kAlignBytes = static_cast<std::size_t>(kCacheLineBytes);

  // Slices are neighbours in one allocation, where the address sanitizer would not see a write past the end
  // of one. In builds with it, each slice is followed by poisoned bytes.
#ifdef DDL_ADDRESS_SANITIZER
  static constexpr std::size_t kGapBytes = kAlignBytes;
#else
  static constexpr std::size_t kGapBytes = 0;
#endif

  static Arena measuring() { return Arena(0, false); }
  static Arena owning(std::size_t capacity_bytes) { return Arena(capacity_bytes, true); }
  // Exactly as large as plan(arena) asks for, which runs twice: measuring, then for real.
  template <class Plan>
  static Arena planned(const Plan& plan) {
    Arena measured = measuring();
    plan(measured);
    Arena arena = owning(measured.used_bytes());
    plan(arena);
    return arena;
  }

  // A slice of `count` elements, aligned and zeroed. Its size is added to the ledger's entry for `name`.
  template <class T>
  T* take(std::string_view name, Index count) {
    return static_cast<T*>(take_bytes(name, count, sizeof(T)));
  }

  std::size_t used_bytes() const { return used_bytes_; }
  const std::vector<Entry>& ledger() const { return ledger_; }  // in order of first use

 private:
  Arena(std::size_t capacity_bytes, bool owning);
  void* take_bytes(std::string_view name, Index count, std::size_t element_bytes);

  struct Free {
    std::size_t capacity_bytes;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  bool owning_ = false;
  std::vector<Entry> ledger_;
};

// "12.0 MiB", "1.50 GiB", "64 B".
std::string format_bytes(std::size_t bytes);

}  // namespace ddl
