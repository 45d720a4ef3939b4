#include "train/config_page.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/option_set.h"
#include "model/optimizer/optimizer.h"
#include "model/residual/registry.h"
#include "train/run_config.h"

namespace ddl {
namespace {

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string row(const Options::Option& option, const std::string& more = "") {
  return fmt::format("| `{}` | `{}` | {} | {} |{}\n", option.key(), cell(option.value()),
                     cell(option.expected()), cell(option.description()), more);
}

constexpr const char* kHead = "| option | default | expected | meaning |\n|---|---|---|---|\n";
constexpr const char* kHeadOwners = "| option | default | expected | meaning | of |\n|---|---|---|---|---|\n";

std::set<std::string> keys_of(const std::vector<NamedOptionSet>& sets) {
  std::set<std::string> keys;
  for (const NamedOptionSet& named : sets) {
    OptionSetPtr own = named.options;
    Options options;
    own->describe(options);
    for (const Options::Option& option : options.list()) keys.insert(option.key());
  }
  return keys;
}

// One row for all that have an option with the same default.
std::string owned(const std::vector<NamedOptionSet>& sets) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;  // text without owners, owners
  for (const NamedOptionSet& named : sets) {
    OptionSetPtr own = named.options;
    Options options;
    own->describe(options);
    for (const Options::Option& option : options.list()) {
      const std::string text = row(option);
      const auto same =
          std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == text; });
      if (same != rows.end())
        same->second.push_back("`" + named.name + "`");
      else
        rows.push_back({text, {"`" + named.name + "`"}});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first.substr(0, a.first.find(" | ")) < b.first.substr(0, b.first.find(" | "));
  });
  std::string text = kHeadOwners;
  for (const auto& [line, owners] : rows) {
    const std::string of = owners.size() == sets.size() ? "all" : fmt::format("{}", fmt::join(owners, ", "));
    text += fmt::format("{} {} |\n", line.substr(0, line.size() - 1), of);
  }
  return text;
}

}  // namespace

std::string config_page() {
  std::vector<NamedOptionSet> rules, optimizers;
  for (const std::string& name : rule_names()) rules.push_back({name, find_rule(name).options});
  for (const std::string& name : optimizer_names())
    optimizers.push_back({name, find_optimizer(name).options});
  std::set<std::string> own = keys_of(rules);
  own.merge(keys_of(optimizers));

  std::string text =
      "# Configuration\n\n"
      "This page lists every option of a training run. Set one in a TOML file (`./ddl train FILE`) or on the "
      "command\n"
      "line (`--set train.lr=0.003`). `./ddl train --options` shows the same list with the values of a "
      "given\n"
      "configuration. The defaults here are those of the preset `tiny`; `--preset` changes the sizes of the "
      "model.\n\n"
      "The page is written by the program: `./ddl train --options --markdown > docs/configuration.md`.\n";
  RunConfig config = load_run_config({});
  const Options options = config.options();
  const std::vector<std::pair<std::string, std::string>> titles = {
      {"preset", "Preset"}, {"model", "Model"},     {"train", "Training"},
      {"data", "Data"},     {"eval", "Validation"}, {"checkpoint", "Checkpoints"},
      {"log", "Output"}};
  std::string group;
  for (const Options::Option& option : options.list()) {
    if (own.contains(option.key())) continue;
    const std::string name = option.key().substr(0, option.key().find('.'));
    if (name != group) {
      const auto title =
          std::find_if(titles.begin(), titles.end(), [&](const auto& t) { return t.first == name; });
      text += fmt::format("\n## {}\n\n{}", title == titles.end() ? name : title->second, kHead);
      group = name;
    }
    text += row(option);
  }
  text += "\n## Residual rules\n\n`model.residual` names one of these:\n\n| rule | what it is |\n|---|---|\n";
  for (const std::string& name : rule_names())
    text += fmt::format("| `{}` | {} |\n", name, cell(find_rule(name).summary));
  text += "\nEach rule has options of its own. An option of another rule is refused.\n\n" + owned(rules);
  text +=
      fmt::format("\n## Optimizers\n\n`train.optimizer` is one of `{}`. Each has options of its own:\n\n{}",
                  fmt::join(optimizer_names(), "`, `"), owned(optimizers));
  return text;
}

}  // namespace ddl
