// What a model is: its sizes, its residual interface, its precision. Presets are named starting points.
#pragma once

#include <string>
#include <vector>

#include "core/options.h"

namespace ddl {

// Beyond these a number is a mistake; products of sizes stay within an Index.
constexpr Index kMaxBatch = 1 << 20;
constexpr Index kMaxContext = 1 << 20;

struct ModelConfig {
  Index layers = 4;
  Index width = 128;  // C, the paper's d
  Index heads = 2;
  Index mlp = 0;        // F; 0: floor(8/3 width)
  Index vocab = 8192;   // V
  Index context = 256;  // the longest sequence

  std::string residual = "ddl-cc";
  Index channels = 4;      // D, the paper's d_v; rules with a scalar state ignore it
  Index state_kernel = 4;  // taps of the token compressor
  Index embed_kernel = 4;  // taps of the embedding convolution
  std::string compressor = "sublayer";
  std::string gate = "linear";
  Index gate_hidden = 128;
  double beta_init = 1.0;
  std::string value = "sigmoid";
  double k_eps = 1e-5;

  bool mup = false;
  Index base_width = 1024;
  double embedding_std = 0.02;
  double hidden_std_factor = 0.5;

  std::string precision = "auto";
  std::string recompute = "none";

  void describe(Options& options);  // keys "model.*"
  // Throws UserError where the sizes do not fit together.
  void check() const;

  Index head_size() const { return width / heads; }
  Index mlp_width() const { return mlp > 0 ? mlp : 8 * width / 3; }
  Index sublayers() const { return 2 * layers; }
  float logit_scale() const;
  double hidden_lr_factor() const;     // of hidden matrices (mup)
  bool uses_bf16() const;              // "auto" resolved for this machine
  std::string precision_text() const;  // "f32" or "bf16", and what the machine has to do with it
};

// "tiny", "mini", "small", "medium". Throws UserError on another name.
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace ddl
