// The residual rules by name. A rule is one file of this folder that makes its entry; registry.cc lists them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/option_set.h"
#include "model/residual/rule.h"
#include "ref/rule.h"

namespace ddl {

struct ModelConfig;

// A row of the paper's cost table, as ratios to its baseline (four H200s, small model).
struct PaperCost {
  double train_speed, inference_speed, peak_memory;
};

template <class T>
using MakeRule = std::function<std::unique_ptr<ResidualRule<T>>(const ModelConfig&)>;
template <class Num>
using MakeOracle = std::function<std::unique_ptr<ref::Rule<Num>>(const ModelConfig&)>;

struct RuleEntry {
  std::string name, summary;
  std::optional<PaperCost> paper = {};
  // The rule's own options at their defaults, under keys "model.*". Only the rule and its formula for torch look
  // into them.
  OptionSetPtr options = OptionSetPtr(NoOptions());
  MakeRule<float> make_f32 = {};
  MakeRule<bf16> make_bf16 = {};
  // The rule as scalar code on any number type (src/ref): what it is held to, and what the reference engine runs.
  MakeOracle<double> oracle = {};
  MakeOracle<ref::Complex> complex_oracle = {};
  MakeOracle<ref::Var> tape_oracle = {};
  // What the standard deviation of the sublayers' output projections is multiplied by at the start.
  std::function<double(const ModelConfig&)> output_std_factor = [](const ModelConfig&) { return 1.0; };
  // Why the paper's released code cannot express a model with this rule; "" where it can.
  std::function<std::string(const ModelConfig&)> why_not_in_reference = [](const ModelConfig&) {
    return std::string("a rule of its own");
  };
};

// For rules that live outside this folder. A name that is taken now means the new rule.
void register_rule(RuleEntry entry);
std::vector<std::string> rule_names();
const RuleEntry& find_rule(const std::string& name);  // throws UserError, naming the nearest

template <class T>
std::unique_ptr<ResidualRule<T>> make_rule(const ModelConfig& config);
template <>
std::unique_ptr<ResidualRule<float>> make_rule(const ModelConfig& config);
template <>
std::unique_ptr<ResidualRule<bf16>> make_rule(const ModelConfig& config);

template <class Num>
// Throws UserError where there is none
std::unique_ptr<ref::Rule<Num>> make_oracle(const ModelConfig& config);
template <>
std::unique_ptr<ref::Rule<double>> make_oracle(const ModelConfig& config);
template <>
std::unique_ptr<ref::Rule<ref::Complex>> make_oracle(const ModelConfig& config);
template <>
std::unique_ptr<ref::Rule<ref::Var>> make_oracle(const ModelConfig& config);

// Fills in the three oracles from one template of a rule, constructible from a ModelConfig.
template <template <class> class Oracle>
RuleEntry with_oracle(RuleEntry entry) {
  entry.oracle = [](const ModelConfig& c) { return std::make_unique<Oracle<double>>(c); };
  entry.complex_oracle = [](const ModelConfig& c) { return std::make_unique<Oracle<ref::Complex>>(c); };
  entry.tape_oracle = [](const ModelConfig& c) { return std::make_unique<Oracle<ref::Var>>(c); };
  return entry;
}

}  // namespace ddl
