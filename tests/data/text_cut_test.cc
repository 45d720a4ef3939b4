// Where a long text may be cut.
#include "data/text_cut.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

TEST(TextCut, OnlyWhereTokenisationCannotNotice) {
  EXPECT_EQ(exact_cut("abc\ndef", 0), 3u);
  EXPECT_EQ(exact_cut("abc\ndef", 4), std::string::npos);
  EXPECT_EQ(exact_cut("abc\n\ndef", 0), std::string::npos);
  EXPECT_EQ(exact_cut("abc.\ndef", 0), std::string::npos);
  EXPECT_EQ(exact_cut("abc\n def", 0), std::string::npos);
  EXPECT_EQ(exact_cut("abc\n\xc2\xa0", 0), std::string::npos);
  EXPECT_EQ(exact_cut("abc\n", 0), std::string::npos);
  EXPECT_EQ(exact_cut("\nabc", 0), std::string::npos);
  EXPECT_EQ(exact_cut("a.\nb\nc", 0), 4u);
}

}  // namespace
}  // namespace ddl
