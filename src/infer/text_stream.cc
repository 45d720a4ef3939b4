#include "infer/text_stream.h"

#include <algorithm>
#include <cstddef>

namespace ddl {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  std::size_t bytes;  // to consume, at least one
  enum { kWhole, kInvalid, kIncomplete } kind;
};

// The character at the front of `text` (not empty), after table 3-7 of the Unicode standard: the lead byte
// says how many follow, and narrows the first of them so that there is one form per character and no
// surrogates.
Character front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, Character::kWhole};
  if (lead < 0xC2 || lead > 0xF4) return {1, Character::kInvalid};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i, low = 0x80, high = 0xBF) {
    if (i == text.size()) return {i, Character::kIncomplete};
    if (byte(i) < low || byte(i) > high) return {i, Character::kInvalid};
  }
  return {length, Character::kWhole};
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

// Removes up to `limit` bytes from what is held, as text.
std::string TextStream::take(std::size_t limit, bool last) {
  std::string text;
  std::size_t at = 0;
  while (at < limit) {
    const std::string_view rest = std::string_view(held_).substr(at, limit - at);
    const Character c = front(rest);
    if (c.kind == Character::kIncomplete && !last) break;
    if (c.kind == Character::kWhole)
      text += rest.substr(0, c.bytes);
    else
      text += kReplacement;
    at += c.bytes;
  }
  held_.erase(0, at);
  return text;
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return "";
  held_ += bytes;
  std::size_t found = std::string::npos;
  for (const std::string& stop : stops_) found = std::min(found, held_.find(stop));
  if (found != std::string::npos) {
    stopped_ = true;
    held_.resize(found);
    return take(found, true);
  }
  // The longest end that may become a stop string.
  std::size_t hold = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) hold = n;
  return take(held_.size() - hold, false);
}

std::string to_valid_utf8(std::string_view bytes) {
  TextStream stream({});
  std::string text = stream.push(bytes);
  return text += stream.finish();
}

std::string TextStream::finish() { return stopped_ ? "" : take(held_.size(), true); }

}  // namespace ddl
