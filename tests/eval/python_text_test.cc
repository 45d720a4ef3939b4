// Against what CPython 3.11 prints.
#include "eval/python_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "eval/eval_testing.h"

namespace ddl {
namespace {

TEST(PythonText, StripsWhatPythonCallsWhiteSpace) {
  const std::vector<std::uint32_t> space = {0x09,   0x0a,   0x0b,   0x0c,   0x0d,   0x1c,   0x1d,   0x1e,
                                            0x1f,   0x20,   0x85,   0xa0,   0x1680, 0x2000, 0x2001, 0x2002,
                                            0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a,
                                            0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  std::size_t stripped = 0;
  for (std::uint32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const std::string text = utf8(code) + "x" + utf8(code);
    const bool is_space = stripped < space.size() && space[stripped] == code;
    stripped += is_space;
    ASSERT_EQ(python_strip(text), is_space ? "x" : text) << code;
  }
  EXPECT_EQ(stripped, space.size());
  EXPECT_EQ(python_lstrip(" \n x "), "x ");
  EXPECT_EQ(python_rstrip(" x\t\n "), " x");
  EXPECT_EQ(python_strip(" \xc2\xa0\n"), "");
  EXPECT_EQ(python_strip(""), "");
}

TEST(PythonText, Capitalizes) {
  EXPECT_EQ(python_capitalize("the MAN in Paris"), "The man in paris");
  EXPECT_EQ(python_capitalize("éCOLE Ünï"), "École ünï");
  EXPECT_EQ(python_capitalize("ǆABC"), "ǅabc");
  EXPECT_EQ(python_capitalize("ßX"), "Ssx");
  EXPECT_EQ(python_capitalize("aİI"), "Ai\xcc\x87i");
  EXPECT_EQ(python_capitalize("1ABC"), "1abc");
  EXPECT_EQ(python_capitalize("жЁЖ"), "Жёж");
  EXPECT_EQ(python_capitalize(""), "");
}

// Every character, first and second in its word, against a hash made with CPython.
TEST(PythonText, CapitalizesEveryCharacter) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  for (std::uint32_t code = 0x80; code < 0x110000; ++code) {
    if ((code >= 0xd800 && code < 0xe000) || code == 0x3a3) continue;  // capital sigma: see python_text.h
    add(python_capitalize(utf8(code)));
    add(python_capitalize("a" + utf8(code)));
  }
  EXPECT_EQ(hash, 0x549239be6a93f216u);
}

TEST(PythonText, CountsCodePoints) {
  EXPECT_EQ(code_points("it’s"), 4);
  EXPECT_EQ(code_points("𐐨é"), 2);
  EXPECT_EQ(code_points(""), 0);
}

TEST(PythonText, BytesThatAreNoCharactersDoNoHarm) {
  for (const std::string text : {"\xff\xfe", "a\xc3", "\xe2\x80", "\x80\x80\x80\x80\x80", "\xf0\x90 "}) {
    python_strip(text);
    EXPECT_EQ(python_capitalize(text).size(), text.size());
  }
}

}  // namespace
}  // namespace ddl
