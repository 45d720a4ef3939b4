// Datasets in the forms people have; what is wrong is refused with file and position.
#include "data/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "data/dataset_info.h"
#include "data/partial_folder.h"
#include "shard_testing.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(TokenStream, JoinsShards) {
  const TestFolder folder;
  const auto tokens = ramp(1000, 900);
  std::vector<TokenShard> shards;
  Index begin = 0;
  for (const Index count : {1, 0, 499, 300, 200}) {
    const std::string path = folder / fmt::format("s{}.bin", shards.size());
    write_shard(path, std::vector<TokenId>(tokens.begin() + begin, tokens.begin() + begin + count));
    shards.emplace_back(path);
    begin += count;
  }
  const TokenStream stream(std::move(shards));
  ASSERT_EQ(stream.tokens(), 1000);
  for (Index from = 0; from < 1000; from += 37)
    for (const Index count : {Index{0}, Index{1}, Index{600}, 1000 - from}) {
      if (from + count > 1000) continue;
      std::vector<TokenId> out(static_cast<std::size_t>(count));
      stream.read(from, count, out.data());
      ASSERT_EQ(out, std::vector<TokenId>(tokens.begin() + from, tokens.begin() + from + count))
          << from << " " << count;
    }
  stream.read(1000, 0, nullptr);
}

std::string bare(const std::vector<TokenId>& tokens) {
  std::string bytes;
  for (const TokenId token : tokens) bytes += {static_cast<char>(token), static_cast<char>(token >> 8)};
  return bytes;
}

TEST(Dataset, OpensTheFormsPeopleHave) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "llmc");
  write_shard(folder / "llmc/fineweb_train_000002.bin", {3, 4});
  write_shard(folder / "llmc/fineweb_train_000001.bin", {50256, 2});
  write_shard(folder / "llmc/fineweb_val_000000.bin", {50256, 9});
  const Dataset llmc = Dataset::open(folder / "llmc", kTwoThreads);
  EXPECT_EQ(llmc.form(), "llm.c");
  std::vector<TokenId> tokens(4);
  llmc.train().read(0, 4, tokens.data());
  EXPECT_EQ(tokens, (std::vector<TokenId>{50256, 2, 3, 4}));
  EXPECT_EQ(llmc.val().tokens(), 2);
  EXPECT_EQ(llmc.end_of_text(), 50256u);
  EXPECT_EQ(llmc.vocab_size(), 0);

  folder.write("nano/train.bin", bare({5, 6, 7}));
  const Dataset nano = Dataset::open(folder / "nano", kTwoThreads);
  EXPECT_EQ(nano.form(), "nanogpt");
  EXPECT_EQ(nano.train().tokens(), 3);
  EXPECT_EQ(nano.val().tokens(), 0);
  EXPECT_FALSE(nano.end_of_text().has_value());
  folder.write("nano/train.bin", "odd");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { Dataset::open(folder / "nano", kTwoThreads); }), "3 bytes"));
}

TEST(Dataset, ChecksTokensAgainstAVocabulary) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "d");
  write_shard(folder / "d/x_train_1.bin", ramp(1000, 500));
  auto bad = ramp(1000, 500);
  bad[777] = 600;
  write_shard(folder / "d/x_val_1.bin", bad);
  const Dataset dataset = Dataset::open(folder / "d", kTwoThreads);
  const std::string why = message_of<UserError>([&] { dataset.check_vocab(500, kTwoThreads); });
  EXPECT_TRUE(contains(why, "x_val_1.bin: token 600 at position 777")) << why;
  dataset.check_vocab(601, kTwoThreads);
}

TEST(Dataset, FingerprintFollowsTheData) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "d");
  const auto print = [&] { return Dataset::open(folder / "d", kTwoThreads).fingerprint(); };
  auto tokens = ramp(1000, 500);
  write_shard(folder / "d/x_train_1.bin", tokens);
  const std::string first = print();
  EXPECT_EQ(print(), first);
  tokens[500] ^= 1;
  write_shard(folder / "d/x_train_1.bin", tokens);
  EXPECT_NE(print(), first);
  tokens[500] ^= 1;
  write_shard(folder / "d/x_train_1.bin", tokens);
  EXPECT_EQ(print(), first);
  // Names do not count; what a shard is for does.
  std::filesystem::rename(folder / "d/x_train_1.bin", folder / "d/other_train_1.bin");
  EXPECT_EQ(print(), first);
  write_shard(folder / "d/x_val_1.bin", {1, 2});
  const std::string with_validation = print();
  EXPECT_NE(with_validation, first);
  std::filesystem::rename(folder / "d/x_val_1.bin", folder / "d/x_train_1.bin");
  EXPECT_NE(print(), with_validation);
}

