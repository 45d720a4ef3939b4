// ./ddl plan: what a run would take on other machines, estimated from exact FLOPs and bytes; or on this one,
// to see how good that is.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/step_model.h"
#include "bench/step_work.h"
#include "cli/commands.h"
#include "core/arena.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/machine.h"
#include "core/record.h"
#include "model/config.h"
#include "model/engine.h"
#include "train/console.h"
#include "train/run_config.h"

namespace ddl {
namespace {

// Assumed, not measured: shares of the peak that matrix products and passes over memory reach (docs/results/scale.md).
constexpr double kLowMatmulShare = 0.35, kHighMatmulShare = 0.5, kMemoryShare = 0.8, kLaunchSeconds = 3e-6;

struct PlanCommand {
  std::string config_file, preset, gpu = "h200";
  std::vector<std::string> sets;
  Index gpus = 1, nodes = 1;
  double link = 50, local_link = 1;  // GB/s
  Index here = 0;
  bool json = false;

  void execute() {
    if (gpus % nodes != 0)
      throw UserError("--gpus {} on --nodes {}: expected as many GPUs on each machine", gpus, nodes);
    if (link <= 0 || local_link <= 0) throw UserError("--link and --local-link: expected more than 0 GB/s");
    RunConfig config = load_run_config({preset, "", config_file, sets});
    if (config.model.vocab == 0) config.model.vocab = ddl::preset(config.preset).vocab;
    if (here > 0) return on_this_machine(config);
    if (config.model.precision == Precision::kAuto) config.model.precision = Precision::kBf16;
    const Cluster cluster{nodes, gpus, 1e9 * link, config.train.accumulate, config.train.zero};
    check_divides(config, gpus);
    Device low = find_device(gpu);
    low.memory_share = kMemoryShare, low.launch_seconds = kLaunchSeconds, low.matmul_share = kLowMatmulShare;
    Device high = low;
    high.matmul_share = kHighMatmulShare;
    const PlannedStep step = plan_step(config, cluster);
    const StepTime slow = estimate_step(step.work, low, cluster, step.useful_flops),
                   fast = estimate_step(step.work, high, cluster, step.useful_flops);
    if (json) return print_json(config, low, step, slow, fast);
    print_screen(config, low, step, slow, fast);
  }

 private:
  static void check_divides(const RunConfig& config, Index devices) {
    if (config.train.accumulate % devices != 0)
      throw UserError(
          "{} devices share out the micro-batches of a step: train.accumulate is {}, expected a multiple",
          devices, config.train.accumulate);
  }
  static double days(const RunConfig& config, double step_s) {
    return static_cast<double>(config.train.steps) * step_s / 86'400;
  }
  static Json time_json(const StepTime& t) {
    return Json{{"step_s", t.step_s},
                {"micro_batch_s", t.micro_s},
                {"matmul_s", t.matmul_s},
                {"memory_s", t.memory_s},
                {"exp_s", t.exp_s},
                {"launch_s", t.launch_s},
                {"update_s", t.update_s},
                {"communication_s", t.communication_s},
                {"exposed_communication_s", t.exposed_s},
                {"tokens_per_s", t.tokens_per_s},
                {"mfu", t.mfu}};
  }

  void print_json(const RunConfig& config, const Device& device, const PlannedStep& step,
                  const StepTime& slow, const StepTime& fast) const {
    Json record = make_record("plan");
    record["estimate"] = true;
    record["gpu"] = device.name, record["gpus"] = gpus, record["nodes"] = nodes;
    record["parameters"] = step.plan.table.parameter_count();
    record["flops_per_token"] = step.useful_flops;
    record["memory_bytes_per_gpu"] = step.memory_bytes;
    record["fits"] = step.memory_bytes <= device.memory_bytes;
    record["low"] = time_json(slow), record["high"] = time_json(fast);
    record["days_low"] = days(config, fast.step_s), record["days_high"] = days(config, slow.step_s);
    record["assumed"] = {{"flops", device.flops},
                         {"memory_rate", device.memory_rate},
                         {"link_rate", device.link_rate},
                         {"node_link_rate", 1e9 * link},
                         {"matmul_share", {kLowMatmulShare, kHighMatmulShare}},
                         {"memory_share", kMemoryShare},
                         {"launch_s", kLaunchSeconds}};
    std::puts(to_line(record).c_str());
  }

