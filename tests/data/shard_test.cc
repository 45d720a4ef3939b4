// Shards: what is written is read back; what is wrong is refused with file and position.
#include "data/shard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "shard_testing.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::vector<TokenId> read_all(const TokenShard& shard) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(shard.tokens()));
  shard.read(0, shard.tokens(), tokens.data());
  return tokens;
}

TEST(Shard, IsLlmcsFormatToTheByte) {
  const TestFolder folder;
  write_shard(folder / "x.bin", {50256, 1, 65535});
  const std::string bytes = contents_of(folder / "x.bin");
  ASSERT_EQ(bytes.size(), 1024u + 6u);
  const unsigned char expected[12] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 3, 0, 0, 0};  // 20240520, 1, 3
  EXPECT_EQ(std::memcmp(bytes.data(), expected, 12), 0);
  EXPECT_EQ(bytes.substr(12, 1012), std::string(1012, '\0'));
  EXPECT_EQ(bytes.substr(1024), std::string("\x50\xc4\x01\x00\xff\xff", 6));
}

TEST(Shard, RoundTripInBothWidths) {
  const TestFolder folder;
  for (const auto& [width, modulus] : {std::pair{2, 65536u}, std::pair{4, 200000u}}) {
    for (const Index count : {0, 1, 1000, 100001}) {
      const auto tokens = ramp(count, modulus);
      write_shard(folder / "x.bin", tokens, width);
      const TokenShard shard(folder / "x.bin");
      EXPECT_EQ(shard.token_bytes(), width);
      EXPECT_EQ(read_all(shard), tokens);
      if (count < 1000) continue;
      std::vector<TokenId> middle(10);
      shard.read(333, 10, middle.data());
      EXPECT_EQ(middle, std::vector<TokenId>(tokens.begin() + 333, tokens.begin() + 343));
    }
  }
}

TEST(Shard, SizeMustAgreeWithTheHeader) {
  const TestFolder folder;
  write_shard(folder / "x.bin", ramp(100, 1000));
  const std::string whole = contents_of(folder / "x.bin");
  const auto why = [&](const std::string& bytes) {
    return message_of<UserError>([&] { TokenShard{folder.write("y.bin", bytes)}; });
  };
  for (const std::size_t bytes :
       {whole.size() - 1, whole.size() - 2, std::size_t{1024}, std::size_t{1000}, std::size_t{12}}) {
    const std::string message = why(whole.substr(0, bytes));
    EXPECT_TRUE(contains(message, "y.bin") && contains(message, "100 tokens") &&
                contains(message, "truncated"))
        << message;
  }
  EXPECT_TRUE(contains(why(whole + "x"), "1224"));
  EXPECT_TRUE(contains(why(""), "magic"));
  EXPECT_TRUE(contains(why(std::string(2000, 'x')), "magic"));
  std::string other = whole;
  other[4] = 9;
  EXPECT_TRUE(contains(why(other), "version 9"));
  other = whole;
  other[11] = static_cast<char>(0xff);
  EXPECT_TRUE(contains(why(other), "tokens"));
}

TEST(Shard, AnUnfinishedShardIsNotOne) {
  const TestFolder folder;
  {
    ShardWriter writer(folder / "x.bin", 2);
    writer.write(ramp(100000, 1000));
  }
  EXPECT_THROW(TokenShard{folder / "x.bin"}, UserError);
}

TEST(Shard, FindsTheFirstTokenOutOfRange) {
  const TestFolder folder;
  for (const int width : {2, 4}) {
    auto tokens = ramp(3'000'000, 1000);
    for (const Index at : {Index{0}, Index{1'048'575}, Index{1'048'576}, Index{2'999'999}}) {
      auto bad = tokens;
      bad[at] = 1000;
      bad.back() = 5000;
      write_shard(folder / "x.bin", bad, width);
      const TokenShard shard(folder / "x.bin");
      for (const int threads : {1, 3}) {
        const auto found = shard.find_out_of_range(1000, Exec{.threads = threads});
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->position, at);
        EXPECT_EQ(found->token, bad[at]);
      }
      EXPECT_FALSE(shard.find_out_of_range(5001, kTwoThreads).has_value());
    }
  }
}

TEST(Shard, AnswersMustHaveOneByteATokenEach) {
  const TestFolder folder;
  write_shard(folder / "x.bin", ramp(5, 100));
  EXPECT_FALSE(TokenShard(folder / "x.bin").has_answers());
  folder.write("x.answers", std::string("\0\1\2\0\1", 5));
  const TokenShard shard(folder / "x.bin");
  ASSERT_TRUE(shard.has_answers());
  std::uint8_t answers[3];
  shard.read_answers(1, 3, answers);
  EXPECT_EQ(answers[0], 1);
  EXPECT_EQ(answers[1], 2);
  EXPECT_EQ(answers[2], 0);
  folder.write("x.answers", "1234");
  EXPECT_TRUE(contains(message_of<UserError>([&] { TokenShard{folder / "x.bin"}; }),
                       "x.answers: 4 bytes, expected 5"));
}

}  // namespace
}  // namespace ddl
