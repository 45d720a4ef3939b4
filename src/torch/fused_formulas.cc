#include "torch/fused_formulas.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include <utility>
#include <vector>

#include "core/error.h"
#include "model/residual/channel_conv.h"
#include "model/residual/stages.h"

namespace ddl {

std::optional<FusedSpec> fused_spec(const ModelConfig& config) {
  const auto rule = make_rule<float>(config);
  const auto* fused = dynamic_cast<const FusedRule<float>*>(rule.get());
  if (!fused) return std::nullopt;
  return fused->spec();
}

FusedFormulas::FusedFormulas(const ModelConfig& config, FusedSpec spec, FlatParameters& parameters,
                             EarlierTokens& earlier)
    : spec_(std::move(spec)), S_(config.sublayers()), parameters_(parameters), earlier_(earlier) {}

std::string FusedFormulas::norm_name(Index s) const {
  return s == S_ ? "ln_f.weight" : fmt::format("transformer.h.{}.ln_{}.weight", s / 2, s % 2 + 1);
}

std::string FusedFormulas::branch_name(Index s, std::size_t i, const std::string& ending) const {
  return branch_prefix(spec_.branch_prefix, s) + spec_.branches[i].name + ending;
}

std::string FusedFormulas::compressor(Index s) const {
  if (s == S_) return "readout";
  const std::string block = fmt::format("transformer.h.{}.", s / 2);
  return block + (spec_.compressor_per_block ? "compress" : s % 2 == 0 ? "compress_attn" : "compress_mlp");
}

// The last token has tap E - 1:  y_t = sum_s w_{E-1-s} x_{t-s}. `multiply` joins a tap with its tokens.
template <class Multiply>
static at::Tensor causal(const std::vector<at::Tensor>& earlier, const Multiply& multiply) {
  const Index taps = std::ssize(earlier);
  at::Tensor sum = multiply(0, earlier[taps - 1]);
  for (Index e = 1; e < taps; ++e) sum = sum + multiply(e, earlier[taps - 1 - e]);
  return sum;
}

at::Tensor FusedFormulas::expand(const at::Tensor& x) const {
  const at::Tensor plane = x.unsqueeze(2);
  if (spec_.expand == Expand::kIdentity) return plane;
  if (spec_.expand == Expand::kRepeat) return plane.expand({x.size(0), x.size(1), spec_.channels, x.size(2)});
  const at::Tensor w = parameters_.leaf("input_embed.conv.weight");
  return causal(earlier_.rows(0, plane, spec_.embed_taps),
                [&](Index e, const at::Tensor& tokens) { return w.select(0, e) * tokens; });
}

at::Tensor FusedFormulas::mix(Index s) const {
  const at::Tensor w = parameters_.leaf(compressor(s) + ".weight");
  const Index E = spec_.channel_taps, D = spec_.channels;
  if (E == 0) return w;
  const at::Tensor read = parameters_.leaf(compressor(s) + ".read");
  std::vector<at::Tensor> planes;
  for (Index d = 0; d < D; ++d) {
    at::Tensor plane = w.select(0, 0) * 0;
    for (Index j = 0; j < D; ++j) {
      const Index m = d - j + channel_conv_pad(E);
      if (m >= 0 && m < E) plane = plane + read.select(0, j) * w.select(0, m);
    }
    planes.push_back(plane);
  }
  return at::stack(planes);
}

at::Tensor FusedFormulas::read(Index s, const at::Tensor& X) const {
  if (spec_.read == Read::kIdentity) return X.select(2, 0);
  if (spec_.read == Read::kChannel) return (mix(s) * X).sum(2);
  const at::Tensor w = parameters_.leaf(compressor(s) + ".weight"),
                   read = parameters_.leaf(compressor(s) + ".read").unsqueeze(1);
  return causal(earlier_.rows(1 + s, X, spec_.state_taps),
                [&](Index e, const at::Tensor& tokens) { return (read * w.select(0, e) * tokens).sum(2); });
}

at::Tensor FusedFormulas::branch(Index s, std::size_t i, const at::Tensor& x_in,
                                 const at::Tensor& context) const {
  const BranchSpec& b = spec_.branches[i];
  const bool two_layers = b.hidden > 0;
  const std::string last = two_layers ? "_out" : "";
  at::Tensor u;
  if (b.input != BranchInput::kNone) {
    at::Tensor input = b.input == BranchInput::kUnnormed ? x_in : context;
    if (two_layers) input = at::tanh(at::linear(input, parameters_.leaf(branch_name(s, i, "_in.weight"))));
    u = at::linear(input, parameters_.leaf(branch_name(s, i, last + ".weight")));
  }
  if (b.bias) {
    const at::Tensor bias = parameters_.leaf(branch_name(s, i, last + ".bias"));
    u = u.defined() ? u + bias : bias.expand({x_in.size(0), x_in.size(1), b.rows});
  }
  const double scale = b.scale;
  if (b.activation == Activation::kSigmoid) return scale * at::sigmoid(u);
  if (b.activation == Activation::kTanh) return scale * at::tanh(u);
  return scale * u;
}

}  // namespace ddl
