#include "core/options.h"
#include "model/config.h"
#include "model/residual/residual.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

std::vector<ResidualEntry>& entries() {
  // In the order of the paper's tables, controls last. A new rule is one line here.
  static std::vector<ResidualEntry> all = {baseline_rule(),    ddl_dv1_rule(), ddl_tc_noec_rule(),
                                           ddl_cc_noec_rule(), ddl_tc_rule(),  ddl_cc_rule(),
                                           wo_dv1_rule(),      wo_tc_rule(),   wo_cc_rule()};
  return all;
}

}  // namespace

void register_residual(ResidualEntry entry) {
  std::erase_if(entries(), [&](const ResidualEntry& other) { return other.name == entry.name; });
  entries().push_back(std::move(entry));
}

std::vector<std::string> residual_names() {
  std::vector<std::string> names;
  for (const ResidualEntry& entry : entries()) names.push_back(entry.name);
  return names;
}

const ResidualEntry& find_residual(const std::string& name) {
  for (const ResidualEntry& entry : entries())
    if (entry.name == name) return entry;
  throw UserError("no residual interface '{}'; there are {} (nearest: {})", name,
                  fmt::join(residual_names(), ", "), nearest(name, residual_names()));
}

template <>
std::unique_ptr<Residual<float>> make_residual<float>(const ModelConfig& config, BatchShape shape) {
  return find_residual(config.residual).make_f32(config, shape);
}
template <>
std::unique_ptr<Residual<bf16>> make_residual<bf16>(const ModelConfig& config, BatchShape shape) {
  return find_residual(config.residual).make_bf16(config, shape);
}

}  // namespace ddl
