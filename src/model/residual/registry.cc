#include "model/residual/registry.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "model/config.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

// A new rule is one line here.
std::vector<RuleEntry> built_in() {
  std::vector<RuleEntry> all;
  for (auto make : {delta_rules, erase_write_rules, norm_write_rules, additive_expanded_rules, decay_rules,
                    highway_rules, hyper_connection_rules, manifold_connection_rules, depth_attention_rules})
    for (RuleEntry& entry : make()) all.push_back(std::move(entry));
  return all;
}

std::vector<RuleEntry>& entries() {
  static std::vector<RuleEntry> all = built_in();
  return all;
}

}  // namespace

void register_rule(RuleEntry entry) {
  std::erase_if(entries(), [&](const RuleEntry& other) { return other.name == entry.name; });
  entries().push_back(std::move(entry));
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const RuleEntry& entry : entries()) names.push_back(entry.name);
  return names;
}

const RuleEntry& find_rule(const std::string& name) {
  for (const RuleEntry& entry : entries())
    if (entry.name == name) return entry;
  const std::string near = nearest_alike(name, rule_names());
  throw UserError("no residual rule '{}'; there are {}{}", name, fmt::join(rule_names(), ", "),
                  near.empty() ? "" : fmt::format(" (nearest: {})", near));
}

template <>
std::unique_ptr<ResidualRule<float>> make_rule<float>(const ModelConfig& config) {
  return find_rule(config.residual()).make_f32(config);
}
template <>
std::unique_ptr<ResidualRule<bf16>> make_rule<bf16>(const ModelConfig& config) {
  return find_rule(config.residual()).make_bf16(config);
}

namespace {

template <class Num>
std::unique_ptr<ref::Rule<Num>> make_with(const MakeOracle<Num>& make, const ModelConfig& config) {
  if (!make) throw UserError("the residual rule '{}' has no reference form", config.residual());
  return make(config);
}

}  // namespace

template <>
std::unique_ptr<ref::Rule<double>> make_oracle(const ModelConfig& config) {
  return make_with(find_rule(config.residual()).oracle, config);
}
template <>
std::unique_ptr<ref::Rule<ref::Complex>> make_oracle(const ModelConfig& config) {
  return make_with(find_rule(config.residual()).complex_oracle, config);
}
template <>
std::unique_ptr<ref::Rule<ref::Var>> make_oracle(const ModelConfig& config) {
  return make_with(find_rule(config.residual()).tape_oracle, config);
}

}  // namespace ddl
