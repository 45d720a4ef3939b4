// Configuration: every option is listed once, with its key, its default (the member's initialiser), its
// description and its valid range. That list drives TOML files, --set key=value, help, the printed table and
// the stored JSON.
//
//   struct ModelConfig {
//     Index layers = 12;
//     std::string residual = "ddl-cc";
//     Precision precision = Precision::kAuto;  // an enum whose values have names (core/named_enum.h)
//     void describe(Options& o) {
//       o.add("model.layers", layers, "Transformer blocks").range(1, 1000);
//       o.add("model.residual", residual, "residual rule").choices(rule_names());
//       o.add("model.precision", precision, "GEMM inputs");
//     }
//   };
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "core/named_enum.h"
#include "core/record.h"

namespace ddl {

class Options {
 public:
  // A field of an enum type, as text.
  struct Named {
    std::function<std::string()> get;
    std::function<bool(const std::string&)> set;  // false: no value has this name
  };
  using Target = std::variant<bool*, Index*, double*, std::string*, Named>;
  // What another value changes: anything; where new weights start, and nothing in a model that has its weights; or how
  // the same thing is computed, which is bits at most.
  enum class Changes { kAnything, kStart, kComputing };

  class Option {
   public:
    Option(std::string key, Target target, std::string description);
    Option& range(double low, double high);  // numbers: both ends allowed
    Option& choices(std::vector<std::string> valid);
    Option& changes(Changes what);

    const std::string& key() const { return key_; }
    const std::string& description() const { return description_; }
    std::string value() const;     // as TOML text
    std::string expected() const;  // "a whole number from 1 to 1000"
    Json json() const;
    Changes changes() const { return changes_; }

   private:
    friend class Options;
    void check(const std::string& where) const;
    void set_named(const std::string& name, const std::string& where) const;
    [[noreturn]] void refuse_choice(const std::string& text, const std::string& where) const;
    std::string key_, description_;
    Target target_;
    double low_, high_;
    std::vector<std::string> choices_;
    Changes changes_ = Changes::kAnything;
  };

  Option& add(std::string key, bool& field, std::string description) {
    return insert(key, &field, description);
  }
  Option& add(std::string key, Index& field, std::string description) {
    return insert(key, &field, description);
  }
  Option& add(std::string key, double& field, std::string description) {
    return insert(key, &field, description);
  }
  Option& add(std::string key, std::string& field, std::string description) {
    return insert(key, &field, description);
  }
  template <NamedEnum E>
  Option& add(std::string key, E& field, std::string description) {
    const auto get = [&field] { return name_of(field); };
    const auto set = [&field](const std::string& name) {
      const std::optional<E> value = find_named<E>(name);
      if (value) field = *value;
      return value.has_value();
    };
    return insert(key, Named{get, set}, description).choices(all_names<E>());
  }

  // A key that exists, but not here: with a choice that was not made (core/option_set.h). `why` follows the
  // key in the message.
  void refuse(std::string key, std::string why);

  // All of them throw UserError on an unknown key (naming the nearest valid one), a wrong type or a value out
  // of range. A failed load changes nothing.
  enum class Refused { kThrow, kSkip };  // what to do with a key that refuse() names
  void load_text(std::string_view toml, const std::string& source_name, Refused refused = Refused::kThrow);
  // Of the form to_json() gives.
  void load_json(const Json& groups, const std::string& source_name, Refused refused = Refused::kThrow);
  void set(std::string_view assignment);  // "key=value", as in TOML; quotes around a string may be left out

  // What a TOML text, or "key=value", gives to an option with a string value, before there is a list to load
  // it into: for choices on which the list depends. Nothing where it does not say, or says it wrongly;
  // loading it says what is wrong.
  static std::optional<std::string> peek(std::string_view toml, std::string_view key);
  static std::optional<std::string> peek_assignment(std::string_view assignment, std::string_view key);

  void check(const std::string& source_name) const;  // every range; for values that were set directly

  const std::vector<Option>& list() const { return options_; }
  bool contains(std::string_view key) const;
  Json to_json() const;         // {"model": {"layers": 12, ...}, ...}
  std::string to_toml() const;  // the resolved configuration: load_text(to_toml()) restores it
  std::string help() const;     // key, value, description; one line each

 private:
  Option& insert(const std::string& key, Target target, const std::string& description);
  Option& find(std::string_view key, const std::string& where);
  const std::string* why_refused(std::string_view key) const;  // null where it is not
  std::vector<Option> options_;
  std::vector<std::pair<std::string, std::string>> refused_;  // key, why
};

// Options of both lists whose values differ, in the order of the first. An option that only one of them has
// belongs to a choice in which they differ, and that choice is listed.
struct OptionChange {
  std::string key, before, after;  // values as TOML text
  Options::Changes changes = Options::Changes::kAnything;
};
std::vector<OptionChange> option_changes(const Options& before, const Options& after);

// The candidate with the smallest edit distance to `word` ("" where there is none).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// That, where it is alike: no more than a third of the letters of `word` are wrong, or one. "" elsewhere.
std::string nearest_alike(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddl
