#include "data/json_row.h"

#include <cstddef>
#include <cstdint>

#include "core/json.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxFieldsShown = 20;

class Scanner {
 public:
  explicit Scanner(std::string_view line) : line_(line) {}

  void row(std::string_view field, JsonRow& row) {
    bool found = false;
    const char* wrong_type = nullptr;
    skip_space();
    if (peek() != '{') fail("expected '{', a JSON object");
    object(1, [&](const std::string& name) {
      if (row.fields.size() < kMaxFieldsShown) row.fields.push_back(name);
      const std::size_t begin = position_;
      if (name == field) {
        found = true;
        wrong_type = nullptr;
        if (peek() == '"') {
          row.text.clear();
          string(&row.text);
        } else {
          wrong_type = type_name(peek());
          value(1);
        }
      } else {
        value(1);
      }
      if (name == "answers") row.answers = line_.substr(begin, position_ - begin);
    });
    skip_space();
    if (position_ != line_.size()) fail("something follows the JSON object");
    if (!found) {
      std::string names;
      for (const std::string& name : row.fields) names += (names.empty() ? "" : ", ") + name;
      throw UserError("no field '{}' (found: {}); say which one with --field", field,
                      names.empty() ? "none" : names);
    }
    if (wrong_type) throw UserError("field '{}' is {}, expected a string", field, wrong_type);
  }

 private:
  [[noreturn]] void fail(const char* reason) const {
    throw UserError("not valid JSON at column {}: {}", position_ + 1, reason);
  }
  // 0 at the end: a NUL byte is not valid JSON outside a string anyway, nor inside one.
  char peek() const { return position_ < line_.size() ? line_[position_] : '\0'; }
  void skip_space() {
    while (position_ < line_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n'))
      ++position_;
  }

  static const char* type_name(char first) {
    switch (first) {
      case '{':
        return "an object";
      case '[':
        return "an array";
      case 't':
      case 'f':
        return "true or false";
      case 'n':
        return "null";
      default:
        return "a number";
    }
  }

  // Calls on_value(name) with the position at each value; on_value consumes it.
  template <class F>
  void object(int depth, F&& on_value) {
    if (depth > kMaxJsonDepth) fail("nested too deeply");
    ++position_;
    skip_space();
    if (peek() == '}') {
      ++position_;
      return;
    }
    for (;;) {
      if (peek() != '"') fail("expected '\"', a field's name");
      std::string name;
      string(&name);
      skip_space();
      if (peek() != ':') fail("expected ':'");
      ++position_;
      skip_space();
      on_value(name);
      skip_space();
      if (peek() == '}') break;
      if (peek() != ',') fail("expected ',' or '}'");
      ++position_;
      skip_space();
    }
    ++position_;
  }

  void array(int depth) {
    if (depth > kMaxJsonDepth) fail("nested too deeply");
    ++position_;
    skip_space();
    if (peek() == ']') {
      ++position_;
      return;
    }
    for (;;) {
      value(depth);
      skip_space();
      if (peek() == ']') break;
      if (peek() != ',') fail("expected ',' or ']'");
      ++position_;
      skip_space();
    }
    ++position_;
  }

  void value(int depth) {
    switch (peek()) {
      case '{':
        return object(depth + 1, [&](const std::string&) { value(depth + 1); });
      case '[':
        return array(depth + 1);
      case '"':
        return string(nullptr);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  void word(std::string_view expected) {
    if (line_.substr(position_, expected.size()) != expected) fail("expected a value");
    position_ += expected.size();
  }

  void digits() {
    if (peek() < '0' || peek() > '9') fail("expected a digit");
    while (peek() >= '0' && peek() <= '9') ++position_;
  }

  void number() {
    if (peek() != '-' && (peek() < '0' || peek() > '9')) fail("expected a value");
    if (peek() == '-') ++position_;
    if (peek() == '0')
      ++position_;
    else
      digits();
    if (peek() == '.') ++position_, digits();
    if (peek() == 'e' || peek() == 'E') {
      ++position_;
      if (peek() == '+' || peek() == '-') ++position_;
      digits();
    }
  }

  // A string, unescaped into `out` where that is wanted.
  void string(std::string* out) {
    ++position_;
    for (;;) {
      std::size_t end = position_;  // of a run without escapes, copied at once
      while (end < line_.size() && line_[end] != '"' && line_[end] != '\\' &&
             static_cast<unsigned char>(line_[end]) >= 0x20)
        ++end;
      if (out) out->append(line_, position_, end - position_);
      position_ = end;
      if (position_ == line_.size()) fail("the string does not end");
      if (line_[position_] == '"') break;
      if (line_[position_] != '\\') fail("a control character in a string");
      ++position_;
      escape(out);
    }
    ++position_;
  }

  void escape(std::string* out) {
    const char c = peek();
    const char* const plain = "\"\\/bfnrt";
    const char* const means = "\"\\/\b\f\n\r\t";
    for (int i = 0; plain[i]; ++i)
      if (c == plain[i]) {
        ++position_;
        if (out) *out += means[i];
        return;
      }
    if (c != 'u') fail("an unknown escape in a string");
    ++position_;
    std::uint32_t point = hex4();
    if (point >= 0xd800 && point < 0xdc00 && line_.substr(position_, 2) == "\\u") {
      const std::size_t keep = position_;
      position_ += 2;
      const std::uint32_t low = hex4();
      if (low >= 0xdc00 && low < 0xe000)
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      else
        position_ = keep;  // a character of its own; this half stays alone
    }
    if (point >= 0xd800 && point < 0xe000) point = 0xfffd;
    if (out) append_utf8(point, *out);
  }

  std::uint32_t hex4() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++position_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("expected four hexadecimal digits after \\u");
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  static void append_utf8(std::uint32_t point, std::string& out) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (point < 0x80) {
      put(point);
    } else if (point < 0x800) {
      put(0xc0 | point >> 6), put(0x80 | (point & 63));
    } else if (point < 0x10000) {
      put(0xe0 | point >> 12), put(0x80 | (point >> 6 & 63)), put(0x80 | (point & 63));
    } else {
      put(0xf0 | point >> 18), put(0x80 | (point >> 12 & 63)), put(0x80 | (point >> 6 & 63));
      put(0x80 | (point & 63));
    }
  }

  std::string_view line_;
  std::size_t position_ = 0;
};

}  // namespace

void parse_json_row(std::string_view line, std::string_view field, JsonRow& row) {
  row.text.clear();
  row.answers = {};
  row.fields.clear();
  Scanner(line).row(field, row);
}

}  // namespace ddl
