#include "model/config.h"

#include "kernels/isa.h"
#include "kernels/residual.h"
#include "model/residual/residual.h"

namespace ddl {

void ModelConfig::describe(Options& o) {
  o.add("model.layers", layers, "Transformer blocks").range(1, 1000);
  o.add("model.width", width, "features per token").range(1, kMaxWidth);
  o.add("model.heads", heads, "attention heads; must divide the width into even parts").range(1, 1024);
  o.add("model.mlp", mlp, "MLP width; 0 means floor(8/3 width)").range(0, 1 << 20);
  o.add("model.vocab", vocab, "vocabulary size; 0 takes the data's").range(0, 1 << 24);
  o.add("model.context", context, "longest sequence in tokens").range(1, kMaxContext);
  o.add("model.residual", residual, "residual interface").choices(residual_names());
  o.add("model.channels", channels, "value channels per feature (d_v) of an expanded state")
      .range(1, kMaxChannels);
  o.add("model.state_kernel", state_kernel, "taps of the token compressor").range(1, 64);
  o.add("model.embed_kernel", embed_kernel, "taps of the embedding convolution").range(1, 64);
  o.add("model.compressor", compressor, "one compressor per sublayer, or one per block (released code)")
      .choices({"sublayer", "block"});
  o.add("model.gate", gate, "gate branch").choices({"linear", "two-layer"});
  o.add("model.gate_hidden", gate_hidden, "hidden width of the two-layer gate").range(1, 4096);
  o.add("model.beta_init", beta_init, "the gate's starting value, 0 to 2").range(0, 2);
  o.add("model.value", value, "value branch: 4 sigmoid(W x + b), W c + b, or the paper's W c")
      .choices({"sigmoid", "biased", "linear"});
  o.add("model.k_eps", k_eps, "guard of the direction's norm").range(0, 1);
  o.add("model.mup", mup, "scale logits and hidden learning rates by base_width / width");
  o.add("model.base_width", base_width, "the width at which mup changes nothing").range(1, 1 << 20);
  o.add("model.embedding_std", embedding_std, "standard deviation of the embedding at the start")
      .range(0, 10);
  o.add("model.hidden_std_factor", hidden_std_factor, "hidden weights start at factor / sqrt(width)")
      .range(0, 100);
  o.add("model.precision", precision, "GEMM inputs; auto: bf16 where the CPU has it, else f32")
      .choices({"auto", "f32", "bf16"});
  o.add("model.recompute", recompute, "what backward computes again instead of storing it")
      .choices({"none", "mlp", "block"});
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

double ModelConfig::hidden_lr_factor() const {
  return mup ? static_cast<double>(base_width) / static_cast<double>(width) : 1.0;
}

float ModelConfig::logit_scale() const {
  return mup ? static_cast<float>(base_width) / static_cast<float>(width) : 1.0f;
}

bool ModelConfig::uses_bf16() const {
  return precision == "bf16" || (precision == "auto" && has_fast_bf16());
}

std::string ModelConfig::precision_text() const {
  if (has_fast_bf16()) return uses_bf16() ? "bf16" : "f32";
  return uses_bf16()           ? "bf16 (slow: this CPU has no instructions for it)"
         : precision == "auto" ? "f32 (this CPU has no bf16 instructions)"
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
