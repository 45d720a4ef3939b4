// The arena: measured, then owned; overflow and absurd sizes.
#include "core/arena.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace ddl {
namespace {

TEST(Arena, MeasuresThenOwnsAndKeepsALedger) {
  const auto plan = [](Arena& arena) {
    arena.take<float>("weights", 3);
    float* state = arena.take<float>("state", 100);
    arena.take<float>("weights", 16);
    return state;
  };
  Arena measured = Arena::measuring();
  EXPECT_EQ(plan(measured), nullptr);
  EXPECT_EQ(measured.used_bytes(), 64u + 448u + 64u + 3 * Arena::kGapBytes);
  Arena owned = Arena::owning(measured.used_bytes());
  float* state = plan(owned);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state) % Arena::kAlignBytes, 0u);
  EXPECT_EQ(state[99], 0.0f);
  ASSERT_EQ(owned.ledger().size(), 2u);
  EXPECT_EQ(owned.ledger()[0].name, "weights");
  EXPECT_EQ(owned.ledger()[0].bytes, 128u);
}

TEST(ArenaDeathTest, OverflowNamesTheSliceAndTheBytes) {
  Arena arena = Arena::owning(64);
  EXPECT_DEATH(arena.take<float>("logits", 1008), "arena: 'logits' needs 40[39][26] B, 64 B left");
}

#ifdef DDL_ADDRESS_SANITIZER
TEST(ArenaDeathTest, AWritePastASliceIsSeen) {
  Arena arena = Arena::owning(64 + 64 + 2 * Arena::kGapBytes);
  float* slice = arena.take<float>("first", 3);
  arena.take<float>("second", 16);
  EXPECT_DEATH(slice[3] = 1, "AddressSanitizer");
}
#endif

TEST(Arena, AbsurdSizesAreRefusedNotWrapped) {
  Arena arena = Arena::measuring();
  EXPECT_THROW(arena.take<float>("huge", std::numeric_limits<Index>::max()), UserError);
  constexpr Index kHalf = std::numeric_limits<Index>::max() / 8;  // half of what can be counted
  arena.take<float>("half", kHalf);
  EXPECT_THROW(arena.take<float>("and again", kHalf), UserError);
}

}  // namespace
}  // namespace ddl
