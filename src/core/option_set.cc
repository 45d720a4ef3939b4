#include "core/option_set.h"

#include <algorithm>
#include <map>

namespace ddl {
namespace {

std::vector<std::string> keys_of(const Options& options) {
  std::vector<std::string> keys;
  for (const Options::Option& option : options.list()) keys.push_back(option.key());
  return keys;
}

}  // namespace

void describe_chosen(Options& options, const std::string& choice_key, const std::string& chosen,
                     OptionSet& own, const std::vector<NamedOptionSet>& all) {
  Options listed;
  own.describe(listed);
  const std::vector<std::string> own_keys = keys_of(listed);
  own.describe(options);

  std::map<std::string, std::vector<std::string>> owners;  // by key, of what the chosen one has not
  for (const NamedOptionSet& other : all) {
    OptionSetPtr set = other.options;
    Options others;
    set->describe(others);
    for (const std::string& key : keys_of(others))
      if (std::find(own_keys.begin(), own_keys.end(), key) == own_keys.end())
        owners[key].push_back(other.name);
  }
  const std::string has = own_keys.empty() ? fmt::format("{} has no options of its own", chosen)
                                           : fmt::format("{} has {}", chosen, fmt::join(own_keys, ", "));
  for (const auto& [key, names] : owners)
    options.refuse(key,
                   fmt::format("is an option of {} = {}; {}", choice_key, fmt::join(names, " or "), has));
}

}  // namespace ddl