  void print_screen(const RunConfig& config, const Device& device, const PlannedStep& step,
                    const StepTime& slow, const StepTime& fast) const {
    const auto range = [](double low, double high, const char* format) {
      return fmt::format(fmt::runtime(format), low) + " to " + fmt::format(fmt::runtime(format), high);
    };
    const auto line = [](const char* name, const std::string& text) {
      fmt::print("  {:<24}{}\n", name, text);
    };
    fmt::print("{}, {} parameters, {} x {} ({}), an estimate: no GPU was asked\n", config.model.residual(),
               format_count(static_cast<double>(step.plan.table.parameter_count())), gpus, device.name,
               nodes == 1 ? std::string("one machine")
                          : fmt::format("{} machines, {:g} GB/s between them", nodes, link));
    line("step",
         fmt::format("{} s: {} sequences of {} tokens, {} micro-batches of {} on each GPU",
                     range(fast.step_s, slow.step_s, "{:.3g}"), config.train.batch * config.train.accumulate,
                     config.context(), config.train.accumulate / gpus, config.train.batch));
    line("a micro-batch", fmt::format("{} ms: matrix products {}, memory {:.3g}, launches {:.3g}",
                                      range(1e3 * fast.micro_s, 1e3 * slow.micro_s, "{:.3g}"),
                                      range(1e3 * fast.matmul_s, 1e3 * slow.matmul_s, "{:.3g}"),
                                      1e3 * slow.memory_s, 1e3 * slow.launch_s));
    line("update", fmt::format("{:.3g} ms", 1e3 * slow.update_s));
    line("communication", fmt::format("{:.3g} ms for {}, of which {} ms are not hidden by the backward pass",
                                      1e3 * slow.communication_s,
                                      format_bytes(static_cast<std::size_t>(step.work.gradient_bytes)),
                                      range(1e3 * slow.exposed_s, 1e3 * fast.exposed_s, "{:.3g}")));
    line("speed", fmt::format("{} M tokens/s, {}% of the peak (MFU)",
                              range(1e-6 * slow.tokens_per_s, 1e-6 * fast.tokens_per_s, "{:.3g}"),
                              range(100 * slow.mfu, 100 * fast.mfu, "{:.0f}")));
    line("memory of a GPU",
         fmt::format("{} of {}{}", format_bytes(static_cast<std::size_t>(step.memory_bytes)),
                     format_bytes(static_cast<std::size_t>(device.memory_bytes)),
                     step.memory_bytes > device.memory_bytes
                         ? ": TOO MUCH; a smaller train.batch, model.recompute=block or train.zero"
                         : ""));
    line("to the end", fmt::format("{} days for {} steps",
                                   range(days(config, fast.step_s), days(config, slow.step_s), "{:.3g}"),
                                   config.train.steps));
    fmt::print(
        "Assumed: {:.0f} TFLOP/s, {:.0f} GB/s and {} by data sheet; products reach {:.0f} to {:.0f}% of it, "
        "passes over memory "
        "{:.0f}%;\n  {:.0f} us for each of {:.0f} kernels of a micro-batch; {:.0f} GB/s to another GPU of "
        "the machine; each array is moved "
        "once by a fused kernel\n  ({} of residual state per token and sublayer); attention runs at the "
        "products' rate. "
        "docs/scale.md says how well this fits a CPU.\n",
        1e-12 * device.flops, 1e-9 * device.memory_rate,
        format_bytes(static_cast<std::size_t>(device.memory_bytes)), 100 * kLowMatmulShare,
        100 * kHighMatmulShare, 100 * kMemoryShare, 1e6 * kLaunchSeconds, step.work.kernels,
        1e-9 * device.link_rate, format_bytes(static_cast<std::size_t>(step.state_bytes)));
  }

