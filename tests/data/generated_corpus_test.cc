// Generated corpora: answers are true of the text. A reader of its own follows each story from its sentences
// alone and must come to the same answers; it knows the words, but nothing of how the generator works.
#include "data/generated_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/regex.h"
#include "data/story_words.h"
#include "test_folder.h"

namespace ddl {
namespace {

// Follows a story: one call per sentence, in order.
class Reader {
 public:
  Reader() {
    for (const auto& [name, girl] : story::kNames) girl_[std::string(name)] = girl;
  }

  void read(const std::string& sentence) {
    std::vector<std::string> m;
    std::size_t found_at = 0;
    const auto find = [&](const std::string& pattern) {
      static std::map<std::string, Regex> compiled;  // compiling takes longer than searching
      const auto found = compiled.try_emplace(pattern, pattern).first->second.search(sentence);
      if (found) m = found->groups, found_at = found->begin;
      return found.has_value();
    };
    if (find("but it was too far|dreamed of|thought about|Once I had|The road to|never been so")) return;
    // Who it is about: the first name, or the one before where the sentence says she or he.
    std::string actor;
    if (find("said ([A-Z][a-z]+)[,.]") && girl_.count(m[1])) {
      actor = m[1];
    } else if (find("so ([A-Z][a-z]+) gave it")) {
      actor = m[1];
    } else {
      const std::size_t name_at = first_name(sentence, actor);
      if (find("\\b([Ss]he|[Hh]e)\\b") && found_at < name_at) actor = last_;
    }
    if (!actor.empty()) last_ = actor;
    std::string thing = last_thing_;
    if (const auto named = things_in(sentence); !named.empty()) thing = named.front();

    if (find("(?:In the|in the) ([a-z]+) (?:there was|stood) an? (?:old |big "
             ")?(box|basket|bag|chest|bucket|drawer|sack|jar)\\b")) {
      return;  // where a container stands is never asked
    }
    if (find("There was a (box|basket|bag|chest|bucket|drawer|sack|jar) in the")) return;
    static const std::string colors = "(red|blue|green|yellow|white|black|pink|brown)";
    if (find(("^In the ([a-z]+) there was a (?:little )?" + colors + " ([a-z]+)"))) {
      where_[m[3]] = m[1], color_[m[3]] = m[2];
      return;
    }
    if (find(("[Aa] (?:little )?" + colors + " ([a-z]+) (?:was|lay)? ?in the ([a-z]+)"))) {
      where_[m[2]] = m[3], color_[m[2]] = m[1];
      return;
    }
    if (find(("(?:had|was holding) a (?:little )?" + colors + " ([a-z]+)")) && !actor.empty()) {
      hold(m[2], actor), color_[m[2]] = m[1];
      return;
    }
    if (find("painted (?:it|the [a-z]+) ([a-z]+)\\.")) {
      color_[thing] = m[1];
    } else if (find("Now ([A-Z][a-z]+) had the ([a-z]+) and ([A-Z][a-z]+) had the ([a-z]+)")) {
      hold(m[2], m[1]), hold(m[4], m[3]);
    } else if (find("traded with ([A-Z][a-z]+): [A-Z][a-z]+ got the ([a-z]+) and ([A-Z][a-z]+) got the "
                    "([a-z]+)")) {
      hold(m[2], m[1]), hold(m[4], m[3]);
    } else if (find("gave the ([a-z]+) to ([A-Z][a-z]+) and got the ([a-z]+) for it")) {
      hold(m[1], m[2]), hold(m[3], actor);
    } else if (find("([A-Z][a-z]+) asked for the ([a-z]+), so")) {
      hold(m[2], m[1]);
    } else if (find("for you, ([A-Z][a-z]+),\" said")) {
      hold(thing, m[1]);
    } else if (find("(?:gave|handed) (?:it|the [a-z]+) to ([A-Z][a-z]+)") || find("gave ([A-Z][a-z]+) the")) {
      hold(thing, m[1]);
    } else if (find("(?:out of the|took out the|picked up|picked it up|took it|took the|and took)")) {
      hold(thing, actor);
    } else if (find("(?:put|hid|dropped) (?:it|the [a-z]+) in(?:to)? the ([a-z]+)") ||
               find("left (?:it|the [a-z]+) in the ([a-z]+)")) {
      put(thing, m[1]);
    } else if (find("opened the ([a-z]+) and put")) {
      put(thing, m[1]);
    } else if (find("put (?:it|the [a-z]+) (?:down|on the ground)|left (?:it|the [a-z]+) there")) {
      put(thing, place_[actor]);
    } else if (find("(?:went|walked|ran|hurried off|skipped over|going|carried (?:it|the [a-z]+)) to the "
                    "([a-z]+)")) {
      place_[actor] = m[1];
    } else if (find("([A-Z][a-z]+|[Ss]he|[Hh]e) was in the ([a-z]+)")) {
      place_[girl_.count(m[1]) ? m[1] : actor] = m[2];
    } else if (find("(?:felt|was very|was|I am) (happy|sad|tired|hungry|proud|sleepy|cold|brave)\\b") &&
               !actor.empty()) {
      feeling_[actor] = m[1];
    }
    last_thing_ = thing;
  }

