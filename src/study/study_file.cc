#include "study/study_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/json_fields.h"
#include "core/options.h"
#include "core/toml.h"
#include "io/file.h"
#include "io/sha256.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

constexpr Index kMany = 1'000'000'000'000'000;  // of tokens or seeds: sums of a few must not overflow

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

// What a study decides for each trial cannot be a setting of its own.
void check_settings(const std::vector<std::string>& settings, const std::string& path) {
  for (const std::string& setting : settings)
    for (const char* own :
         {"train.lr", "train.seed", "train.steps", "train.patience", "model.output_std_factor", "eval.every"})
      if (setting.starts_with(std::string(own) + "="))
        throw UserError(
            "{}: the setting '{}' is the study's to choose; use rates, rate, scales, tuning_seeds or tokens",
            path, setting);
}

// One table of the file. Every key is asked for by name; what was not asked for is refused at the end.
class Table {
 public:
  Table(const JsonFields& fields, const Json& json, std::string where)
      : fields_(fields), json_(json), where_(std::move(where)) {}

  bool has(const std::string& key) {
    known_.insert(key);
    return fields_.has(key);
  }
  std::string text(const std::string& key) { return has(key) ? fields_.text(key) : missing(key); }
  std::string text(const std::string& key, const std::string& fallback) {
    return has(key) ? fields_.text(key) : fallback;
  }
  double number(const std::string& key, double fallback) { return has(key) ? fields_.number(key) : fallback; }
  Index whole(const std::string& key, Index fallback) {
    return has(key) ? fields_.whole(key, 0, kMany) : fallback;
  }
  bool flag(const std::string& key) {
    if (!has(key)) return false;
    if (!json_[key].is_boolean()) fields_.refuse(key, "true or false");
    return json_[key];
  }
  std::vector<std::string> texts(const std::string& key) {
    return list<std::string>(key, "a list of texts", [](const Json& item) { return item.is_string(); });
  }
  std::vector<double> numbers(const std::string& key) {
    return list<double>(key, "a list of numbers above 0",
                        [](const Json& item) { return item.is_number() && is_positive(item.get<double>()); });
  }
  std::vector<Index> wholes(const std::string& key) {
    return list<Index>(key, "a list of whole numbers, 0 or more",
                       [](const Json& item) { return item.is_number_integer() && item.get<Index>() >= 0; });
  }
  std::vector<Table> tables(const std::string& key) {
    std::vector<Table> all;
    if (!has(key)) return all;
    const auto fields = fields_.objects(key);
    for (std::size_t i = 0; i < fields.size(); ++i)
      all.emplace_back(fields[i], json_[key][i], fmt::format("{}[{}].", key, i));
    return all;
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) {
    fields_.refuse(key, expected);
  }
  void expect_nothing_else(const std::string& file) const {
    for (const auto& [key, value] : json_.items())
      if (!known_.contains(key))
        throw UserError("{}: {}{} is not a key of a study; known here: {}", file, where_, key,
                        fmt::join(known_, ", "));
  }

 private:
  template <class T, class IsRight>
  std::vector<T> list(const std::string& key, const std::string& expected, IsRight&& is_right) {
    if (!has(key)) return {};
    const Json& items = json_[key];
    if (!items.is_array() || !std::all_of(items.begin(), items.end(), is_right))
      fields_.refuse(key, expected);
    return items.template get<std::vector<T>>();
  }
  std::string missing(const std::string& key) { return fields_.text(key); }  // which throws

  JsonFields fields_;
  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
};

// Ascending, each the same factor above the one before.
void check_rates(const std::vector<double>& rates, const std::string& where) {
  if (rates.size() < 3)
    throw UserError("{}: {} learning rates, expected at least 3: with fewer the best cannot lie inside",
                    where, rates.size());
  const double factor = rates[1] / rates[0];
  for (std::size_t i = 1; i < rates.size(); ++i)
    if (factor <= 1.01 || std::abs(rates[i] / rates[i - 1] / factor - 1) > 0.01)
      throw UserError("{}: learning rates must rise by one factor, found {}", where, fmt::join(rates, ", "));
}

template <class Item>
const Item& named(const std::vector<Item>& items, const std::string& name, const char* what) {
  for (const Item& item : items)
    if (item.name == name) return item;
  throw UserError("the study has no {} '{}'", what, name);
}

template <class Item>
void expect_unique_names(const std::vector<Item>& items, const std::string& path, const char* what) {
  std::set<std::string> names;
  for (const Item& item : items)
    if (!names.insert(item.name).second)
      throw UserError("{}: two {}s are called '{}'", path, what, item.name);
}

