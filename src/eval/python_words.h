// len(re.split(r"\s+", text)): the number of words as the harness counts them. White space at an end counts
// as if there were an empty word beyond it.
#pragma once

#include <string_view>

#include "core/index.h"

namespace ddl {

class PythonWords {
 public:
  void add(std::string_view piece);  // of one text; cut between characters
  Index count() const { return gaps_ + 1; }

 private:
  Index gaps_ = 0;
  bool in_gap_ = false;
};

}  // namespace ddl
