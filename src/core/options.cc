#include "core/options.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

namespace ddl {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

std::string toml_string(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string describe_node(const toml::node& node) {
  std::ostringstream kind;
  kind << node.type();
  if (node.is_table() || node.is_array())
    return fmt::format("{} {}", node.is_array() ? "an" : "a", kind.str());
  std::ostringstream text;
  node.visit([&](const auto& n) { text << n; });
  return fmt::format("the {} {}", kind.str(), text.str());
}

// Every leaf of the table with its dotted key and its node.
void flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<std::string, const toml::node*>>& out) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* inner = node.as_table())
      flatten(*inner, key + ".", out);
    else
      out.emplace_back(key, &node);
  }
}

std::string place(const std::string& source_name, const toml::source_region& region) {
  if (source_name.starts_with("--")) return source_name;  // an argument has no lines
  return region.begin.line ? fmt::format("{}:{}", source_name, region.begin.line) : source_name;
}

}  // namespace

namespace {

// The candidate with the smallest edit distance, if that is below `limit`.
std::string nearest_below(std::string_view word, const std::vector<std::string>& candidates,
                          std::size_t limit) {
  std::string best;
  std::size_t best_distance = limit;
  for (const std::string& candidate : candidates) {
    std::vector<std::size_t> row(candidate.size() + 1);  // Levenshtein distance, one row at a time
    for (std::size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t replace = diagonal + (word[i] != candidate[j]);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = candidate;
  }
  return best;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  return nearest_below(word, candidates, std::numeric_limits<std::size_t>::max());
}

std::string nearest_alike(std::string_view word, const std::vector<std::string>& candidates) {
  return nearest_below(word, candidates, std::max<std::size_t>(1, word.size() / 3) + 1);
}

Options::Option::Option(std::string key, Target target, std::string description)
    : key_(std::move(key)),
      description_(std::move(description)),
      target_(std::move(target)),
      low_(-std::numeric_limits<double>::infinity()),
      high_(std::numeric_limits<double>::infinity()) {}

Options::Option& Options::Option::range(double low, double high) {
  low_ = low, high_ = high;
  return *this;
}

Options::Option& Options::Option::choices(std::vector<std::string> valid) {
  choices_ = std::move(valid);
  return *this;
}

Options::Option& Options::Option::changes(Changes what) {
  changes_ = what;
  return *this;
}

std::string Options::Option::value() const {
  return std::visit(Overload{[](bool* v) { return std::string(*v ? "true" : "false"); },
                             [](Index* v) { return fmt::format("{}", *v); },
                             [](double* v) -> std::string {
                               // Shortest that reads back equal
                               const std::string text = fmt::format("{}", *v);
                               const bool looks_real = text.find_first_of(".en") != std::string::npos;
                               return looks_real ? text : text + ".0";
                             },
                             [](std::string* v) { return toml_string(*v); },
                             [](const Named& v) { return toml_string(v.get()); }},
                    target_);
}

std::string Options::Option::expected() const {
  if (!choices_.empty()) return fmt::format("one of {}", fmt::join(choices_, ", "));
  const std::string limits = std::isfinite(low_) && std::isfinite(high_)
                                 ? fmt::format(" from {} to {}", low_, high_)
                             : std::isfinite(low_)  ? fmt::format(" of at least {}", low_)
                             : std::isfinite(high_) ? fmt::format(" of at most {}", high_)
                                                    : "";
  return std::visit(Overload{[](bool*) -> std::string { return "true or false"; },
                             [&](Index*) { return "a whole number" + limits; },
                             [&](double*) { return "a number" + limits; },
                             [](std::string*) -> std::string { return "a string"; },
                             [](const Named&) -> std::string { return "a name"; }},
                    target_);
}

Json Options::Option::json() const {
  return std::visit(Overload{[](auto* v) { return Json(*v); }, [](const Named& v) { return Json(v.get()); }},
                    target_);
}

void Options::Option::check(const std::string& where) const {
  const auto refuse = [&] { throw UserError("{}: {} is {}, expected {}", where, key_, value(), expected()); };
  std::visit(
      Overload{[](bool*) {},
               [&](Index* v) {
                 if (static_cast<double>(*v) < low_ || static_cast<double>(*v) > high_) refuse();
               },
               [&](double* v) {
                 if (!(*v >= low_ && *v <= high_)) refuse();  // refuses NaN too
               },
               [&](std::string* v) {
                 if (choices_.empty() || std::find(choices_.begin(), choices_.end(), *v) != choices_.end())
                   return;
                 refuse_choice(*v, where);
               },
               [](const Named&) {}},
      target_);
}

void Options::Option::set_named(const std::string& name, const std::string& where) const {
  if (!std::get<Named>(target_).set(name)) refuse_choice(name, where);
}

void Options::Option::refuse_choice(const std::string& text, const std::string& where) const {
  const std::string near = nearest_alike(text, choices_);
  throw UserError("{}: {} is \"{}\", expected {}{}", where, key_, text, expected(),
                  near.empty() ? "" : fmt::format(" (nearest: {})", near));
}

Options::Option& Options::insert(const std::string& key, Target target, const std::string& description) {
  DDL_CHECK(std::none_of(options_.begin(), options_.end(), [&](const Option& o) { return o.key() == key; }),
            "option {} is listed twice", key);
  return options_.emplace_back(key, std::move(target), description);
}

Options::Option& Options::find(std::string_view key, const std::string& where) {
  std::vector<std::string> keys;
  for (Option& option : options_) {
    if (option.key() == key) return option;
    keys.push_back(option.key());
  }
  if (const std::string* why = why_refused(key)) throw UserError("{}: {} {}", where, key, *why);
  throw UserError("{}: unknown option '{}'; did you mean '{}'?", where, key, nearest(key, keys));
}

bool Options::contains(std::string_view key) const {
  return std::any_of(options_.begin(), options_.end(), [&](const Option& o) { return o.key() == key; });
}

void Options::refuse(std::string key, std::string why) {
  refused_.emplace_back(std::move(key), std::move(why));
}

const std::string* Options::why_refused(std::string_view key) const {
  for (const auto& [refused, why] : refused_)
    if (refused == key) return &why;
  return nullptr;
}

std::optional<std::string> Options::peek(std::string_view toml_text, std::string_view key) {
  try {
    const toml::table table = toml::parse(toml_text);
    return table.at_path(key).value<std::string>();
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::optional<std::string> Options::peek_assignment(std::string_view assignment, std::string_view key) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || assignment.substr(0, equals) != key) return std::nullopt;
  const std::string value(assignment.substr(equals + 1));
  return value.starts_with('"') ? peek(fmt::format("{} = {}", key, value), key) : value;
}

void Options::load_text(std::string_view toml_text, const std::string& source_name, Refused refused) {
  toml::table table;
  try {
    table = toml::parse(toml_text, source_name);
  } catch (const toml::parse_error& error) {
    throw UserError("{}: not valid TOML: {}", place(source_name, error.source()), error.description());
  }
  std::vector<std::pair<std::string, const toml::node*>> leaves;
  flatten(table, "", leaves);

  const std::string before = to_toml();
  try {
    for (const auto& leaf : leaves) {
      const std::string& key = leaf.first;
      const toml::node* node = leaf.second;
      const std::string where = place(source_name, node->source());
      if (refused == Refused::kSkip && why_refused(key)) continue;
      Option& option = find(key, where);
      const auto ill_typed = [&] {
        throw UserError("{}: {} expects {}, found {}", where, key, option.expected(), describe_node(*node));
      };
      std::visit(
          Overload{
              [&](bool* v) { node->is_boolean() ? void(*v = node->as_boolean()->get()) : ill_typed(); },
              [&](Index* v) { node->is_integer() ? void(*v = node->as_integer()->get()) : ill_typed(); },
              [&](double* v) {
                if (node->is_integer())
                  *v = static_cast<double>(node->as_integer()->get());
                else if (node->is_floating_point())
                  *v = node->as_floating_point()->get();
                else
                  ill_typed();
              },
              [&](std::string* v) { node->is_string() ? void(*v = node->as_string()->get()) : ill_typed(); },
              [&](const Named&) {
                node->is_string() ? option.set_named(node->as_string()->get(), where) : ill_typed();
              }},
          option.target_);
      option.check(where);
    }
  } catch (const UserError&) {
    if (toml_text != before) load_text(before, "defaults");
    throw;
  }
}

void Options::load_json(const Json& groups, const std::string& source_name, Refused refused) {
  const std::string before = to_toml();
  try {
    for (const auto& [group, values] : groups.items())
      for (const auto& item : values.items()) {
        const Json& value = item.value();
        const std::string key = group + "." + item.key();
        if (refused == Refused::kSkip && why_refused(key)) continue;
        Option& option = find(key, source_name);
        const bool fits = std::visit(Overload{[&](bool*) { return value.is_boolean(); },
                                              [&](Index*) { return value.is_number_integer(); },
                                              [&](double*) { return value.is_number(); },
                                              [&](std::string*) { return value.is_string(); },
                                              [&](const Named&) { return value.is_string(); }},
                                     option.target_);
        if (!fits)
          throw UserError("{}: {} expects {}, found {}", source_name, option.key(), option.expected(),
                          to_line(value).substr(0, 80));
        std::visit(Overload{[&](auto* v) { value.get_to(*v); },
                            [&](const Named&) { option.set_named(value.get<std::string>(), source_name); }},
                   option.target_);
        option.check(source_name);
      }
  } catch (const UserError&) {
    load_text(before, "defaults");
    throw;
  }
}

void Options::check(const std::string& source_name) const {
  for (const Option& option : options_) option.check(source_name);
}

void Options::set(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw UserError("--set {}: expected key=value, for example --set model.layers=6", assignment);
  const std::string key(assignment.substr(0, equals)), value(assignment.substr(equals + 1));
  const std::string where = fmt::format("--set {}", assignment);
  const Option& option = find(key, where);
  const bool text =
      std::holds_alternative<std::string*>(option.target_) || std::holds_alternative<Named>(option.target_);
  const bool bare_string = text && !value.starts_with('"');
  load_text(fmt::format("{} = {}", key, bare_string ? toml_string(value) : value), where);
}

std::vector<OptionChange> option_changes(const Options& before, const Options& after) {
  std::vector<OptionChange> changes;
  for (const Options::Option& was : before.list())
    for (const Options::Option& is : after.list())
      if (is.key() == was.key() && is.value() != was.value())
        changes.push_back({was.key(), was.value(), is.value(), is.changes()});
  return changes;
}

Json Options::to_json() const {
  Json root = Json::object();
  for (const Option& option : options_) {
    Json* node = &root;
    std::string_view rest = option.key();
    for (std::size_t dot; (dot = rest.find('.')) != std::string_view::npos; rest.remove_prefix(dot + 1))
      node = &(*node)[std::string(rest.substr(0, dot))];
    (*node)[std::string(rest)] = option.json();
  }
  return root;
}

std::string Options::to_toml() const {
  std::string text;
  for (const Option& option : options_) text += fmt::format("{} = {}\n", option.key(), option.value());
  return text;
}

std::string Options::help() const {
  std::size_t key_width = 0, value_width = 0;
  for (const Option& option : options_) {
    key_width = std::max(key_width, option.key().size());
    value_width = std::max(value_width, option.value().size());
  }
  std::string text;
  for (const Option& option : options_)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", option.key(), key_width, option.value(), value_width,
                        option.description());
  return text;
}

}  // namespace ddl