// A name is part of the names of folders and records.
void check_name(const std::string& name, const std::string& path) {
  const bool plain = !name.empty() && name.size() <= 60 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!plain)
    throw UserError("{}: the name '{}' is not made of 1 to 60 letters, digits and '-'", path,
                    name.substr(0, 80));
}

void read_arms(Study& study, Table& file) {
  for (Table& table : file.tables("arm")) {
    Arm arm{table.text("name"), table.texts("settings"), std::nullopt};
    check_name(arm.name, study.path);
    if (table.has("rate")) arm.rate = table.number("rate", 0);
    if (arm.rate && !is_positive(*arm.rate)) table.refuse("rate", "a number above 0");
    check_settings(arm.settings, study.path);
    table.expect_nothing_else(study.path);
    study.arms.push_back(std::move(arm));
  }
  expect_unique_names(study.arms, study.path, "arm");
}

// "; did you mean 'x'?" where one of the names is alike; otherwise `else_`.
std::string meant(const std::string& name, const std::vector<std::string>& names, const std::string& else_) {
  const std::string near = nearest_alike(name, names);
  return near.empty() ? else_ : fmt::format("; did you mean '{}'?", near);
}

void expect_arm(const Study& study, const StudyQuestion& question, const std::string& name) {
  std::vector<std::string> names;
  for (const Arm& arm : study.arms) names.push_back(arm.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UserError("{}: the question '{}' compares {} with {}, but no arm is called '{}'{}", study.path,
                    question.text, question.a, question.b, name,
                    meant(name, names, fmt::format("; the arms are {}", fmt::join(names, ", "))));
}

// An arm that is not described is the rule of that name.
void add_arm(Study& study, const std::string& name, const std::string& where) {
  for (const Arm& arm : study.arms)
    if (arm.name == name) return;
  const auto rules = rule_names();
  if (std::find(rules.begin(), rules.end(), name) == rules.end())
    throw UserError("{}: {} names the arm '{}', which is neither an [[arm]] nor a residual rule ({}){}",
                    study.path, where, name, fmt::join(rules, ", "), meant(name, rules, ""));
  study.arms.push_back({name, {"model.residual=" + name}, std::nullopt});
}

void read_sizes(Study& study, Table& file) {
  const std::vector<double> rates = file.numbers("rates");
  for (Table& table : file.tables("size")) {
    StudySize size;
    size.name = table.text("name");
    check_name(size.name, study.path);
    size.settings = table.texts("settings");
    check_settings(size.settings, study.path);
    size.tokens = table.wholes("tokens");
    size.arms = table.texts("arms");
    size.rates = table.has("rates") ? table.numbers("rates") : rates;
    table.expect_nothing_else(study.path);
    const std::string where = fmt::format("size {}", size.name);
    if (size.tokens.empty() || size.tokens.front() < 1 ||
        std::adjacent_find(size.tokens.begin(), size.tokens.end(), std::greater_equal<>()) !=
            size.tokens.end())
      throw UserError("{}: {}: tokens must be one or more rising budgets, found [{}]", study.path, where,
                      fmt::join(size.tokens, ", "));
    if (size.arms.empty()) throw UserError("{}: {}: arms is empty; name what is compared", study.path, where);
    for (const std::string& arm : size.arms) add_arm(study, arm, where);
    const bool tunes = std::any_of(size.arms.begin(), size.arms.end(),
                                   [&](const std::string& arm) { return !study.arm(arm).rate; });
    if (tunes || !size.rates.empty()) check_rates(size.rates, study.path + ": " + where);
    if (std::set<std::string>(size.arms.begin(), size.arms.end()).size() != size.arms.size())
      throw UserError("{}: {}: an arm is named twice", study.path, where);
    study.sizes.push_back(std::move(size));
  }
  if (study.sizes.empty()) throw UserError("{}: no [[size]], expected at least one", study.path);
  expect_unique_names(study.sizes, study.path, "size");
}

void read_questions(Study& study, Table& file) {
  for (Table& table : file.tables("question")) {
    StudyQuestion question;
    question.text = table.text("ask");
    question.a = table.text("arm");
    question.b = table.text("against");
    question.primary = table.flag("primary");
    const std::string match = table.text("match", "tokens");
    if (match != "tokens" && match != "flops") table.refuse("match", "\"tokens\" or \"flops\"");
    question.match = match == "flops" ? StudyQuestion::Match::kFlops : StudyQuestion::Match::kTokens;
    table.expect_nothing_else(study.path);
    for (const std::string& name : {question.a, question.b}) expect_arm(study, question, name);
    const bool asked_somewhere = question.a != question.b &&
                                 std::any_of(study.sizes.begin(), study.sizes.end(),
                                             [&](const StudySize& size) { return is_asked(question, size); });
    if (!asked_somewhere)
      throw UserError("{}: the question '{}' compares {} with {}, but no size has both", study.path,
                      question.text, question.a, question.b);
    study.questions.push_back(std::move(question));
  }
  if (study.questions.empty())
    throw UserError("{}: no [[question]]: a study without one has nothing to answer", study.path);
}

void read_looks(Study& study, Table& file) {
  for (Table& table : file.tables("look")) {
    study.looks.push_back({table.whole("pairs", 0), table.number("p", 0)});
    const Look& look = study.looks.back();
    if (look.pairs < 2 || (study.looks.size() > 1 && look.pairs <= study.looks[study.looks.size() - 2].pairs))
      table.refuse("pairs", "2 or more, and more than the look before");
    if (!(look.nominal_p > 0 && look.nominal_p < 0.5)) table.refuse("p", "a number above 0 and below 0.5");
    table.expect_nothing_else(study.path);
  }
  if (study.looks.empty()) study.looks = standard_looks();
}

}  // namespace