  std::string answer(const std::string& kind, const std::string& about) const {
    const auto get = [](const auto& map, const std::string& key) {
      return map.count(key) ? map.at(key) : std::string("?");
    };
    if (kind == "place") return get(place_, about);
    if (kind == "feeling") return get(feeling_, about);
    if (kind == "color") return get(color_, about);
    if (kind == "holder") return holder_.count(about) ? holder_.at(about) : "Nobody";
    return get(where_, about);
  }

  static std::vector<std::string> things_in(const std::string& text) {
    std::vector<std::string> found;
    static const Regex pattern("the ([a-z]+)");
    for (auto word = pattern.search(text); word; word = pattern.search(text, word->end))
      if (std::find(story::kThings.begin(), story::kThings.end(), word->groups[1]) != story::kThings.end())
        found.push_back(word->groups[1]);
    return found;
  }

 private:
  std::size_t first_name(const std::string& sentence, std::string& name) const {
    std::size_t best = std::string::npos;
    for (const auto& [candidate, girl] : girl_) {
      const std::size_t at = sentence.find(candidate);
      if (at < best) best = at, name = candidate;
    }
    return best;
  }
  void hold(const std::string& thing, const std::string& person) {
    holder_[thing] = person, where_.erase(thing);
  }
  void put(const std::string& thing, const std::string& place) {
    where_[thing] = place, holder_.erase(thing);
  }

