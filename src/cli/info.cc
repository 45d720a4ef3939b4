// ./ddl info: what a run or a model's folder is, or what a model would be, without allocating it.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/describe_model.h"
#include "core/arena.h"
#include "core/error.h"
#include "core/index.h"
#include "core/json.h"
#include "core/options.h"
#include "core/record.h"
#include "model/plan.h"
#include "model/residual/registry.h"
#include "train/run_config.h"

namespace ddl {
namespace {

struct InfoOptions {
  std::string path;
  std::string config;
  std::string preset;
  std::string residual;
  std::vector<std::string> set;
  Index batch = 4;
  bool json = false;
};

void describe_path(const InfoOptions& options) {
  const Json description = describe_model(options.path);
  std::fputs(options.json ? (to_line(description) + "\n").c_str() : model_screen(description).c_str(),
             stdout);
}

void describe_plan(const InfoOptions& options) {
  // As a run would have it, but with the preset's vocabulary where nothing says what the data's is.
  std::vector<std::string> sets = options.set;
  if (!options.residual.empty())
    sets.insert(sets.begin(), "model.residual=" + find_rule(options.residual).name);
  const std::string chosen = options.preset.empty() && options.config.empty() ? "small" : options.preset;
  const RunConfig run = load_run_config({chosen, "", options.config, sets});
  ModelConfig config = run.model;
  if (config.vocab == 0) config.vocab = preset(run.preset).vocab;
  Options keys;
  config.describe(keys);
  const BatchShape shape{options.batch, config.context};
  const ModelPlan plan = plan_model(config, shape);

  const std::map<std::string, Index> parts = parameters_by_part(plan.table);
  const Index total = plan.table.parameter_count();
  if (options.json) {
    Json j = make_record("info");
    j["config"] = keys.to_json()["model"];
    j["parameters"] = total;
    for (const auto& [part, count] : parts) j["parameters_by_part"][part] = count;
    for (const auto& [name, flops] : {std::pair{"forward", plan.forward}, {"backward", plan.backward}})
      j["flops_per_token"][name] = {{"linear", flops.linear},
                                    {"attention", flops.attention},
                                    {"head", flops.head},
                                    {"residual", flops.residual},
                                    {"total", flops.total()}};
    j["flops_per_token"]["recomputed"] = plan.recomputed;
    j["decode_cache_bytes_per_token"] = plan.cache_bytes_per_token;
    j["decode_cache_bytes_per_sequence"] = plan.cache_bytes_per_sequence;
    for (const Arena::Entry& entry : plan.memory) j["memory_bytes"][entry.name] = entry.bytes;
    j["memory_total_bytes"] = plan.total_bytes;
    std::puts(to_line(j).c_str());
    return;
  }
  const RuleEntry& rule = find_rule(config.residual());
  fmt::print("{}: {}\n{} layers, width {}, heads {} x {}, MLP {}, vocabulary {}, context {}, {}\n\n",
             rule.name, rule.summary, config.layers, config.width, config.heads, config.head_size(),
             config.mlp_width(), config.vocab, config.context, config.precision_text());
  fmt::print("Parameters {:>37}\n", total);
  for (const auto& [part, count] : parts)
    fmt::print("  {:<34} {:>11} {:>5.1f}%\n", part, count,
               100.0 * static_cast<double>(count) / static_cast<double>(total));
  fmt::print("\nMFLOP per token at full context{:>8}{:>11}\n", "forward", "backward");
  const auto row = [&](const char* name, double f, double b) {
    fmt::print("  {:<28} {:>8.2f} {:>10.2f}\n", name, f / 1e6, b / 1e6);
  };
  row("linear layers", plan.forward.linear, plan.backward.linear);
  row("attention", plan.forward.attention, plan.backward.attention);
  row("head", plan.forward.head, plan.backward.head);
  row("norms and residual rule", plan.forward.residual, plan.backward.residual);
  if (plan.recomputed > 0) row("computed again", 0, plan.recomputed);
  row("total", plan.forward.total(), plan.backward.total() + plan.recomputed);
  fmt::print("\nDecode cache: {} per token, {} more per sequence\n", format_bytes(plan.cache_bytes_per_token),
             format_bytes(plan.cache_bytes_per_sequence));
  fmt::print("\nMemory to train with {} x {} tokens per step (the optimizer adds {})\n", shape.B, shape.T,
             format_bytes(2 * sizeof(float) * static_cast<std::size_t>(plan.table.floats())));
  std::vector<Arena::Entry> memory = plan.memory;
  std::stable_sort(memory.begin(), memory.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const Arena::Entry& entry : memory)
    fmt::print("  {:<34} {:>11}\n", entry.name, format_bytes(entry.bytes));
  fmt::print("  {:<34} {:>11}\n", "total", format_bytes(plan.total_bytes));
}

}  // namespace

void add_info_command(Command app) {
  auto options = std::make_shared<InfoOptions>();
  Command info = app.add_command("info",
                                 "What a run or a model's folder is; or parameters, FLOPs and memory of a "
                                 "model that does not exist yet");
  info.add_option("path", options->path, "A run, a checkpoint, or a folder with config.json and weights");
  const std::vector<Option> plans = {
      info.add_option("--config", options->config, "A run's configuration, for example of configs/paper"),
      info.add_option("--preset", options->preset, "tiny, mini, small (the default) or medium"),
      info.add_option("--residual", options->residual, "Residual rule, for example ddl-cc"),
      info.add_option("--set", options->set, "Change an option: --set model.channels=8").one_value_each(),
      info.add_option("--batch", options->batch, "Sequences per step, for the memory plan")
          .range(1, kMaxBatch)
          .show_default()};
  info.add_flag("--json", options->json, "One JSON record");
  info.on_run([options, plans] {
    if (options->path.empty()) return describe_plan(*options);
    for (const Option& plan : plans)
      if (plan.given())
        throw UserError(
            "{} exists; --config, --preset, --residual, --set and --batch describe a model that does not "
            "exist yet",
            options->path);
    describe_path(*options);
  });
}

}  // namespace ddl
