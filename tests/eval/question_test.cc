// Few-shot contexts, the draws behind them, and tokens.
#include "eval/question.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "data/bpe_train.h"
#include "data/pair_tokenizer.h"
#include "eval/eval_testing.h"
#include "eval/task_rows.h"
#include "shared_data.h"
#include "test_folder.h"

namespace ddl {
namespace {

// The one-shot contexts of the specification, for each task: shown T, asked E.
TEST(FewShot, ContextsOfEveryTask) {
  const TaskDocument t{{"T.text"}, {"T.a", "T.b"}, 1}, e{{"E.text"}, {"E.a", "E.b"}, 0};
  for (const char* name : {"arc_easy", "hellaswag", "openbookqa", "piqa", "sciq", "social_iqa"}) {
    const Task& task = builtin(name);
    const Question q = make_question(task, e, example_text(task, t));
    EXPECT_EQ(q.context(1), "T.text T.b\n\nE.text") << name;
    EXPECT_EQ(q.continuation(1), " E.b");
    EXPECT_EQ(q.choice_chars, (std::vector<Index>{3, 3}));
    EXPECT_EQ(q.gold, 0);
  }
  const Task& winogrande = builtin("winogrande");
  const TaskDocument wt{{"T a", "T b"}, {"T rest."}, 1}, we{{"E a", "E b"}, {"E rest."}, 0};
  const Question w = make_question(winogrande, we, example_text(winogrande, wt));
  EXPECT_EQ(w.context(0), "T b T rest.\n\nE a");
  EXPECT_EQ(w.context(1), "T b T rest.\n\nE b");
  EXPECT_EQ(w.continuation(1), " E rest.");
  const Task& lambada = builtin("lambada_openai");
  const TaskDocument lt{{"T text"}, {" word"}, 0}, le{{"E text"}, {" last"}, 0};
  EXPECT_EQ(make_question(lambada, le, example_text(lambada, lt)).context(0), "T text  word\n\nE text");
}

TEST(FewShot, SciQWithoutSupportHasThreeLineBreaks) {
  const Task& task = builtin("sciq");
  const TaskDocument d{{"\nQuestion: q\nAnswer:"}, {"a", "b", "c", "d"}, 3};
  EXPECT_EQ(make_question(task, d, example_text(task, d)).context(0),
            "\nQuestion: q\nAnswer: d\n\n\nQuestion: q\nAnswer:");
}

std::vector<TaskDocument> numbered(Index count, const std::string& name) {
  std::vector<TaskDocument> documents;
  for (Index i = 0; i < count; ++i) documents.push_back({{fmt::format("{} {}", name, i)}, {"a", "b"}, 0});
  return documents;
}

TEST(FewShot, DrawsOneMoreWhereThereIsNoTestSplit) {
  const auto asked = numbered(8, "asked"), pool = numbered(33410, "pool");
  const auto shown = draw_shots(builtin("social_iqa"), asked, pool, 1);
  std::vector<Index> first;
  for (const auto& examples : shown) first.push_back(examples.at(0));
  EXPECT_EQ(first, (std::vector<Index>{28883, 490, 2288, 6450, 15519, 2019, 22681, 30379}));

  const auto sciq = draw_shots(builtin("sciq"), asked, numbered(11679, "pool"), 1);
  first.clear();
  for (const auto& examples : sciq) first.push_back(examples.at(0));
  EXPECT_EQ(first, (std::vector<Index>{7220, 1914, 122, 1485, 9539, 572, 11002, 11355}));
  EXPECT_EQ(draw_shots(builtin("sciq"), asked, {}, 0), std::vector<std::vector<Index>>(8));
}

TEST(FewShot, ADocumentIsNotItsOwnExampleWhereASpareWasDrawn) {
  auto asked = numbered(2, "asked");
  const auto pool = numbered(33410, "pool");
  asked[0] = pool[28883];  // its first draw; the second is 7657
  const auto shown = draw_shots(builtin("social_iqa"), asked, pool, 1);
  EXPECT_EQ(shown[0], std::vector<Index>{7657});
  EXPECT_EQ(shown[1], std::vector<Index>{490});
  // With a test split nothing is compared: LAMBADA can show a document itself.
  auto texts = numbered(5153, "text");
  EXPECT_EQ(draw_shots(builtin("lambada_openai"), std::vector{texts[3610]}, texts, 1)[0],
            std::vector<Index>{3610});
}

TEST(FewShot, APoolThatIsTooSmallIsRefused) {
  const auto asked = numbered(1, "asked"), pool = numbered(2, "pool");
  EXPECT_EQ(draw_shots(builtin("piqa"), asked, pool, 1)[0].size(), 1u);
  EXPECT_TRUE(contains(message_of<UserError>([&] { draw_shots(builtin("piqa"), asked, pool, 2); }),
                       "piqa: 2 shots draw 3 examples, its train split has 2"));
}

// Draw by draw, with the rows themselves.
DDL_TEST_WITH_SHARED(FewShot, SharedDraws, "fewshot", "eval/arc_easy", "eval/piqa") {
  for (const char* name : {"arc_easy", "piqa"}) {
    const Task& task = builtin(name);
    const std::string data = shared_data("eval").string();
    const auto asked = read_split(task, data, task.eval_split()), pool = read_split(task, data, "train");
    const auto shown = draw_shots(task, asked, pool, 1);
    std::ifstream file(shared_data("fewshot") / (std::string(name) + "_1shot.txt"));
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line); ++lines) {
      std::istringstream words(line);
      Index document = 0, example = 0;
      words >> document >> example;
      ASSERT_LT(lines, shown.size());
      ASSERT_EQ(document, static_cast<Index>(lines));
      ASSERT_EQ(shown[lines], std::vector<Index>{example}) << name << " " << line;
    }
    EXPECT_EQ(lines, shown.size());
  }
}

