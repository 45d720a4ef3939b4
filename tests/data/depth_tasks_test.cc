// Tasks with exact answers: solvers that know the written form, and nothing of the generator, must come to the same.
#include "data/depth_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/exec.h"
#include "data/corpus.h"
#include "test_folder.h"

namespace ddl {
namespace {

constexpr Index kDocuments = 500;

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

// The answers as marked.
std::vector<std::string> answers_of(const GeneratedDocument& document) {
  std::vector<std::string> result;
  for (const ByteSpan& span : document.answers)
    result.push_back(document.text.substr(static_cast<std::size_t>(span.begin),
                                          static_cast<std::size_t>(span.end - span.begin)));
  return result;
}

// One line; each marked answer stands behind a '?' or '=' and ends its word; nothing else does.
void expect_marked(const GeneratedDocument& document) {
  ASSERT_TRUE(document.text.ends_with("\n"));
  EXPECT_EQ(std::count(document.text.begin(), document.text.end(), '\n'), 1);
  std::vector<Index> begins, expected;
  for (std::size_t at = 0; at < document.text.size(); ++at)
    if (document.text[at] == '?' || document.text[at] == '=') expected.push_back(static_cast<Index>(at + 1));
  for (const ByteSpan& span : document.answers) {
    begins.push_back(span.begin);
    EXPECT_EQ(span.end,
              static_cast<Index>(document.text.find_first_of(" \n", static_cast<std::size_t>(span.begin))));
  }
  EXPECT_EQ(begins, expected);
}

TEST(DepthTasks, HopsLeadWhereTheArrowsSay) {
  for (const HopOptions& options : {HopOptions{}, HopOptions{5, 3, 3, 5}, HopOptions{26, 1, 25, 40}}) {
    options.check();
    std::set<Index> lengths;
    for (Index i = 0; i < kDocuments; ++i) {
      const GeneratedDocument document = generate_hops(options, 7, i);
      expect_marked(document);
      std::map<char, char> arrow;
      std::set<std::string> questions;
      std::vector<std::string> solved;
      for (const std::string& word : words(document.text)) {
        if (word.size() == 3 && word[1] == '>') {
          EXPECT_TRUE(solved.empty()) << "an arrow behind a question";
          EXPECT_TRUE(arrow.emplace(word[0], word[2]).second) << document.text;
          continue;
        }
        const std::size_t mark = word.find('?');
        ASSERT_NE(mark, std::string::npos) << document.text;
        EXPECT_TRUE(questions.insert(word.substr(0, mark)).second) << document.text;
        const Index hops = std::stol(word);
        lengths.insert(hops);
        char at = word[mark - 1];
        for (Index h = 0; h < hops; ++h) at = arrow.at(at);
        solved.emplace_back(1, at);
        EXPECT_NE(at, word[mark - 1]);
      }
      EXPECT_EQ(std::ssize(arrow), options.symbols);
      EXPECT_EQ(std::ssize(solved), options.questions);
      ASSERT_EQ(solved, answers_of(document)) << document.text;
    }
    EXPECT_EQ(*lengths.begin(), options.min_hops);
    EXPECT_EQ(*lengths.rbegin(), options.max_hops);
  }
}

// An element from its name, by counting: the d-th of the points left, for the digits of its place in mixed radix.
std::vector<int> element_named(const std::string& name) {
  const int points = name.size() == 1 ? 3 : 5;
  int place = name.size() == 1 ? name[0] - 'a' : (name[0] - 'a') * 5 + (name[1] - '1');
  std::vector<int> left, element;
  for (int p = 0; p < points; ++p) left.push_back(p);
  for (int block = points == 3 ? 2 : 24, p = points - 1; p >= 0; --p) {  // (points - 1)!
    element.push_back(left[static_cast<std::size_t>(place / block)]);
    left.erase(left.begin() + place / block);
    place %= block;
    if (p > 0) block /= p;
  }
  return element;
}

// Objects on places: an element p moves what lies at place x to place p(x). At the end we look where each one is.
TEST(DepthTasks, GroupProductsMoveEveryPoint) {
  EXPECT_EQ(element_named("a"), (std::vector{0, 1, 2}));
  EXPECT_EQ(element_named("d"), (std::vector{1, 2, 0}));
  EXPECT_EQ(element_named("x5"), (std::vector{4, 3, 2, 1, 0}));
  for (const GroupOptions& options : {GroupOptions{}, GroupOptions{"s5", 1, 8}, GroupOptions{"s3", 32, 32}}) {
    options.check();
    const std::size_t name_size = options.group == "s3" ? 1 : 2, points = options.group == "s3" ? 3 : 5;
    std::set<Index> lengths;
    std::set<std::string> products;
    for (Index i = 0; i < kDocuments; ++i) {
      const GeneratedDocument document = generate_group(options, 7, i);
      expect_marked(document);
      const std::size_t equals = document.text.find('=');
      std::vector<int> object_at;
      for (std::size_t p = 0; p < points; ++p) object_at.push_back(static_cast<int>(p));
      for (std::size_t at = 0; at < equals; at += name_size) {
        const std::vector<int> p = element_named(document.text.substr(at, name_size));
        std::vector<int> moved(points);
        for (std::size_t x = 0; x < points; ++x) moved[static_cast<std::size_t>(p[x])] = object_at[x];
        object_at = moved;
      }
      const std::vector<std::string> answer = answers_of(document);
      ASSERT_EQ(answer.size(), 1u);
      const std::vector<int> product = element_named(answer[0]);
      for (std::size_t x = 0; x < points; ++x)
        ASSERT_EQ(object_at[static_cast<std::size_t>(product[x])], static_cast<int>(x)) << document.text;
      lengths.insert(static_cast<Index>(equals / name_size));
      products.insert(answer[0]);
    }
    EXPECT_EQ(*lengths.begin(), options.min_length);
    EXPECT_EQ(*lengths.rbegin(), options.max_length);
    EXPECT_GE(products.size(), options.group == "s3" ? 6u : 100u);  // nearly every element is an answer
  }
}

TEST(DepthTasks, ReplaceFollowsThePermutationsInOrder) {
  for (const ReplaceOptions& options :
       {ReplaceOptions{}, ReplaceOptions{3, 2, 2, 3}, ReplaceOptions{12, 1, 9, 6}}) {
    options.check();
    std::set<std::size_t> depths;
    for (Index i = 0; i < kDocuments; ++i) {
      const GeneratedDocument document = generate_replace(options, 7, i);
      expect_marked(document);
      std::map<char, std::map<char, char>> permutations;
      std::set<char> asked;
      std::vector<std::string> solved;
      for (const std::string& word : words(document.text)) {
        ASSERT_EQ(word.size(), 3u);
        if (word[1] != '?') {
          EXPECT_TRUE(permutations[word[0]].emplace(word[1], word[2]).second) << document.text;
          EXPECT_NE(word[1], word[2]);
          continue;
        }
        EXPECT_TRUE(asked.insert(word[0]).second);
        char at = word[0];
        for (const auto& [number, p] : permutations) at = p.at(at);
        EXPECT_NE(at, word[0]);
        solved.emplace_back(1, at);
      }
      char number = '1';
      for (const auto& [name, p] : permutations) {
        EXPECT_EQ(name, number++);
        std::set<char> images;
        for (const auto& [from, to] : p) images.insert(to);
        EXPECT_EQ(std::ssize(images), options.symbols);
      }
      depths.insert(permutations.size());
      EXPECT_EQ(std::ssize(solved), options.questions);
      ASSERT_EQ(solved, answers_of(document)) << document.text;
    }
    EXPECT_EQ(static_cast<Index>(*depths.begin()), options.min_depth);
    EXPECT_EQ(static_cast<Index>(*depths.rbegin()), options.max_depth);
  }
}

// As at school: digit by digit from the right, with the carry.
std::string sum_by_hand(const std::string& a, const std::string& b) {
  std::string sum;
  int carry = 0;
  for (std::size_t d = 0; d < std::max(a.size(), b.size()) || carry; ++d) {
    const auto digit = [&](const std::string& n) { return d < n.size() ? n[n.size() - 1 - d] - '0' : 0; };
    const int total = digit(a) + digit(b) + carry;
    sum.insert(sum.begin(), static_cast<char>('0' + total % 10));
    carry = total / 10;
  }
  return sum;
}

TEST(DepthTasks, SumsAreRight) {
  EXPECT_EQ(sum_by_hand("617", "48"), "665");
  for (const AdditionOptions& options :
       {AdditionOptions{}, AdditionOptions{1, 4, true}, AdditionOptions{4, 4, true},
        AdditionOptions{18, 18, false}, AdditionOptions{1, 1, false}}) {
    options.check();
    std::set<std::size_t> lengths;
    for (Index i = 0; i < kDocuments; ++i) {
      const GeneratedDocument document = generate_addition(options, 7, i);
      expect_marked(document);
      const std::size_t plus = document.text.find('+'), equals = document.text.find('=');
      std::string a = document.text.substr(0, plus), b = document.text.substr(plus + 1, equals - plus - 1);
      std::string answer = answers_of(document).at(0);
      if (options.padded) {
        EXPECT_EQ(std::ssize(a), options.max_digits);
        EXPECT_EQ(std::ssize(b), options.max_digits);
        EXPECT_EQ(std::ssize(answer), options.max_digits + 1);
        for (std::string* n : {&a, &b, &answer})
          n->erase(0, std::min(n->find_first_not_of('0'), n->size() - 1));
      }
      for (const std::string& n : {a, b}) {
        EXPECT_TRUE(n == "0" || n[0] != '0') << document.text;
        lengths.insert(n.size());
      }
      ASSERT_EQ(answer, sum_by_hand(a, b)) << document.text;
    }
    EXPECT_EQ(static_cast<Index>(*lengths.begin()), options.min_digits);
    EXPECT_EQ(static_cast<Index>(*lengths.rbegin()), options.max_digits);
  }
}

// The examples of docs/data.md, which a reader should get as well.
TEST(DepthTasks, TheDocumentedExamples) {
  EXPECT_TRUE(generate_hops({}, 1, 0).text.ends_with(" j>m 6m?e 6e?n 2h?o 5h?m\n"));
  EXPECT_EQ(generate_group({}, 1, 0).text, "fdadbacfddefaea=b\n");
  EXPECT_EQ(generate_group({"s5", 2, 16}, 1, 0).text, "u5n2a5p5h1c5l2v5p5n3q2x4a1t5c4=j4\n");
  EXPECT_TRUE(generate_replace({}, 1, 0).text.ends_with(" 4ch 1gd f?a e?f\n"));
  EXPECT_EQ(generate_addition({}, 1, 0).text, "8867+132=8999\n");
  EXPECT_EQ(generate_addition({1, 4, true}, 1, 0).text, "8867+0132=08999\n");
}

// The same seed gives the same documents, another seed others.
TEST(DepthTasks, AFunctionOfSeedAndNumber) {
  const std::vector<std::function<GeneratedDocument(std::uint64_t, Index)>> tasks = {
      [](std::uint64_t seed, Index i) { return generate_hops({}, seed, i); },
      [](std::uint64_t seed, Index i) { return generate_group({}, seed, i); },
      [](std::uint64_t seed, Index i) {
        return generate_group({"s5", 2, 8}, seed, i);
      },
      [](std::uint64_t seed, Index i) { return generate_replace({}, seed, i); },
      [](std::uint64_t seed, Index i) { return generate_addition({}, seed, i); },
      [](std::uint64_t seed, Index i) {
        return generate_addition({4, 4, true}, seed, i);
      }};
  for (const auto& task : tasks) {
    EXPECT_EQ(task(1, 3).text, task(1, 3).text);
    EXPECT_NE(task(1, 3).text, task(2, 3).text);
    EXPECT_NE(task(1, 3).text, task(1, 4).text);
    const TestFolder folder;
    write_generated(folder / "t.jsonl", 300, Exec{.threads = 2}, [&](Index i) { return task(1, i); });
    CorpusReader reader({folder / "t.jsonl"}, {});
    Document document;
    for (Index i = 0; reader.next(document); ++i) {
      ASSERT_EQ(document.text, task(1, i).text);
      ASSERT_EQ(document.answers.size(), task(1, i).answers.size());
    }
    EXPECT_EQ(reader.documents(), 300);
  }
}

TEST(DepthTasks, RefusesImpossibleOptions) {
  EXPECT_THROW(HopOptions{.symbols = 27}.check(), UserError);
  EXPECT_THROW((HopOptions{.symbols = 4, .max_hops = 4}.check()), UserError);
  EXPECT_THROW((HopOptions{.min_hops = 3, .max_hops = 2}.check()), UserError);
  EXPECT_THROW((HopOptions{.symbols = 4, .min_hops = 3, .max_hops = 3, .questions = 5}.check()), UserError);
  EXPECT_THROW(GroupOptions{.group = "s4"}.check(), UserError);
  EXPECT_THROW((GroupOptions{.min_length = 0}.check()), UserError);
  EXPECT_THROW(ReplaceOptions{.symbols = 2}.check(), UserError);
  EXPECT_THROW(ReplaceOptions{.max_depth = 10}.check(), UserError);
  EXPECT_THROW(ReplaceOptions{.questions = 9}.check(), UserError);
  EXPECT_THROW(AdditionOptions{.max_digits = 19}.check(), UserError);
  EXPECT_THROW((AdditionOptions{.min_digits = 5, .max_digits = 4}.check()), UserError);
}

}  // namespace
}  // namespace ddl
