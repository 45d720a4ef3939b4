#include <algorithm>
#include <vector>

#include "data/depth_tasks.h"
#include "data/dice.h"
#include "data/option_range.h"

namespace ddl {
namespace {

// A permutation that moves every point: drawn until it does, which takes e draws on average.
std::vector<Index> without_fixed_points(Dice& dice, Index points) {
  for (;;) {
    const std::vector<Index> p = dice.order(points);
    Index fixed = 0;
    for (Index x = 0; x < points; ++x) fixed += p[x] == x;
    if (fixed == 0) return p;
  }
}

}  // namespace

void ReplaceOptions::check() const {
  check_between("--symbols", symbols, Index{3}, Index{26});
  check_between("--max-depth", max_depth, Index{1}, Index{9});
  check_between("--min-depth", min_depth, Index{1}, max_depth);
  check_between("--questions", questions, Index{1}, symbols);
}

GeneratedDocument generate_replace(const ReplaceOptions& options, std::uint64_t seed, Index i) {
  Dice dice(seed, i);
  const auto letter = [](Index symbol) { return static_cast<char>('a' + symbol); };
  const Index depth = options.min_depth + dice.below(options.max_depth - options.min_depth + 1);
  std::vector<std::vector<Index>> permutations;
  std::vector<Index> image, askable;  // of each symbol under all permutations; symbols that do not come back
  do {
    permutations.clear();
    for (Index p = 0; p < depth; ++p) permutations.push_back(without_fixed_points(dice, options.symbols));
    image.clear();
    askable.clear();
    for (Index symbol = 0; symbol < options.symbols; ++symbol) {
      Index x = symbol;
      for (const std::vector<Index>& p : permutations) x = p[x];
      image.push_back(x);
      if (x != symbol) askable.push_back(symbol);
    }
  } while (std::ssize(askable) < options.questions);

  GeneratedDocument document;
  for (const Index arrow : dice.order(depth * options.symbols)) {
    const Index p = arrow / options.symbols, symbol = arrow % options.symbols;
    document.text += {static_cast<char>('1' + p), letter(symbol), letter(permutations[p][symbol]), ' '};
  }
  const std::vector<Index> order = dice.order(std::ssize(askable));
  for (Index question = 0; question < options.questions; ++question) {
    const Index symbol = askable[order[question]];
    if (question > 0) document.text += ' ';
    document.text += {letter(symbol), '?'};
    const Index begin = std::ssize(document.text);
    document.text += letter(image[symbol]);
    document.answers.push_back({begin, begin + 1});
  }
  document.text += '\n';
  return document;
}

}  // namespace ddl
