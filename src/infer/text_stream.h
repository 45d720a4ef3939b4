// Bytes of tokens in, text out that can be shown at once: valid UTF-8 at every moment (a character whose
// bytes have not all come is held back, bytes that are no character become U+FFFD), and no part of a stop
// string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddl {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops);  // empty ones are ignored

  // The text that is certain now.
  std::string push(std::string_view bytes);
  // What was held back, at the end.
  std::string finish();
  // Whether a stop string has come; it and what follows are dropped.
  bool stopped() const { return stopped_; }

 private:
  std::string take(std::size_t limit, bool last);
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// Any bytes as valid UTF-8, replaced in the same way.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace ddl