  // Prediction for ranks of this machine with one thread each: products measured at the model's shapes,
  // memory as it streams.
  void on_this_machine(const RunConfig& config) const {
    check_divides(config, here);
    const Exec ex{std::max(1, default_exec().threads / static_cast<int>(here))};
    const Cluster cluster{1, here, 1, config.train.accumulate, config.train.zero, /*hides_sums=*/false};
    PlannedStep step = plan_step(config, cluster);
    const auto model =
        make_trainable(config.model, {config.train.batch, config.context()}, config.train.optimizer, 1, ex);
    double best = 0;
    for (int round = 0; round < 5; ++round) {
      const double seconds = model->measure_floor(ex);
      best = round < 2 ? seconds : std::min(best, seconds);
    }
    step.work.micro_seconds = best;
    step.work.kernels = 0;
    const MachineLimits limits = measure_limits(ex);
    const Device device{.name = "this CPU",
                        .flops = 1e9 * limits.f32_gflops,
                        .memory_rate = 1e9 * limits.stream_gbps,
                        .memory_bytes = static_cast<double>(machine_memory_bytes()),
                        .link_rate = 1e9 * local_link,
                        .exp_rate = exp_rate(ex)};
    const StepTime t = estimate_step(step.work, device, cluster, step.useful_flops);
    if (json) {
      Json record = make_record("plan");
      record["ranks"] = here, record["threads"] = ex.threads;
      record["time"] = time_json(t);
      record["memory_rate"] = device.memory_rate, record["link_rate"] = device.link_rate;
      std::puts(to_line(record).c_str());
      return;
    }
    fmt::print("{} rank{} of {} thread{} on this machine: {:.4g} s per step, {:.0f} tokens/s\n", here,
               here == 1 ? "" : "s", ex.threads, ex.threads == 1 ? "" : "s", t.step_s, t.tokens_per_s);
    fmt::print(
        "  a micro-batch {:.4g} s (products, measured, {:.4g}; memory at {:.1f} GB/s {:.4g}; exponentials at "
        "{:.2f} per ns {:.4g}), update {:.3g}, sums of gradients {:.3g}\n",
        t.micro_s, t.matmul_s, limits.stream_gbps, t.memory_s, 1e-9 * device.exp_rate, t.exp_s, t.update_s,
        t.exposed_s);
  }
};

}  // namespace

void add_plan_command(Command app) {
  auto c = std::make_shared<PlanCommand>();
  std::vector<std::string> names;
  for (const Device& device : known_devices()) names.push_back(device.name);
  Command plan =
      app.add_command("plan", "Estimate of a run on GPUs: time, memory, communication, days to the end");
  plan.add_option("config", c->config_file, "A TOML file (see configs/paper)");
  plan.add_option("--preset", c->preset, "Sizes: tiny, mini, small or medium");
  plan.add_option("--set", c->sets, "key=value, over the file; may be repeated").one_value_each();
  plan.add_option("--gpus", c->gpus, "GPUs in all").range(1, 1 << 16).show_default();
  plan.add_option("--gpu", c->gpu, "Which").one_of(names).show_default();
  plan.add_option("--nodes", c->nodes, "Machines, with as many GPUs each").range(1, 1 << 16).show_default();
  plan.add_option("--link", c->link, "GB/s between two machines").show_default();
  plan.add_option("--here", c->here,
                  "Instead of GPUs: so many ranks on this machine, from a short measurement")
      .range(1, 1024);
  plan.add_option("--local-link", c->local_link, "With --here: GB/s at which ranks sum their gradients")
      .show_default();
  plan.add_flag("--json", c->json, "One JSON record");
  plan.on_run([c] { c->execute(); });
}

}  // namespace ddl
