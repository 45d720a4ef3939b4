#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "data/depth_tasks.h"
#include "data/dice.h"
#include "data/option_range.h"

namespace ddl {
namespace {

using GroupElement = std::vector<Index>;  // point -> point

// All permutations of so many points in lexicographic order; the first is the identity.
std::vector<GroupElement> symmetric_group(Index points) {
  GroupElement p(static_cast<std::size_t>(points));
  std::iota(p.begin(), p.end(), Index{0});
  std::vector<GroupElement> group;
  do group.push_back(p);
  while (std::next_permutation(p.begin(), p.end()));
  return group;
}

const std::vector<GroupElement>& group_named(const std::string& name) {
  static const std::vector<GroupElement> s3 = symmetric_group(3), s5 = symmetric_group(5);
  return name == "s3" ? s3 : s5;
}

std::string element_name(Index element, bool two_characters) {
  if (!two_characters) return {static_cast<char>('a' + element)};
  return {static_cast<char>('a' + element / 5), static_cast<char>('1' + element % 5)};
}

}  // namespace

void GroupOptions::check() const {
  if (group != "s3" && group != "s5") throw UserError("--group {}: expected s3 or s5", group);
  check_between("--max-length", max_length, Index{1}, Index{100'000});
  check_between("--min-length", min_length, Index{1}, max_length);
}

GeneratedDocument generate_group(const GroupOptions& options, std::uint64_t seed, Index i) {
  Dice dice(seed, i);
  const std::vector<GroupElement>& group = group_named(options.group);
  const bool two_characters = options.group == "s5";
  const Index length = options.min_length + dice.below(options.max_length - options.min_length + 1);
  GroupElement product = group.front();
  GeneratedDocument document;
  for (Index factor = 0; factor < length; ++factor) {
    const Index element = dice.below(std::ssize(group));
    document.text += element_name(element, two_characters);
    for (Index& point : product) point = group[element][point];
  }
  document.text += '=';
  const Index begin = std::ssize(document.text);
  document.text +=
      element_name(std::lower_bound(group.begin(), group.end(), product) - group.begin(), two_characters);
  document.answers.push_back({begin, std::ssize(document.text)});
  document.text += '\n';
  return document;
}

}  // namespace ddl
