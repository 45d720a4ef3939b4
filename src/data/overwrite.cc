#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/index.h"
#include "data/dice.h"
#include "data/generated_corpus.h"
#include "data/option_range.h"

namespace ddl {
namespace {

constexpr Index kLetters = 26;
constexpr Index kMany = 1'000'000;  // the largest number of statements and of values

std::string key_name(Index key) {
  const auto letter = [](Index i) { return static_cast<char>('a' + i); };
  if (key < kLetters) return {letter(key)};
  return {letter((key - kLetters) / kLetters), letter((key - kLetters) % kLetters)};
}

}  // namespace

void OverwriteOptions::check() const {
  check_between("--statements", statements, Index{2}, kMany);
  check_between("--keys", keys, Index{1}, kLetters + kLetters * kLetters);
  check_between("--values", values, Index{2}, kMany);
  check_between("--overwrite-rate", overwrite_rate, 0.0, 1.0);
  check_between("--query-rate", query_rate, 0.0, 1.0);
}

GeneratedDocument generate_overwrite(const OverwriteOptions& options, std::uint64_t seed, Index i) {
  Dice dice(seed, i);
  GeneratedDocument episode;
  std::vector<Index> unused;  // keys without a value yet
  for (Index k = 0; k < options.keys; ++k) unused.push_back(k);
  std::vector<Index> used;
  std::vector<Index> value(static_cast<std::size_t>(options.keys), -1);

  for (Index s = 0; s < options.statements; ++s) {
    if (s > 0) episode.text += ' ';
    const bool no_assignment_left = unused.empty() && options.overwrite_rate == 0;
    const bool last = s == options.statements - 1;
    if (!used.empty() && (last || no_assignment_left || dice.chance(options.query_rate))) {
      const Index key = dice.pick(used);
      episode.text += key_name(key) + "?";
      const Index begin = std::ssize(episode.text);
      episode.text += std::to_string(value[key]);
      episode.answers.push_back({begin, std::ssize(episode.text)});
      continue;
    }
    Index key = 0;
    if (!used.empty() && (unused.empty() || dice.chance(options.overwrite_rate))) {
      key = dice.pick(used);
      // One of the other values, so that every overwrite is one.
      value[key] = (value[key] + 1 + dice.below(options.values - 1)) % options.values;
    } else {
      const Index at = dice.below(std::ssize(unused));
      key = unused[at];
      unused.erase(unused.begin() + at);
      used.push_back(key);
      value[key] = dice.below(options.values);
    }
    episode.text += key_name(key) + "=" + std::to_string(value[key]);
  }
  episode.text += '\n';
  return episode;
}

}  // namespace ddl
