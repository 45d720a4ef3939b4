// SHA-256: known answers, in pieces, of files.
#include "io/sha256.h"

#include <gtest/gtest.h>

#include "test_folder.h"

namespace ddl {
namespace {

// From FIPS 180-4's examples and the million-'a' case of its validation notes.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 hash;
  for (int i = 0; i < 1000000; ++i) hash.update("a", 1);
  EXPECT_EQ(hash.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t piece : {1, 3, 55, 56, 63, 64, 65, 128}) {
    Sha256 hash;
    for (std::size_t i = 0; i < text.size(); i += piece) hash.update(std::string_view(text).substr(i, piece));
    EXPECT_EQ(hash.hex(), sha256_hex(text)) << piece;
  }
  EXPECT_EQ(sha256_file(folder.write("x.gz", text)), sha256_hex(text))
      << "the file's own bytes, whatever its name";
}

}  // namespace
}  // namespace ddl
