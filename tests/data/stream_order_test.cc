// data.order = stream: windows one after another, and from the beginning again.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "data/loader.h"
#include "data/shard.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(StreamOrder, WindowsComeOneAfterAnother) {
  const TestFolder folder;
  std::vector<TokenId> ids;
  for (Index i = 0; i < 60; ++i) ids.push_back(static_cast<TokenId>(i));
  ShardWriter writer(folder / "s.bin", 4);
  writer.write(ids);
  writer.finish();
  std::vector<TokenShard> shards;
  shards.emplace_back(folder / "s.bin");
  const TokenStream stream(std::move(shards));
  LoaderOptions options;
  options.rows = 2, options.context = 7, options.order = WindowOrder::kStream;
  const Loader loader(stream, std::nullopt, options);  // 8 windows, 3 tokens left over
  Batch batch;
  for (Index step = 0; step < 9; ++step) {
    loader.load(step, batch);
    for (Index b = 0; b < 2; ++b)
      for (Index t = 0; t < 7; ++t) {
        const Index at = (2 * step + b) % 8 * 7 + t;
        ASSERT_EQ(batch.inputs_BT[b * 7 + t], at);
        ASSERT_EQ(batch.targets_BT[b * 7 + t], at + 1);
      }
  }
  // The order belongs to the state of a run.
  Json state = loader.state(3);
  EXPECT_EQ(loader.resume(state), 3);
  state["order"] = "epoch";
  EXPECT_TRUE(contains(message_of<UserError>([&] { loader.resume(state); }), "order"));
}

}  // namespace
}  // namespace ddl
