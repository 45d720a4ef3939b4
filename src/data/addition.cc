#include <cstdint>
#include <string>

#include "data/depth_tasks.h"
#include "data/dice.h"
#include "data/option_range.h"

namespace ddl {
namespace {

constexpr Index kMostDigits = 18;  // the sum of two such numbers fits into an Index

// With exactly so many digits; a single digit may be 0.
Index number_of(Dice& dice, Index digits) {
  Index low = 1;
  for (Index d = 1; d < digits; ++d) low *= 10;
  if (digits == 1) return dice.below(10);
  return low + dice.below(9 * low);
}

std::string with_zeros(Index number, Index digits) {
  const std::string plain = std::to_string(number);
  return std::string(static_cast<std::size_t>(digits) - plain.size(), '0') + plain;
}

}  // namespace

void AdditionOptions::check() const {
  check_between("--max-digits", max_digits, Index{1}, kMostDigits);
  check_between("--min-digits", min_digits, Index{1}, max_digits);
}

GeneratedDocument generate_addition(const AdditionOptions& options, std::uint64_t seed, Index i) {
  Dice dice(seed, i);
  const auto draw = [&] {
    return number_of(dice, options.min_digits + dice.below(options.max_digits - options.min_digits + 1));
  };
  const auto written = [&](Index number, Index digits) {
    return options.padded ? with_zeros(number, digits) : std::to_string(number);
  };
  const Index a = draw(), b = draw();
  GeneratedDocument document;
  document.text = written(a, options.max_digits) + '+' + written(b, options.max_digits) + '=';
  const Index begin = std::ssize(document.text);
  document.text += written(a + b, options.max_digits + 1);
  document.answers.push_back({begin, std::ssize(document.text)});
  document.text += '\n';
  return document;
}

}  // namespace ddl