// Every byte counts, of answers too, and the number of threads does not.
TEST(Dataset, FingerprintIsOfEveryByte) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "d");
  const std::string path = folder / "d/x_train_1.bin";
  const auto print = [&](int threads = 2) {
    return Dataset::open(folder / "d", Exec{.threads = threads}).fingerprint();
  };
  const auto tokens = ramp(3'000'000, 500);
  write_shard(path, tokens);
  const std::string first = print();
  EXPECT_EQ(print(1), first);
  EXPECT_EQ(print(5), first);
  for (const std::size_t at : {0u, 3715u, 51'000u, 2'097'151u, 2'097'152u, 2'999'999u}) {
    auto changed = tokens;
    changed[at] ^= 1;
    write_shard(path, changed);
    EXPECT_NE(print(), first) << at;
  }
  // Changes that a plain sum, or a product alone, would let cancel.
  for (const TokenId flip : {1u, 0x8000u}) {
    auto changed = tokens;
    changed[3 + 32 * 10] ^= flip, changed[3 + 32 * 20] ^= flip;
    write_shard(path, changed);
    EXPECT_NE(print(), first) << flip;
  }
  auto swapped = tokens;
  std::swap(swapped[32], swapped[64]);
  write_shard(path, swapped);
  EXPECT_NE(print(), first);
  write_shard(path, tokens);
  EXPECT_EQ(print(), first);

  std::string answers(3'000'000, '\0');
  folder.write("d/x_train_1.answers", answers);
  const std::string with_answers = print();
  EXPECT_NE(with_answers, first);
  answers[2'000'000] = 1;
  folder.write("d/x_train_1.answers", answers);
  EXPECT_NE(print(), with_answers);
}

TEST(Dataset, DocumentsOfBareShardsAreCountedWithTheirTokenizer) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "d");
  write_shard(folder / "d/x_train_1.bin", {256, 1, 2, 256, 3, 256, 4});
  const Dataset dataset = Dataset::open(folder / "d", kTwoThreads);
  EXPECT_FALSE(describe_dataset(dataset, nullptr, kTwoThreads)["train"].contains("documents"));
  const Json described = describe_dataset(dataset, load_tokenizer("bytes").get(), kTwoThreads);
  EXPECT_EQ(described["train"]["documents"], 3);
  EXPECT_EQ(described["end_of_text"], 256);
}

TEST(Dataset, WhatIsNotOneIsNamed) {
  const TestFolder folder;
  EXPECT_TRUE(contains(message_of<UserError>([&] { Dataset::open(folder / "absent", kTwoThreads); }),
                       "data prepare"));
  folder.write("d/other.txt", "x");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { Dataset::open(folder / "d", kTwoThreads); }), "no dataset here"));
  for (const char* json : {"{", "[]", "{}", "{\"format\":\"ddl-dataset\",\"version\":1}",
                           "{\"format\":\"ddl-dataset\",\"version\":2}"}) {
    folder.write("d/dataset.json", json);
    EXPECT_TRUE(
        contains(message_of<UserError>([&] { Dataset::open(folder / "d", kTwoThreads); }), "dataset.json"))
        << json;
  }
  folder.write("d/dataset.json", R"({"format":"ddl-dataset","version":1,"vocab_size":10,"end_of_text":3,
    "train":{"shards":[{"file":"../x.bin","tokens":1}]},"val":{"shards":[]}})");
  EXPECT_TRUE(contains(message_of<UserError>([&] { Dataset::open(folder / "d", kTwoThreads); }),
                       "name of a file in the folder"));
  folder.write("e/x_train_1.bin", "");
  folder.write(std::string("e/") + kIncompleteMarker, "");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { Dataset::open(folder / "e", kTwoThreads); }), "interrupted"));
}

}  // namespace
}  // namespace ddl
