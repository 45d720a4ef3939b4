// Enums whose values have names in files, options and messages. The names stand once, next to the enumerators and in
// their order, and a name that is written wrongly in code does not compile:
//
//   enum class Gate { kLinear, kTwoLayer };
//   constexpr auto names_of(Gate) { return std::array{"linear", "two-layer"}; }
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

template <class E>
concept NamedEnum = requires(E value) {
  names_of(value);
};

template <NamedEnum E>
std::string name_of(E value) {
  return names_of(value).at(static_cast<std::size_t>(value));
}

template <NamedEnum E>
std::vector<std::string> all_names() {
  const auto names = names_of(E());
  return {names.begin(), names.end()};
}

template <NamedEnum E>
std::optional<E> find_named(std::string_view name) {
  const auto names = names_of(E());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace ddl
