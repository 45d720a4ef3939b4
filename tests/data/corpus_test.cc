// Reading documents: every form of input, pieces of long documents, bad input.
#include "data/corpus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "compress.h"
#include "core/error.h"
#include "data/document_source.h"
#include "data/text_cut.h"
#include "pair_tokenizer.h"
#include "shared_data.h"
#include "test_folder.h"

namespace ddl {
namespace {

// Whole documents, joined from their pieces.
std::vector<std::string> read_documents(const std::vector<std::string>& inputs, CorpusOptions options = {},
                                        CorpusReader** keep = nullptr) {
  auto reader = std::make_unique<CorpusReader>(inputs, options);
  std::vector<std::string> texts;
  Document document;
  while (reader->next(document)) {
    if (document.piece == 0) texts.emplace_back();
    EXPECT_EQ(document.index, std::ssize(texts) - 1);
    texts.back() += document.text;
  }
  if (keep) *keep = reader.release();
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Corpus, ReadsEveryFormInSortedOrder) {
  const TestFolder folder;
  folder.write("in/b.md", "two");
  folder.write("in/a.txt", "one\xff");
  folder.write("in/sub/c.jsonl.gz", gzip("{\"text\":\"three\"}\n\n{\"text\":\"four\"}"));
  folder.write("in/sub/d.txt.zst", zstd("five"));
  folder.write("in/e.jsonl", "\xef\xbb\xbf{\"text\":\"six\"}\r\n");
  folder.write("in/.hidden.txt", "never");
  folder.write("in/.git/x.txt", "never");
  folder.write("in/picture.png", "never");
  EXPECT_EQ(read_documents({folder / "in"}), (Texts{"one\xff", "two", "six", "three", "four", "five"}));
  EXPECT_EQ(read_documents({folder.write("README", "plain")}), Texts{"plain"});
  EXPECT_EQ(read_documents({folder / "in/b.md", folder / "in/a.txt"}), (Texts{"two", "one\xff"}));
  CorpusOptions options;
  options.format = "text";
  EXPECT_EQ(read_documents({folder / "in/e.jsonl"}, options), Texts{"\xef\xbb\xbf{\"text\":\"six\"}\r\n"});
  options = {};
  options.field = "body";
  EXPECT_EQ(read_documents({folder.write("f.jsonl", "{\"text\":\"no\",\"body\":\"yes\"}")}, options),
            Texts{"yes"});
}

TEST(Corpus, ReadsStandardInput) {
  const TestFolder folder;
  const auto with_stdin = [&](std::string_view contents) {
    const std::string path = folder.write("stdin", contents);
    const int keep = ::dup(0), file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, 0);
    const Texts texts = read_documents({"-"});
    ::dup2(keep, 0);
    ::close(keep), ::close(file);
    return texts;
  };
  EXPECT_EQ(with_stdin("some text"), Texts{"some text"});
  EXPECT_EQ(with_stdin("\n {\"text\":\"row\"}\n{\"text\":\"row 2\"}\n"), (Texts{"row", "row 2"}));
  EXPECT_EQ(with_stdin(gzip("{\"text\":\"row\"}")), Texts{"row"});
  EXPECT_EQ(with_stdin(zstd("text")), Texts{"text"});
  EXPECT_EQ(with_stdin("a"), Texts{"a"});
  EXPECT_EQ(with_stdin(""), Texts{});
}

TEST(Corpus, SplitsOnASeparatorWhereverReadsFall) {
  const TestFolder folder;
  CorpusOptions options;
  options.separator = "<|end|>";
  EXPECT_EQ(
      read_documents({folder.write("a.txt", "one<|end|>two<|end|><|end|> \n<|end|>three<|en")}, options),
      (Texts{"one", "two", "three<|en"}));
  // Separators on both sides of every read boundary of the reader.
  std::string text;
  Texts expected;
  for (int i = 0; i < 120000; ++i) {
    expected.push_back(fmt::format("d{}", i));
    text += expected.back() + options.separator;
  }
  EXPECT_EQ(read_documents({folder.write("b.txt", text)}, options), expected);
}

TEST(Corpus, LongDocumentsComeInPiecesThatJoinToTheSame) {
  const TestFolder folder;
  std::string lines;
  for (int i = 0; lines.size() < 3'000'000; ++i)
    lines += fmt::format("line number {}\n{}", i * 7919, i % 3 ? "" : "\n");
  const std::string no_breaks(9'000'000, 'x');
  std::string accents;
  while (accents.size() < 9'000'000) accents += "\xc3\xa9\xe4\xb8\xad";
  for (const std::string& text : {lines, no_breaks, accents}) {
    std::string row = "{\"text\":\"";
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      row.append(text, at, end - at);
      if (end < text.size()) row += "\\n";
      at = end + 1;
    }
    for (const std::string& path :
         {folder.write("x.txt", text), folder.write("x.jsonl", row.append("\"}\n"))}) {
      CorpusReader reader({path}, {});
      Document document;
      std::string joined;
      std::vector<TokenId> whole, pieces;
      Index count = 0;
      while (reader.next(document)) {
        EXPECT_LE(document.text.size(), kMaxPieceBytes);
        EXPECT_EQ(document.piece, count++);
        EXPECT_EQ(document.index, 0);
        EXPECT_NE(static_cast<unsigned char>(document.text[0]) & 0xc0, 0x80) << "cut inside a character";
        joined += document.text;
        PairTokenizer().encode(document.text, pieces);
      }
      EXPECT_GT(count, 2);
      ASSERT_EQ(joined, text);
      PairTokenizer().encode(text, whole);
      EXPECT_EQ(pieces, whole) << "the cuts change the tokens";
    }
  }
}

