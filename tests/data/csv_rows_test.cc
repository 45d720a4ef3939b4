#include "data/csv_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "data/corpus.h"
#include "test_folder.h"

namespace ddl {
namespace {

using CsvTable = std::vector<std::vector<std::string>>;

CsvTable csv_table(std::string text, char delimiter = ',') {
  bool given = false;
  CsvRows rows(
      [&](char* out, std::size_t) {
        if (std::exchange(given, true)) return std::size_t{0};
        std::memcpy(out, text.data(), text.size());
        return text.size();
      },
      delimiter);
  CsvTable table;
  std::vector<std::string> fields;
  while (rows.next(fields)) table.push_back(fields);
  return table;
}

TEST(CsvRows, FieldsQuotesAndLineBreaks) {
  EXPECT_EQ(csv_table("a,b\n1,2\n"), (CsvTable{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(csv_table("a,b\r\n1,\r\n"), (CsvTable{{"a", "b"}, {"1", ""}}));
  EXPECT_EQ(csv_table("\"a,\"\"x\"\"\nb\",c"), (CsvTable{{"a,\"x\"\nb", "c"}}));
  EXPECT_EQ(csv_table("\"\",\"\"\n"), (CsvTable{{"", ""}}));
  EXPECT_EQ(csv_table("a\"b,c\n"), (CsvTable{{"a\"b", "c"}})) << "a quote inside a field is text";
  EXPECT_EQ(csv_table("\n\na\n\n\r\nb"), (CsvTable{{"a"}, {"b"}})) << "empty lines are no rows";
  EXPECT_EQ(csv_table("\xef\xbb\xbf"
                      "a\n\xff\xfe\n"),
            (CsvTable{{"a"}, {"\xff\xfe"}}));
  EXPECT_EQ(csv_table("\uff54,b\n"), (CsvTable{{"\uff54", "b"}}))
      << "begins like a byte order mark, and is none";
  EXPECT_EQ(csv_table("\xef"), (CsvTable{{"\xef"}}));
  EXPECT_EQ(csv_table("\xef\xbb\xbf"), CsvTable{});
  EXPECT_EQ(csv_table("a\tb,c\n", '\t'), (CsvTable{{"a", "b,c"}}));
  EXPECT_EQ(csv_table("a\rb\n"), (CsvTable{{"a\rb"}})) << "a lone carriage return is text";
  EXPECT_EQ(csv_table("a,b\r"), (CsvTable{{"a", "b"}})) << "unless it is the last byte";
  EXPECT_EQ(csv_table(""), CsvTable{});
}

struct CsvCorpus : ::testing::Test {
  TestFolder folder;
  std::vector<std::string> texts(const std::vector<std::string>& inputs, CorpusOptions options = {}) {
    CorpusReader reader(inputs, options);
    std::vector<std::string> found;
    for (Document document; reader.next(document);) found.push_back(document.text);
    return found;
  }
  std::string error(const std::string& contents, CorpusOptions options = {}) {
    folder.write("bad.csv", contents);
    return message_of<UserError>([&] { texts({folder / "bad.csv"}, options); });
  }
};

TEST_F(CsvCorpus, AFolderOfEverything) {
  folder.write("set/a.txt", "plain");
  folder.write("set/b.jsonl", "{\"text\":\"json\"}\n");
  folder.write("set/c.csv", "id,text\n1,comma\n2,\"two\nlines\"\n3,\n");
  folder.write("set/d.tsv", "text\tid\ntab\t1\n");
  folder.write("set/e.bin", "not this");
  EXPECT_EQ(texts({folder / "set"}),
            (std::vector<std::string>{"plain", "json", "comma", "two\nlines", "tab"}))
      << "and the blank one is left out";
  CorpusOptions ids;
  ids.field = "id";
  EXPECT_EQ(texts({folder / "set/c.csv"}, ids), (std::vector<std::string>{"1", "2", "3"}));
}

TEST_F(CsvCorpus, BadRowsAreNamed) {
  const auto has = [](const std::string& found, const std::string& words) {
    EXPECT_NE(found.find(words), found.npos) << found << "\nlacks " << words;
  };
  has(error("id,words\n1,a\n"),
      "no column 'text' in the first row; it has id, words (--field names another)");
  has(error(""), "the file is empty");
  has(error("text,n,text\na,1,b\n"),
      "two columns are called 'text' in the first row, which has text, n, text");
  has(error("text,n\na,1\nb\n"), "bad.csv:3: expected 2 fields, as in the first row, found 1");
  has(error("text\n\"a\nb\" c\n"), "bad.csv:2: field 1: expected the delimiter or the end of the row");
  has(error("text\na\n\"b\nc"), "bad.csv:3: a field in quotes does not end");
  has(error("\"text"), "the header cannot be read");
  folder.write("some.csv", "text,n\na,1\nb\n\"c\"d,2\ne,3\n");
  CorpusOptions two;
  two.skip_bad = 2;
  EXPECT_EQ(texts({folder / "some.csv"}, two), (std::vector<std::string>{"a", "e"}));
}

}  // namespace
}  // namespace ddl
