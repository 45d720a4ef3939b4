// What a model is: its sizes, its residual rule, its precision. Presets are named starting points.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/option_set.h"
#include "core/options.h"

namespace ddl {

// Beyond these a number is a mistake; products of sizes stay within an Index.
constexpr Index kMaxBatch = 1 << 20;
constexpr Index kMaxContext = 1 << 20;

enum class Precision { kAuto, kF32, kBf16 };
constexpr auto names_of(Precision) { return std::array{"auto", "f32", "bf16"}; }
enum class Recompute { kNone, kMlp, kBlock };
constexpr auto names_of(Recompute) { return std::array{"none", "mlp", "block"}; }

// The rule that every other is compared with: the additive residual.
inline constexpr const char* kBaselineRule = "baseline";

struct ModelConfig {
  Index layers = 4;
  Index width = 128;  // C, the paper's d
  Index heads = 2;
  Index mlp = 0;        // F; 0: floor(8/3 width)
  Index vocab = 8192;   // V
  Index context = 256;  // the longest sequence

  double rope_base = 10000;
  double norm_eps = 1e-5;  // of the norms in front of sublayers and head; those of queries and keys have 1e-5

  bool mup = false;
  Index base_width = 1024;
  double embedding_std = 0;  // 0: embedding_start_std() chooses
  double hidden_std_factor = 0.5;
  double output_std_factor = 1;

  std::string engine = "native";
  Precision precision = Precision::kAuto;
  Recompute recompute = Recompute::kNone;

  ModelConfig() { use_residual("ddl-cc"); }

  // The residual rule brings options of its own (model/residual). A change of rule keeps the values of those
  // that both have. Throws UserError on an unknown name.
  const std::string& residual() const { return residual_; }
  void use_residual(const std::string& name);
  // The rule's options, for the rule itself: Set is the type that its entry registered.
  template <class Set>
  const Set& rule() const {
    return rule_options_.as<Set>();
  }
  template <class Set>
  Set& rule() {
    return rule_options_.as<Set>();
  }

  // Keys "model.*": those of every model and those of the rule. Options of other rules are refused with the
  // list of this rule's. Whoever loads a configuration finds model.residual first (Options::peek).
  void describe(Options& options);
  void set(const std::string& assignment);  // one option, "model.gate=two-layer"
  // Throws UserError where the sizes do not fit together.
  void check() const;

  Index head_size() const { return width / heads; }
  Index mlp_width() const { return mlp > 0 ? mlp : 8 * width / 3; }
  Index qkv_width() const { return 3 * width; }            // of rows [q | k | v]
  Index gate_up_width() const { return 2 * mlp_width(); }  // of the MLP's rows [a | b]
  Index sublayers() const { return 2 * layers; }
  double embedding_start_std() const;
  double hidden_std() const;  // of hidden weights at the start
  // Of the sublayers' output projections: falls with depth, and the rule has a say
  double output_std() const;
  float logit_scale() const;
  double hidden_lr_factor() const;     // mup: what hidden matrices' learning rates are multiplied by
  bool uses_bf16() const;              // "auto" resolved for this machine
  std::string numbers() const;         // what GEMMs multiply: "f32", "bf16", or "f64" (reference)
  std::string precision_text() const;  // "f32" or "bf16", and what the machine has to do with it

 private:
  std::string residual_;
  OptionSetPtr rule_options_;
};

// "tiny", "mini", "small", "medium". Throws UserError on another name.
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace ddl