  std::map<std::string, bool> girl_;
  std::map<std::string, std::string> place_, feeling_, color_, holder_, where_;
  std::string last_, last_thing_;
};

// Each question of a story with the answer given and the one the reader finds.
struct Checked {
  std::string kind, given, found, sentence;
};

std::vector<Checked> check(const GeneratedDocument& story) {
  Reader reader;
  std::vector<Checked> checked;
  std::size_t next_answer = 0, begin = 0;
  std::string previous;
  while (begin < story.text.size()) {
    // A sentence ends at . ! or ? that no quotation mark follows; dialogue stays with its "said".
    std::size_t end = begin;
    while (end < story.text.size() &&
           !(std::string_view(".!?\n").find(story.text[end]) != std::string_view::npos &&
             (end + 1 == story.text.size() || story.text[end + 1] != '"')))
      ++end;
    end = std::min(end + 1, story.text.size());
    const std::string sentence = story.text.substr(begin, end - begin);
    if (next_answer < story.answers.size() && story.answers[next_answer].begin < static_cast<Index>(end)) {
      const ByteSpan span = story.answers[next_answer++];
      const std::string given = story.text.substr(span.begin, span.end - span.begin);
      const auto things = Reader::things_in(previous);
      std::string kind, about;
      if (!things.empty()) {
        about = things.front();
        const auto is = [&](const auto& words) {
          return std::find(words.begin(), words.end(), given) != words.end();
        };
        const bool person = given == "Nobody" || std::any_of(story::kNames.begin(), story::kNames.end(),
                                                             [&](const auto& n) { return n.name == given; });
        kind = person ? "holder" : is(story::kColors) ? "color" : "where";
      } else {
        for (const auto& [name, girl] : story::kNames)
          if (contains(previous, name)) about = name;
        kind = std::find(story::kFeelings.begin(), story::kFeelings.end(), given) != story::kFeelings.end()
                   ? "feeling"
                   : "place";
      }
      checked.push_back({kind, given, reader.answer(kind, about), previous + sentence});
    } else {
      const std::size_t first = sentence.find_first_not_of(" \n");
      if (first != std::string::npos) {
        previous = sentence.substr(first);
        if (!contains(previous, "asked ") && !contains(previous, "looking for") &&
            !contains(previous, "can not find") && !contains(previous, "wanted to know") &&
            !contains(previous, " looked at the ") && previous.find('?') == std::string::npos)
          reader.read(previous);
        else if (contains(previous, "asked for"))
          reader.read(previous);
      }
    }
    begin = end;
  }
  EXPECT_EQ(next_answer, story.answers.size());
  return checked;
}

TEST(Stories, AnswersFollowFromTheText) {
  std::map<std::string, int> kinds;
  int wrong = 0, total = 0;
  for (Index i = 0; i < 1000; ++i) {
    const GeneratedDocument story = generate_story(7, i);
    for (const Checked& c : check(story)) {
      ++kinds[c.kind];
      ++total;
      if (c.given != c.found && ++wrong < 5)
        ADD_FAILURE() << c.sentence << "\nfound " << c.found << "\n" << story.text;
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << total;
  for (const char* kind : {"where", "holder", "color", "place", "feeling"})
    EXPECT_GT(kinds[kind], 100) << kind;
}

TEST(Stories, TheReaderNoticesAWrongAnswer) {
  GeneratedDocument story = generate_story(7, 3);
  const ByteSpan last = story.answers.back();
  story.text.replace(static_cast<std::size_t>(last.begin), static_cast<std::size_t>(last.end - last.begin),
                     std::string(static_cast<std::size_t>(last.end - last.begin), 'x'));
  const auto checked = check(story);
  EXPECT_NE(checked.back().given, checked.back().found);
}

// The same question has many answers, none of them mostly right: a template alone does not give it away.
TEST(Stories, QuestionsDoNotGiveAwayTheirAnswers) {
  std::map<std::string, std::map<std::string, int>> answers;
  std::map<std::string, int> words;
  std::set<std::string> texts;
  Index latest_wrong = 0, place_questions = 0;
  const int stories = 4000;
  for (Index i = 0; i < stories; ++i) {
    const GeneratedDocument story = generate_story(1, i);
    texts.insert(story.text);
    ASSERT_GE(story.answers.size(), 2u);
    for (const ByteSpan& span : story.answers) {
      const std::string given = story.text.substr(span.begin, span.end - span.begin);
      const std::string before = story.text.substr(0, span.begin);
      const std::size_t line = before.rfind('\n') + 1;
      ++answers[before.substr(line).substr(0, 8)][given];
      if (std::find(story::kPlaces.begin(), story::kPlaces.end(), given) == story::kPlaces.end()) continue;
      // Naming the place the story spoke of last must not be good enough.
      std::size_t latest = 0;
      std::string latest_place;
      for (const auto place : story::kPlaces)
        if (const std::size_t at = before.rfind(place); at != std::string::npos && at > latest)
          latest = at, latest_place = place;
      ++place_questions;
      latest_wrong += latest_place != given;
    }
    std::string word;
    for (const char c : story.text) {
      if (std::isalpha(static_cast<unsigned char>(c)))
        word += static_cast<char>(std::tolower(c));
      else if (!word.empty())
        ++words[word], word.clear();
    }
  }
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(stories));
  for (const char* question : {"Where is", "Who has ", "What col", "How does"}) {
    int total = 0, most = 0;
    for (const auto& [answer, count] : answers[question]) total += count, most = std::max(most, count);
    EXPECT_GT(answers[question].size(), 7u) << question;
    EXPECT_GT(total, 100) << question;
    EXPECT_LT(most, 0.3 * total) << question;
  }
  EXPECT_GT(static_cast<double>(latest_wrong), 0.3 * static_cast<double>(place_questions));
  EXPECT_LT(words.size(), 400u) << "a small model should learn them all";
  EXPECT_GT(words.size(), 150u);
}

TEST(Stories, AreFunctionsOfSeedAndNumber) {
  EXPECT_EQ(generate_story(1, 5).text, generate_story(1, 5).text);
  EXPECT_NE(generate_story(1, 5).text, generate_story(2, 5).text);
  EXPECT_NE(generate_story(1, 5).text, generate_story(1, 6).text);
  for (Index i = 0; i < 200; ++i) {
    const std::string text = generate_story(3, i).text;
    EXPECT_EQ(text.back(), '\n');
    EXPECT_FALSE(contains(text, "{") || contains(text, "  ") || contains(text, " .")) << text;
    EXPECT_FALSE(contains(text, "\" S") || contains(text, "\" A")) << text;  // ?" asked, not ?" Asked
  }
}

// Answers and properties of an episode, from its text alone.
TEST(Overwrite, AnswersAreTheLatestValues) {
  for (const auto& options :
       {OverwriteOptions{},
        OverwriteOptions{
            .statements = 200, .keys = 100, .values = 1000, .overwrite_rate = 0.9, .query_rate = 0.1},
        OverwriteOptions{.statements = 12, .keys = 3, .overwrite_rate = 0},
        OverwriteOptions{.statements = 50, .keys = 1, .values = 2, .query_rate = 0.5}}) {
    options.check();
    Index overwrites = 0, assignments = 0, queries = 0;
    for (Index i = 0; i < 200; ++i) {
      const GeneratedDocument episode = generate_overwrite(options, 1, i);
      std::map<std::string, std::string> value;
      Index statements = 0;
      std::size_t next = 0, at = 0;
      std::istringstream in(episode.text);
      for (std::string word; in >> word; at += word.size() + 1, ++statements) {
        const std::size_t op = word.find_first_of("=?");
        ASSERT_NE(op, std::string::npos);
        const std::string key = word.substr(0, op), given = word.substr(op + 1);
        if (word[op] == '=') {
          ++assignments;
          if (value.count(key)) {
            ++overwrites;
            EXPECT_NE(value[key], given);
          }
          value[key] = given;
        } else {
          ++queries;
          ASSERT_EQ(value[key], given) << episode.text;
          ASSERT_LT(next, episode.answers.size());
          EXPECT_EQ(episode.answers[next].begin, static_cast<Index>(at + op + 1));
          EXPECT_EQ(episode.answers[next++].end, static_cast<Index>(at + word.size()));
        }
        EXPECT_TRUE(statements < options.statements - 1 || word[op] == '?');
      }
      EXPECT_EQ(next, episode.answers.size());
      EXPECT_EQ(statements, options.statements);
      EXPECT_LE(std::ssize(value), options.keys);
    }
    if (options.overwrite_rate == 0) {
      EXPECT_EQ(overwrites, 0);
    }
    if (options.keys == 100) {
      EXPECT_NEAR(static_cast<double>(overwrites) / static_cast<double>(assignments), 0.9, 0.02);
    }
    if (options.overwrite_rate > 0) {
      EXPECT_NEAR(static_cast<double>(queries) / (200.0 * static_cast<double>(options.statements)),
                  options.query_rate, 0.05);
    }
  }
  EXPECT_THROW(OverwriteOptions{.keys = 0}.check(), UserError);
  EXPECT_THROW(OverwriteOptions{.overwrite_rate = 1.5}.check(), UserError);
}

TEST(Generate, WritesRowsTheCorpusReads) {
  const TestFolder folder;
  write_generated(folder / "s.jsonl", 5000, Exec{.threads = 3}, [](Index i) { return generate_story(1, i); });
  write_generated(folder / "t.jsonl", 5000, Exec{.threads = 1}, [](Index i) { return generate_story(1, i); });
  EXPECT_TRUE(contents_of(folder / "s.jsonl") == contents_of(folder / "t.jsonl"));
  CorpusReader reader({folder / "s.jsonl"}, {});
  Document document;
  for (Index i = 0; reader.next(document); ++i) {
    const GeneratedDocument expected = generate_story(1, i);
    ASSERT_EQ(document.text, expected.text);
    ASSERT_EQ(document.answers.size(), expected.answers.size());
    for (std::size_t a = 0; a < expected.answers.size(); ++a)
      ASSERT_EQ(document.answers[a].begin, expected.answers[a].begin);
  }
  EXPECT_EQ(reader.documents(), 5000);
}

}  // namespace
}  // namespace ddl
