#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/residual_pass.h"
#include "model/engine.h"
#include "model/residual/registry.h"

namespace ddl {

void ModelConfig::use_residual(const std::string& name) {
  if (name == residual_) return;
  const RuleEntry& rule = find_rule(name);
  OptionSetPtr before = std::move(rule_options_);
  residual_ = rule.name;
  rule_options_ = rule.options;
  if (!before) return;
  Options old_options, new_options;
  before->describe(old_options);
  rule_options_->describe(new_options);
  std::string shared;
  for (const Options::Option& option : old_options.list())
    if (new_options.contains(option.key())) shared += fmt::format("{} = {}\n", option.key(), option.value());
  new_options.load_text(shared, "the rule before");
}

void ModelConfig::describe(Options& o) {
  o.add("model.layers", layers, "Transformer blocks").range(1, 1000);
  o.add("model.width", width, "features per token").range(1, kMaxWidth);
  o.add("model.heads", heads, "attention heads; must divide the width into even parts").range(1, 1024);
  o.add("model.mlp", mlp, "MLP width; 0 means floor(8/3 width)").range(0, 1 << 20);
  o.add("model.vocab", vocab, "vocabulary size; 0 takes the data's").range(0, 1 << 24);
  o.add("model.context", context, "longest sequence in tokens").range(1, kMaxContext);
  o.add("model.residual", residual_, "residual rule").choices(rule_names());
  std::vector<NamedOptionSet> all;
  for (const std::string& name : rule_names()) all.push_back({name, find_rule(name).options});
  describe_chosen(o, "model.residual", residual_, *rule_options_, all);
  o.add("model.rope_base", rope_base, "base of the rotary positions").range(1, 1e12);
  o.add("model.norm_eps", norm_eps, "added to the mean square in the norms of sublayers and head")
      .range(0, 1);
  o.add("model.mup", mup, "scale logits and hidden learning rates by base_width / width");
  o.add("model.base_width", base_width, "the width at which mup changes nothing").range(1, 1 << 20);
  o.add("model.embedding_std", embedding_std,
        "standard deviation of the embedding at the start; 0 means 0.02, below width 768 (with mup: base "
        "width) "
        "0.02 sqrt(768 / width)")
      .range(0, 10)
      .changes(Options::Changes::kStart);
  o.add("model.hidden_std_factor", hidden_std_factor, "hidden weights start at factor / sqrt(width)")
      .range(0, 100)
      .changes(Options::Changes::kStart);
  o.add("model.output_std_factor", output_std_factor,
        "output projections start at this times their usual deviation, hidden / sqrt(layers)")
      .range(0, 100)
      .changes(Options::Changes::kStart);
  o.add("model.engine", engine, "what computes: native, torch (./ddl setup torch), or the slow reference")
      .choices(engine_names())
      .changes(Options::Changes::kComputing);
  o.add("model.precision", precision, "GEMM inputs; auto: bf16 where the CPU or GPU has it, else f32")
      .changes(Options::Changes::kComputing);
  o.add("model.recompute", recompute, "what backward computes again instead of storing it")
      .changes(Options::Changes::kComputing);
}

void ModelConfig::set(const std::string& assignment) {
  if (const auto rule = Options::peek_assignment(assignment, "model.residual")) return use_residual(*rule);
  Options options;
  describe(options);
  options.set(assignment);
}

void ModelConfig::check() const {
  if (vocab < 1) throw UserError("model.vocab is {}; without data to take it from, it must be given", vocab);
  if (width % heads != 0) {
    Index fitting = heads;
    while (width % fitting != 0) --fitting;
    throw UserError("model.heads is {}, which does not divide model.width {}; {} heads of {} features would",
                    heads, width, fitting, width / fitting);
  }
  if (head_size() % 2 != 0)
    throw UserError(
        "model.width {} / model.heads {} gives heads of {} features; rotary positions need an even number",
        width, heads, head_size());
  if (mlp_width() < 1) throw UserError("model.width {} gives an MLP of width 0; set model.mlp", width);
}

// The paper's deviation is 0.02, at widths of 768 and more. Narrow models learn better with a larger one, the
// additive baseline above all (docs/results/study-1.md). This one gives embeddings, and with them the first logits
// (the head shares the matrix), the length that they have in the paper's small model. With muP, under which
// nothing may change with the width, the deviation is that of the base width.
double ModelConfig::embedding_start_std() const {
  if (embedding_std > 0) return embedding_std;
  return 0.02 * std::sqrt(std::max(1.0, 768 / static_cast<double>(mup ? base_width : width)));
}

double ModelConfig::hidden_std() const { return hidden_std_factor / std::sqrt(static_cast<double>(width)); }

double ModelConfig::output_std() const {
  return output_std_factor * hidden_std() / std::sqrt(static_cast<double>(layers)) *
         find_rule(residual()).output_std_factor(*this);
}

float ModelConfig::logit_scale() const {
  return mup ? static_cast<float>(base_width) / static_cast<float>(width) : 1.0f;
}

double ModelConfig::hidden_lr_factor() const {
  return mup ? static_cast<double>(base_width) / static_cast<double>(width) : 1.0;
}

bool ModelConfig::uses_bf16() const {
  if (precision == Precision::kF32) return false;
  const Engine& computes = engine_or_native(engine);
  return !computes.computes_in_f64() && (precision == Precision::kBf16 || computes.has_fast_bf16());
}

std::string ModelConfig::numbers() const {
  return engine_or_native(engine).computes_in_f64() ? "f64" : uses_bf16() ? "bf16" : "f32";
}

std::string ModelConfig::precision_text() const {
  const Engine& computes = engine_or_native(engine);
  if (computes.computes_in_f64()) return fmt::format("f64 ({} engine)", engine);
  if (computes.has_fast_bf16()) return uses_bf16() ? "bf16" : "f32";
  return uses_bf16()                     ? "bf16 (slow: there are no instructions for it here)"
         : precision == Precision::kAuto ? "f32 (there are no bf16 instructions here)"
                                         : "f32";
}

std::vector<std::string> preset_names() { return {"tiny", "mini", "small", "medium"}; }

ModelConfig preset(const std::string& name) {
  ModelConfig c;
  if (name == "tiny") {  // about 1M parameters: seconds to minutes on two cores
    c.layers = 4, c.width = 128, c.heads = 4, c.vocab = 2048, c.context = 128;
  } else if (name == "mini") {  // about 10M: minutes to hours
    c.layers = 6, c.width = 320, c.heads = 5, c.vocab = 8192, c.context = 256;
  } else if (name == "small") {  // the paper's 124M
    c.layers = 12, c.width = 768, c.heads = 6, c.vocab = 50304, c.context = 1024, c.mup = true;
  } else if (name == "medium") {  // the paper's 353M
    c.layers = 24, c.width = 1024, c.heads = 8, c.vocab = 50304, c.context = 1024, c.mup = true;
  } else {
    throw UserError("no preset '{}'; there are {} (nearest: {})", name, fmt::join(preset_names(), ", "),
                    nearest(name, preset_names()));
  }
  return c;
}

}  // namespace ddl