TEST(Corpus, BlankDocumentsAreLeftOutAndCounted) {
  const TestFolder folder;
  CorpusReader* reader = nullptr;
  EXPECT_EQ(read_documents({folder.write("a.txt", " \n\n"),
                            folder.write("b.jsonl", "{\"text\":\"\"}\n{\"text\":\"x\"}\n{\"text\":\" \"}")},
                           {}, &reader),
            Texts{"x"});
  EXPECT_EQ(reader->blank(), 3);
  EXPECT_EQ(reader->documents(), 1);
  delete reader;
}

TEST(Corpus, BadRowsNameFileAndLine) {
  const TestFolder folder;
  const std::string path =
      folder.write("x.jsonl", "{\"text\":\"a\"}\n{\"text\":\n{\"body\":\"b\"}\n{\"text\":\"c\"}\n[1]\n");
  const std::string first = message_of<UserError>([&] { read_documents({path}); });
  EXPECT_TRUE(contains(first, path + ":2: not valid JSON at column 9") && contains(first, "--skip-bad"))
      << first;
  CorpusOptions options;
  options.skip_bad = 2;
  const std::string third = message_of<UserError>([&] { read_documents({path}, options); });
  EXPECT_TRUE(contains(third, path + ":5:") && contains(third, "bad row 3")) << third;
  options.skip_bad = 3;
  CorpusReader* reader = nullptr;
  EXPECT_EQ(read_documents({path}, options, &reader), (Texts{"a", "c"}));
  EXPECT_EQ(reader->bad_rows().count(), 3);
  ASSERT_EQ(reader->bad_rows().first().size(), 3u);
  EXPECT_TRUE(contains(reader->bad_rows().first()[1], path + ":3: no field 'text' (found: body)"));
  delete reader;
}

TEST(Corpus, AnswersComeThroughAndWrongOnesAreBadRows) {
  const TestFolder folder;
  CorpusReader reader({folder.write("x.jsonl",
                                    "{\"text\":\"a?3\",\"answers\":[[2,3]]}\n"
                                    "{\"text\":\"plain\"}\n"
                                    "{\"text\":\"other use\",\"answers\":{\"text\":[\"x\"]}}\n")},
                      {});
  Document document;
  ASSERT_TRUE(reader.next(document));
  ASSERT_EQ(document.answers.size(), 1u);
  EXPECT_EQ(document.text.substr(2, 1), "3");
  ASSERT_TRUE(reader.next(document));
  EXPECT_TRUE(document.answers.empty());
  ASSERT_TRUE(reader.next(document));
  EXPECT_TRUE(document.answers.empty());
  for (const char* span : {"[2,4]", "[-1,2]", "[2,2]", "[2,1]"}) {
    const std::string path =
        folder.write("bad.jsonl", std::string("{\"text\":\"a?3\",\"answers\":[") + span + "]}\n");
    EXPECT_TRUE(contains(message_of<UserError>([&] { read_documents({path}); }), ":1: answer [")) << span;
  }
}

