// The answer to "is A better than B?".
#pragma once

#include <string_view>

namespace ddl {

enum class Verdict { kBetter, kWorse, kEquivalent, kUndecided };

inline std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kEquivalent:
      return "equivalent";
    case Verdict::kUndecided:
      break;
  }
  return "undecided";
}

}  // namespace ddl