bool is_asked(const StudyQuestion& question, const StudySize& size) {
  const auto has = [&](const std::string& arm) {
    return std::find(size.arms.begin(), size.arms.end(), arm) != size.arms.end();
  };
  return has(question.a) && has(question.b);
}

const Arm& Study::arm(const std::string& name) const { return named(arms, name, "arm"); }
const StudySize& Study::size(const std::string& name) const { return named(sizes, name, "size"); }

Study read_study(const std::string& path) {
  Study study;
  study.path = path;
  study.text = read_file(path);
  study.hash = sha256_hex(study.text);
  const Json json = parse_toml(study.text, path);
  Table file(JsonFields(json, path), json, "");
  study.title = file.text("title");
  study.data = file.text("data");
  const auto metric = find_named<StudyMetric>(file.text("metric", name_of(study.metric)));
  if (!metric) file.refuse("metric", "\"loss\" or \"wrong_answers\"");
  study.metric = *metric;
  study.margin = file.number("margin", 0.01);
  if (!is_positive(study.margin)) file.refuse("margin", "a number above 0");
  study.settings = file.texts("settings");
  check_settings(study.settings, path);
  study.scales = file.has("scales") ? file.numbers("scales") : std::vector<double>{1};
  if (std::find(study.scales.begin(), study.scales.end(), 1.0) == study.scales.end() ||
      std::adjacent_find(study.scales.begin(), study.scales.end(), std::greater_equal<>()) !=
          study.scales.end())
    file.refuse("scales", "a rising list that has 1 in it");
  study.tuning_seeds = file.has("tuning_seeds") ? file.wholes("tuning_seeds") : std::vector<Index>{1, 2};
  if (study.tuning_seeds.empty() ||
      std::set<Index>(study.tuning_seeds.begin(), study.tuning_seeds.end()).size() !=
          study.tuning_seeds.size())
    file.refuse("tuning_seeds", "at least one seed, each once");
  study.first_seed = file.whole("first_seed", 101);
  read_looks(study, file);
  for (const Index seed : study.tuning_seeds)
    if (seed >= study.first_seed && seed < study.first_seed + study.most_pairs())
      throw UserError("{}: seed {} tunes and confirms; the confirmation takes fresh seeds ({} to {})", path,
                      seed, study.first_seed, study.first_seed + study.most_pairs() - 1);
  read_arms(study, file);
  read_sizes(study, file);
  read_questions(study, file);
  file.expect_nothing_else(path);
  return study;
}

void check_same_study(const Study& study, const std::string& stored, const std::string& folder) {
  if (stored == study.text) return;
  const auto lines = [](const std::string& text) {
    std::vector<std::string> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  };
  // Lines that only one of them has, in order: enough to see what was changed.
  const auto before = lines(stored), after = lines(study.text);
  std::string difference;
  for (const std::string& line : before)
    if (std::find(after.begin(), after.end(), line) == after.end()) difference += "\n  - " + line;
  for (const std::string& line : after)
    if (std::find(before.begin(), before.end(), line) == before.end()) difference += "\n  + " + line;
  throw UserError(
      "{}: this folder holds another study than {}. A changed file is a new study:{}\nGive another --out, or "
      "put the "
      "file back.",
      folder, study.path, difference.empty() ? "\n  (the order of lines)" : difference);
}

}  // namespace ddl