TEST(Corpus, WhatCannotBeReadIsNamed) {
  const TestFolder folder;
  const auto why = [](const std::string& path) {
    return message_of<UserError>([&] { read_documents({path}); });
  };
  EXPECT_TRUE(contains(why(folder / "absent"), "absent"));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_TRUE(contains(why(folder / "empty"), ".jsonl"));
  const std::string whole = gzip("{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
  const std::string cut = folder.write("cut.jsonl.gz", whole.substr(0, whole.size() - 9));
  EXPECT_TRUE(contains(why(cut), "cut.jsonl.gz") && contains(why(cut), "truncated") &&
              contains(why(cut), "offset"));
  // Rows of a table may be bad and skipped; a file that is damaged is not a row.
  std::string table = "text\n";
  for (int i = 0; i < 1000; ++i) table += fmt::format("row {}\n", i * 7919 % 1000);
  const std::string rows = gzip(table);
  CorpusOptions patient;
  patient.skip_bad = 10;
  const std::string torn = folder.write("torn.csv.gz", rows.substr(0, rows.size() / 2));
  const std::string said = message_of<UserError>([&] { read_documents({torn}, patient); });
  EXPECT_TRUE(contains(said, "truncated") && !contains(said, "bad row")) << said;
  EXPECT_THROW(read_documents({}), UserError);
}

TEST(Corpus, ProgressEndsAtTheTotal) {
  const TestFolder folder;
  CorpusReader reader({folder.write("a.txt.gz", gzip(std::string(100000, 'a'))), folder.write("b.txt", "b")},
                      {});
  Document document;
  while (reader.next(document)) EXPECT_LE(reader.bytes_read(), reader.bytes_total());
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  EXPECT_GT(reader.bytes_total(), 0u);
}

// Text is read ahead of the pieces that are handed out; a person wants to know of the pieces.
TEST(Corpus, ProgressIsThatOfThePieces) {
  const TestFolder folder;
  std::string text;
  while (text.size() < 1'100'000) text += "some words of a long text\n";
  for (const std::string& path :
       {folder.write("a.txt", text), folder.write("a.txt.gz", gzip(text)),
        folder.write("a.jsonl", "{\"text\":\"" + std::string(text.size(), 'x') + "\"}\n")}) {
    CorpusReader reader({path}, {});
    Document piece;
    for (std::size_t given = 0; reader.next(piece);) {
      given += piece.text.size();
      EXPECT_NEAR(static_cast<double>(reader.bytes_read()) / static_cast<double>(reader.bytes_total()),
                  static_cast<double>(given) / static_cast<double>(text.size()), 0.02)
          << path;
    }
    EXPECT_EQ(reader.bytes_read(), reader.bytes_total()) << path;
  }
}

TEST(Corpus, ParquetIsReadOrSaysHowToGetIt) {
  const TestFolder folder;
  if (!parquet_is_built_in()) {
    const std::string why =
        message_of<UserError>([&] { read_documents({folder.write("x.parquet", "PAR1")}); });
    EXPECT_TRUE(contains(why, "x.parquet") && contains(why, "./ddl setup parquet")) << why;
    return;
  }
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_documents({folder.write("x.parquet", "PAR1")}); }),
                       "x.parquet"));
}

DDL_TEST_WITH_SHARED(Corpus, ParquetOfAPublicRepository, "parquet/text-label.parquet") {
  const std::string path = shared_data("parquet/text-label.parquet").string();
  if (!parquet_is_built_in()) {
    EXPECT_TRUE(contains(message_of<UserError>([&] { read_documents({path}); }), "./ddl setup parquet"));
    return;
  }
  const Texts texts = read_documents({path});
  ASSERT_GT(texts.size(), 100u);
  for (const std::string& text : texts) EXPECT_FALSE(text.empty());
  CorpusOptions options;
  options.field = "absent";
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_documents({path}, options); }), "found: "));
  options.field = "label";
  EXPECT_EQ(read_documents({path}, options).size(), texts.size()) << "any column of strings";
}

}  // namespace
}  // namespace ddl
