#include <algorithm>
#include <utility>
#include <vector>

#include "data/depth_tasks.h"
#include "data/dice.h"
#include "data/option_range.h"

namespace ddl {

void HopOptions::check() const {
  check_between("--symbols", symbols, Index{2}, Index{26});
  check_between("--max-hops", max_hops, Index{1}, symbols - 1);
  check_between("--min-hops", min_hops, Index{1}, max_hops);
  check_between("--questions", questions, Index{1}, symbols * (max_hops - min_hops + 1));
}

GeneratedDocument generate_hops(const HopOptions& options, std::uint64_t seed, Index i) {
  Dice dice(seed, i);
  const auto letter = [](Index symbol) { return static_cast<char>('a' + symbol); };
  const std::vector<Index> cycle = dice.order(options.symbols);
  const auto after = [&](Index place, Index hops) { return letter(cycle[(place + hops) % options.symbols]); };

  GeneratedDocument document;
  for (const Index place : dice.order(options.symbols))
    document.text += {letter(cycle[place]), '>', after(place, 1), ' '};

  std::vector<std::pair<Index, Index>> asked;  // place on the cycle, hops
  while (std::ssize(asked) < options.questions) {
    const Index place = dice.below(options.symbols);
    const Index hops = options.min_hops + dice.below(options.max_hops - options.min_hops + 1);
    if (std::find(asked.begin(), asked.end(), std::pair{place, hops}) != asked.end()) continue;
    if (!asked.empty()) document.text += ' ';
    asked.emplace_back(place, hops);
    document.text += std::to_string(hops) + letter(cycle[place]) + '?';
    const Index begin = std::ssize(document.text);
    document.text += after(place, hops);
    document.answers.push_back({begin, begin + 1});
  }
  document.text += '\n';
  return document;
}

}  // namespace ddl
