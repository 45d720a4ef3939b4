// The loader: each token once per epoch, any step at once, answers where they belong.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "test_folder.h"

namespace ddl {
namespace {

// A stream whose token i is i, in shards of uneven sizes, so that a batch shows where it came from.
TokenStream counting_stream(const TestFolder& folder, Index tokens) {
  std::vector<TokenShard> shards;
  for (Index begin = 0, size = 7; begin < tokens; size = size * 3 / 2 + 1) {
    const Index count = std::min(size, tokens - begin);
    std::vector<TokenId> ids;
    for (Index i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(begin + i));
    const std::string path = folder / fmt::format("s{}.bin", shards.size());
    ShardWriter writer(path, 4);
    writer.write(ids);
    writer.finish();
    shards.emplace_back(path);
    begin += count;
  }
  return TokenStream(std::move(shards));
}

LoaderOptions options_of(Index rows, Index context, std::uint64_t seed = 1) {
  LoaderOptions options;
  options.rows = rows, options.context = context, options.seed = seed;
  return options;
}

TEST(Loader, TargetsFollowInputsAcrossShards) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 2000);
  for (const WindowOrder order : {WindowOrder::kEpoch, WindowOrder::kRandom}) {
    LoaderOptions options = options_of(3, 16);
    options.order = order;
    const Loader loader(stream, std::nullopt, options);
    Batch batch;
    for (Index step = 0; step < 200; ++step) {
      loader.load(step, batch);
      ASSERT_EQ(batch.inputs_BT.size(), 48u);
      for (Index i = 0; i < 48; ++i) {
        ASSERT_EQ(batch.targets_BT[i], batch.inputs_BT[i] + 1);
        if (i % 16) {
          ASSERT_EQ(batch.inputs_BT[i], batch.inputs_BT[i - 1] + 1);
        }
      }
      EXPECT_TRUE(batch.answers_BT.empty());
    }
  }
}

TEST(Loader, EachTokenIsATargetOncePerEpoch) {
  const TestFolder folder;
  for (const Index spare : {0, 5}) {
    const Index T = 8, windows = 60, tokens = windows * T + 1 + spare;
    const TokenStream stream = counting_stream(folder, tokens);
    const Loader loader(stream, std::nullopt, options_of(5, T));  // 12 steps per epoch
    ASSERT_EQ(loader.windows_per_epoch(), windows);
    std::set<std::vector<std::int32_t>> orders;
    std::set<Index> offsets;
    Batch batch;
    for (Index epoch = 0; epoch < 20; ++epoch) {
      std::map<std::int32_t, int> seen;
      std::vector<std::int32_t> firsts;
      for (Index step = epoch * 12; step < (epoch + 1) * 12; ++step) {
        loader.load(step, batch);
        for (const std::int32_t token : batch.targets_BT) ++seen[token];
        for (Index b = 0; b < 5; ++b) firsts.push_back(batch.inputs_BT[b * T]);
      }
      EXPECT_EQ(std::ssize(seen), windows * T);
      for (const auto& [token, times] : seen) ASSERT_EQ(times, 1) << token;
      EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end()));
      offsets.insert(seen.begin()->first);
      orders.insert(firsts);
    }
    EXPECT_EQ(orders.size(), 20u) << "epochs repeat their order";
    EXPECT_EQ(offsets.size() > 1, spare > 0) << "the cuts fall elsewhere in other epochs";
  }
}

TEST(Loader, MicroStepsTogetherHaveTheRowsOfOneStep) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 8 * 96 + 1);
  const Loader whole(stream, std::nullopt, options_of(8, 8));
  Batch all, part;
  for (const Index parts : {2, 4}) {
    const Loader micro(stream, std::nullopt, options_of(8 / parts, 8));
    for (Index step = 0; step < 30; ++step) {
      whole.load(step, all);
      std::vector<std::int32_t> joined;
      for (Index i = 0; i < parts; ++i) {
        micro.load(step * parts + i, part);
        joined.insert(joined.end(), part.inputs_BT.begin(), part.inputs_BT.end());
      }
      ASSERT_EQ(joined, all.inputs_BT);
      ASSERT_EQ(std::set<std::int32_t>(joined.begin(), joined.end()).size(), joined.size());
    }
  }
}

TEST(Loader, AnyStepAtOnceAndSeedsMatter) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 5000);
  for (const WindowOrder order : {WindowOrder::kEpoch, WindowOrder::kRandom}) {
    LoaderOptions options = options_of(4, 32);
    options.order = order;
    const Loader loader(stream, std::nullopt, options);
    std::vector<std::vector<std::int32_t>> run;
    Batch batch;
    for (Index step = 0; step < 100; ++step) {
      loader.load(step, batch);
      run.push_back(batch.inputs_BT);
    }
    for (const Index step : {99, 0, 57}) {
      Batch fresh;
      Loader(stream, std::nullopt, options).load(step, fresh);
      EXPECT_EQ(fresh.inputs_BT, run[step]);
    }
    options.seed = 2;
    Loader(stream, std::nullopt, options).load(0, batch);
    EXPECT_NE(batch.inputs_BT, run[0]);
    loader.load(Index{1} << 40, batch);  // far beyond the data: later epochs
  }
}

