// bf16, arena, rng, parallel_for and records.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "core/record.h"
#include "core/rng.h"

namespace ddl {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);                       // tie: to even (down)
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-7f + 0x1p-8f)), 1.0f + 0x1p-6f);   // tie: to even (up)
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x1p-7f);  // above the tie
  EXPECT_EQ(to_float(to_bf16(-3.4e38f)), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

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

#ifdef __SANITIZE_ADDRESS__
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

// Known answers of Philox4x32-10 from the authors' Random123 distribution.
TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Philox4{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox4{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Rng, StreamsDifferAndMomentsAreRight) {
  const Random a(1, "weights"), b(1, "data");
  EXPECT_NE(a.bits(0), b.bits(0));
  EXPECT_EQ(a.bits(7), Random(1, "weights").bits(7));
  const int n = 200000;
  double sum = 0, squares = 0, uniform = 0;
  for (int i = 0; i < n; ++i) {
    const double x = a.normal(i);
    sum += x, squares += x * x, uniform += a.uniform(i);
    ASSERT_LT(b.below(i, 7), 7u);
  }
  // Five standard errors of each mean.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(uniform / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
}

TEST(Parallel, VisitsEachIndexOnceForAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    std::vector<std::atomic<int>> hits(1000);
    parallel_chunks(1000, 7, Exec{.threads = threads}, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) ++hits[i];
    });
    for (auto& h : hits) ASSERT_EQ(h, 1);
  }
  parallel_for(0, Exec{.threads = 4}, [](Index) { FAIL(); });
}

TEST(Parallel, ExceptionsReachTheCaller) {
  EXPECT_THROW(parallel_for(100, Exec{.threads = 4},
                            [](Index i) {
                              if (i == 50) throw UserError("stop");
                            }),
               UserError);
}

TEST(IndexDeathTest, LosingInformationAborts) {
  EXPECT_EQ(div_exact(12, 4), 3);
  EXPECT_DEATH(div_exact(65536, 12), "65536 is not a multiple of 12");
  EXPECT_DEATH(narrow<std::int32_t>(Index{1} << 40), "does not fit");
  EXPECT_DEATH(narrow<std::uint32_t>(Index{-1}), "does not fit");
}

TEST(Record, OneLineEachAndBadNumbersAreNull) {
  const auto path = std::filesystem::temp_directory_path() / "ddl_record_test.jsonl";
  std::filesystem::remove(path);
  {
    RecordWriter writer(path.string());
    Json r = make_record("step");
    r["loss"] = std::nan("");
    r["text"] = "a\nb\xff";
    writer.write(r);
    writer.write(make_record("end"));
  }
  std::ifstream in(path);
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(parse_json(first)["loss"], nullptr);
  EXPECT_EQ(second, "{\"v\":1,\"event\":\"end\"}");
  std::filesystem::remove(path);
  EXPECT_THROW(RecordWriter("/nonexistent/folder/x.jsonl"), UserError);
}

TEST(Record, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  RecordWriter writer("/dev/full");
  EXPECT_THROW(writer.write(make_record("step")), UserError);
}

}  // namespace
}  // namespace ddl
