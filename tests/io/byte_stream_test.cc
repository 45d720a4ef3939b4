// Streams: plain, gzip and zstd give back the bytes; truncation and damage name file and offset.
#include "io/byte_stream.h"

#include <gtest/gtest.h>

#include "compress.h"
#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::string read_all(const std::string& path, std::size_t piece = 1000) {
  ByteStream stream(path);
  std::string text, buffer(piece, '\0');
  while (const std::size_t got = stream.read(buffer.data(), buffer.size())) text.append(buffer, 0, got);
  return text;
}

std::string noise(std::size_t bytes) {
  std::string text;
  for (std::uint32_t x = 1; text.size() < bytes; x = x * 1664525 + 1013904223)
    text += static_cast<char>(x >> 24);
  return text;
}

TEST(ByteStream, GivesBackTheBytes) {
  const TestFolder folder;
  for (const std::size_t bytes : {0, 1, 1000, 700000}) {
    const std::string text = noise(bytes);
    for (const std::size_t piece : {1ul, 4096ul, 1000000ul}) {
      if (piece == 1 && bytes > 1000) continue;
      EXPECT_EQ(read_all(folder.write("t.txt", text), piece), text);
      EXPECT_EQ(read_all(folder.write("t.txt.gz", gzip(text)), piece), text);
      EXPECT_EQ(read_all(folder.write("t.txt.zst", zstd(text)), piece), text);
    }
  }
}

TEST(ByteStream, SeveralMembersAndPadding) {
  const TestFolder folder;
  EXPECT_EQ(read_all(folder.write("m.gz", gzip("one ") + gzip("") + gzip("two"))), "one two");
  EXPECT_EQ(read_all(folder.write("m.zst", zstd("one ") + zstd("") + zstd("two"))), "one two");
  EXPECT_EQ(read_all(folder.write("p.gz", gzip("one") + std::string(600, '\0'))), "one");
}

TEST(ByteStream, EveryTruncationIsAnErrorNamingFileAndOffset) {
  const TestFolder folder;
  const std::string text = noise(5000);
  for (const auto& [name, whole] : {std::pair{"t.gz", gzip(text)}, std::pair{"t.zst", zstd(text)}}) {
    for (std::size_t keep = 0; keep < whole.size(); keep += keep < 40 || keep + 40 > whole.size() ? 1 : 501) {
      const std::string path = folder.write(name, whole.substr(0, keep));
      const std::string message = message_of<UserError>([&] { read_all(path); });
      EXPECT_TRUE(contains(message, path) && contains(message, "truncated") &&
                  contains(message, "offset " + std::to_string(keep)))
          << message << " after " << keep;
    }
  }
}

TEST(ByteStream, DamageIsAnErrorNotOtherText) {
  const TestFolder folder;
  const std::string whole = gzip(noise(5000));
  for (const std::size_t at : {0ul, 1ul, 2ul, whole.size() - 6, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    EXPECT_TRUE(contains(message_of<UserError>([&] { read_all(folder.write("d.gz", damaged)); }), "d.gz"))
        << at;
  }
  const std::string plain = message_of<UserError>([&] { read_all(folder.write("plain.gz", "hello there")); });
  EXPECT_TRUE(contains(plain, "not valid gzip at offset 0")) << plain;
  EXPECT_THROW(read_all(folder.write("plain.zst", "hello there")), UserError);
  EXPECT_THROW(read_all(folder.write("after.gz", gzip("x") + "junk")), UserError);
  EXPECT_THROW(read_all(folder.write("after.gz", gzip("x") + std::string(5, '\0') + "junk")), UserError);
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_all(folder / "absent"); }), "absent"));
}

TEST(ByteStream, OffsetsEndAtTheFileSize) {
  const TestFolder folder;
  const std::string whole = gzip(noise(100000));
  ByteStream stream(folder.write("t.gz", whole));
  std::string buffer(7000, '\0');
  while (stream.read(buffer.data(), buffer.size()) > 0) EXPECT_LE(stream.file_offset(), whole.size());
  EXPECT_EQ(stream.file_offset(), whole.size());
}

TEST(ByteStream, SuffixesOfNames) {
  EXPECT_EQ(without_compression_suffix("a.jsonl.gz"), "a.jsonl");
  EXPECT_EQ(without_compression_suffix("a.jsonl.zst"), "a.jsonl");
  EXPECT_EQ(without_compression_suffix("a.gz.txt"), "a.gz.txt");
}

}  // namespace
}  // namespace ddl