Question pair(std::string context, std::string continuation) {
  return {{std::move(context)}, {std::move(continuation)}, {1}, 0};
}

std::string decode(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return tokenizer.decode(std::vector<TokenId>(ids.begin(), ids.end()));
}

TEST(Encode, WhiteSpaceAtTheEndOfAContextMoves) {
  const auto bytes = load_tokenizer("bytes");
  const auto check = [&](const char* context, const char* continuation, const char* expected_context,
                         const char* expected_continuation) {
    const ScoreRequest r = encode_question(pair(context, continuation), *bytes).at(0);
    EXPECT_EQ(decode(*bytes, r.context), expected_context);
    EXPECT_EQ(decode(*bytes, r.continuation), expected_continuation);
  };
  check("Food: How to boil. Fill the pot ", " a", "Food: How to boil. Fill the pot", "  a");
  check("a \n\xc2\xa0", "b", "a",
        " \n\xc2\xa0"
        "b");
  check("a", " b", "a", " b");
  check("\nx", " b", "\nx", " b");
}

TEST(Encode, WithoutAContextTheEndOfTextTokenStandsForIt) {
  const auto bytes = load_tokenizer("bytes");
  for (const auto& [context, continuation] : {std::pair{"", " b"}, {" ", "b"}}) {
    const ScoreRequest r = encode_question(pair(context, continuation), *bytes).at(0);
    EXPECT_EQ(r.context, std::vector<std::int32_t>{static_cast<std::int32_t>(bytes->end_of_text())});
    EXPECT_EQ(decode(*bytes, r.continuation), " b");
  }
}

// A tokenizer that joins letters across the border: what counts is the whole text's tokens after the first
// few.
TEST(Encode, ContextAndContinuationAreTokenisedTogether) {
  const PairTokenizer pairs;
  const ScoreRequest r = encode_question(pair("abc", "def"), pairs).at(0);
  EXPECT_EQ(pairs.decode(std::vector<TokenId>(r.context.begin(), r.context.end())), "abc");  // ab c
  EXPECT_EQ(decode(pairs, r.continuation), "ef");                                            // ab cd | ef
  EXPECT_TRUE(contains(message_of<UserError>([&] { encode_question(pair("abc", "d"), pairs); }),
                       "leaves no token of \"d\""));
}

TEST(Encode, OneRequestPerChoiceInOrder) {
  const auto bytes = load_tokenizer("bytes");
  const auto by_choice = encode_question({{"ctx"}, {" a", " b", " cc"}, {1, 1, 2}, 0}, *bytes);
  ASSERT_EQ(by_choice.size(), 3u);
  EXPECT_EQ(decode(*bytes, by_choice[2].context), "ctx");
  const auto by_context = encode_question({{"one ", "two"}, {" x"}, {1}, 0}, *bytes);
  ASSERT_EQ(by_context.size(), 2u);
  EXPECT_EQ(decode(*bytes, by_context[0].context), "one");
  EXPECT_EQ(decode(*bytes, by_context[0].continuation), "  x");
  EXPECT_EQ(decode(*bytes, by_context[1].context), "two");
}

// Words begin with their space: a tokenizer of GPT-2's kind has no token that joins a context and a continuation after
// a space, however well it knows the text.
TEST(Encode, TokensOfGpt2sKindEndAtTheBorder) {
  const std::string context = "The ball is on the mat, isn't it? Yes, 2 balls", continuation = " are on it!";
  WordCounter words(Exec{1});
  for (int i = 0; i < 2; ++i) words.add(context + continuation);
  const BpeTokenizer bpe(train_bpe(words, 320));
  std::vector<TokenId> whole;
  bpe.encode(context + continuation, whole);
  ASSERT_LT(whole.size(), 25u);
  const ScoreRequest r = encode_question(pair(context, continuation), bpe).at(0);
  EXPECT_EQ(decode(bpe, r.context), context);
  EXPECT_EQ(decode(bpe, r.continuation), continuation);
  std::vector<TokenId> joined(r.context.begin(), r.context.end());
  joined.insert(joined.end(), r.continuation.begin(), r.continuation.end());
  EXPECT_EQ(joined, whole);
}

// With GPT-2's tokenizer the parts never join across the border, and the longest requests have the
// specification's lengths.
DDL_TEST_WITH_SHARED(Encode, Gpt2OnSharedRows, "gpt2-tokenizer", "eval") {
  const auto gpt2 = load_tokenizer(shared_data("gpt2-tokenizer").string());
  const std::string data = shared_data("eval").string();
  std::map<std::string, std::size_t> longest;
  for (const Task& task : builtin_tasks()) {
    if (!std::filesystem::exists(data + "/" + task.name)) continue;
    for (const TaskDocument& document : read_split(task, data, task.eval_split())) {
      const Question q = make_question(task, document, "");
      const auto requests = encode_question(q, *gpt2);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        longest[task.name] =
            std::max(longest[task.name], requests[i].context.size() + requests[i].continuation.size());
        EXPECT_EQ(decode(*gpt2, requests[i].context) + decode(*gpt2, requests[i].continuation),
                  q.context(static_cast<Index>(i)) + q.continuation(static_cast<Index>(i)));
      }
    }
  }
  EXPECT_EQ(longest["piqa"], 255u);  // the whole split, as in the specification
}

}  // namespace
}  // namespace ddl