TEST(Loader, RandomOrderReachesEveryBegin) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 20);
  LoaderOptions options = options_of(1, 4);
  options.order = WindowOrder::kRandom;
  const Loader loader(stream, std::nullopt, options);
  std::set<std::int32_t> begins;
  Batch batch;
  for (Index step = 0; step < 1000; ++step) {
    loader.load(step, batch);
    begins.insert(batch.inputs_BT[0]);
  }
  EXPECT_EQ(begins.size(), 16u);
  EXPECT_EQ(*begins.rbegin(), 15);
}

TEST(Loader, StateIsAFewIntegersAndRefusesOtherData) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 5000);
  const Loader loader(stream, std::nullopt, options_of(4, 32));
  const Json state = parse_json(to_line(loader.state(123)));
  EXPECT_EQ(loader.resume(state), 123);
  Json other = state;
  other["seed"] = 9;
  EXPECT_TRUE(contains(message_of<UserError>([&] { loader.resume(other); }), "seed was 9 and is 1 now"));
  other = state;
  other["tokens"] = 4999;
  EXPECT_THROW(loader.resume(other), UserError);
  other = state;
  other.erase("context");
  EXPECT_THROW(loader.resume(other), UserError);
  other = state;
  other["step"] = -1;
  EXPECT_THROW(loader.resume(other), UserError);
  EXPECT_THROW(Loader(stream, std::nullopt, options_of(2, 32)).resume(state), UserError);
}

TEST(Loader, TooLittleDataIsAnErrorWithNumbers) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 32);
  const std::string why = message_of<UserError>([&] { Loader(stream, std::nullopt, options_of(1, 32)); });
  EXPECT_TRUE(contains(why, "32 tokens") && contains(why, "33")) << why;
  EXPECT_NO_THROW(Loader(stream, std::nullopt, options_of(1, 31)));
  EXPECT_THROW(FixedWindows(stream, std::nullopt, 32, 1), UserError);
  EXPECT_THROW(Loader(TokenStream(), std::nullopt, options_of(1, 1)), UserError);
}

TEST(FixedWindows, AreFewSpreadAndDisjoint) {
  const TestFolder folder;
  const TokenStream stream = counting_stream(folder, 1001);
  for (const Index limit : {1, 7, 99, 100, 1000}) {
    const FixedWindows windows(stream, std::nullopt, 10, limit);
    ASSERT_EQ(windows.count(), std::min<Index>(limit, 100));
    std::set<std::int32_t> seen;
    Batch batch;
    for (Index i = 0; i < windows.count(); ++i) {
      windows.load(i, 1, batch);
      for (const std::int32_t token : batch.inputs_BT) EXPECT_TRUE(seen.insert(token).second);
    }
    EXPECT_GE(*seen.rbegin() + 1, 1000 - 1000 / windows.count()) << "not spread to the end";
    windows.load(0, windows.count(), batch);
    EXPECT_EQ(batch.rows, windows.count());
  }
}

TEST(Loader, AnswersSpeakOfTargetsAndNeedTheirDocumentInSight) {
  const TestFolder folder;
  //                               0   1  2  3    4  5   6  7  8  9
  const std::vector<TokenId> ids{256, 10, 11, 12, 13, 256, 20, 21, 22, 23, 24};
  ShardWriter writer(folder / "x.bin", 2);
  writer.write(ids);
  writer.finish();
  folder.write("x.answers", std::string("\0\0\0\1\2\0\0\1\0\1\0", 11));
  std::vector<TokenShard> shards;
  shards.emplace_back(folder / "x.bin");
  const TokenStream stream(std::move(shards));
  const auto row = [&](Index begin, Index context, std::optional<TokenId> end) {
    Batch batch;
    batch.resize(1, context, true);
    fill_row(stream, begin, end, 0, batch);
    return batch.answers_BT;
  };
  using Marks = std::vector<std::uint8_t>;
  EXPECT_EQ(row(0, 10, 256), (Marks{0, 0, 1, 2, 0, 0, 1, 0, 1, 0}));
  // Beginning in the first document: its answers are out of reach, the second document's are not.
  EXPECT_EQ(row(1, 9, 256), (Marks{0, 0, 0, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(row(5, 5, 256), (Marks{0, 1, 0, 1, 0}));
  EXPECT_EQ(row(6, 4, 256), (Marks{0, 0, 0, 0}));
  EXPECT_EQ(row(6, 4, std::nullopt), (Marks{1, 0, 1, 0}));
  Batch batch;
  Loader(stream, 256, options_of(2, 3)).load(0, batch);
  EXPECT_EQ(batch.answers_BT.size(), 6u);
}

}  // namespace
}  // namespace ddl
