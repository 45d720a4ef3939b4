// A hash table from byte strings to small values: words to ids, words to counts. Open addressing with linear
// probing; keys lie end to end in one buffer, so that a lookup touches two cache lines and inserting
// allocates nothing most of the time. Nothing is ever removed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"

namespace ddl {

// Reads eight bytes at a time (overlapping at the end) and mixes by a 64 x 64 -> 128 bit multiplication.
inline std::uint64_t hash_bytes(std::string_view key) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const char* p = key.data();
  const std::size_t n = key.size();
  std::uint64_t a = 0, b = 0, hash = kOdd ^ n;
  if (n >= 8) {
    for (std::size_t i = 0; i + 8 < n; i += 8) {
      std::memcpy(&a, p + i, 8);
      hash = mix(hash ^ a, kOdd);
    }
    std::memcpy(&b, p + n - 8, 8);
    return mix(hash ^ b, kOdd);
  }
  if (n >= 4) {
    std::uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + n - 4, 4);
    return mix(hash ^ (std::uint64_t{high} << 32 | low), kOdd);
  }
  for (std::size_t i = 0; i < n; ++i) a = a << 8 | static_cast<unsigned char>(p[i]);
  return mix(hash ^ a, kOdd);
}

template <class Value>
class ByteMap {
 public:
  ByteMap() : slots_(16) {}

  std::size_t size() const { return size_; }

  const Value* find(std::string_view key) const {
    const std::uint64_t hash = hash_bytes(key);
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.length == kFree) return nullptr;
      if (holds(slot, key, hash)) return &slot.value;
    }
  }

  // The value of the key, made with Value{} if it was not there.
  Value& operator[](std::string_view key) {
    DDL_CHECK(key.size() < kFree, "a key of {} bytes", key.size());
    if (2 * (size_ + 1) > slots_.size()) grow();
    const std::uint64_t hash = hash_bytes(key);
    std::size_t i = hash & mask();
    for (; slots_[i].length != kFree; i = (i + 1) & mask())
      if (holds(slots_[i], key, hash)) return slots_[i].value;
    slots_[i] = {tag(hash), static_cast<std::uint32_t>(key.size()), keys_.size(), Value{}};
    keys_.append(key);
    ++size_;
    return slots_[i].value;
  }

  // Calls f(key, value) for each entry, in no particular order.
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_)
      if (slot.length != kFree) f(key_of(slot), slot.value);
  }

 private:
  static constexpr std::uint32_t kFree = 0xffffffffu;
  struct Slot {
    std::uint32_t tag = 0, length = kFree;  // the hash's upper half; the key's bytes
    std::size_t at = 0;                     // where the key begins in keys_
    Value value{};
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::size_t mask() const { return slots_.size() - 1; }
  std::string_view key_of(const Slot& slot) const { return {keys_.data() + slot.at, slot.length}; }
  bool holds(const Slot& slot, std::string_view key, std::uint64_t hash) const {
    return slot.tag == tag(hash) && key_of(slot) == key;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.length == kFree) continue;
      std::size_t i = hash_bytes(key_of(slot)) & mask();
      while (slots_[i].length != kFree) i = (i + 1) & mask();
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::string keys_;
  std::size_t size_ = 0;
};

}  // namespace ddl
