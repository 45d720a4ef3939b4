#include "torch/inference_network.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/profiler.h"
#include "model/native/head.h"
#include "torch/fused_formulas.h"
#include "torch/host_tensor.h"

namespace ddl {
namespace {

Index most_taps(const ModelConfig& config) {
  const auto spec = fused_spec(config);
  return spec ? std::max(spec->embed_taps, spec->state_taps) : 1;
}

}  // namespace

InferenceNetwork::InferenceNetwork(const Weights& weights, const TorchPlace& place, Index slots)
    : config_(weights.config()),
      activations_(config_.uses_bf16() ? at::kBFloat16 : at::kFloat),
      parameters_(FlatParameters::for_inference(weights, place.device)),
      sublayers_(config_, parameters_, activations_, config_.context, place.kernels),
      history_(slots, most_taps(config_), place.device),
      stream_(make_formula_stream(config_, parameters_, activations_, history_)) {}

at::Tensor InferenceNetwork::empty_cache(std::vector<std::int64_t> shape) const {
  return at::zeros(shape, at::TensorOptions().dtype(activations_).device(device()));
}

at::Tensor InferenceNetwork::forward(const std::vector<std::int64_t>& token_N, Spans spans,
                                     KeysAndValues& past, const Exec& ex) {
  const ProfileScope scope("torch: forward", ex);
  if (at::get_num_threads() != ex.threads) at::set_num_threads(ex.threads);
  std::vector<std::int64_t> position_N;
  for (const Span& span : spans)
    for (Index i = 0; i < span.count; ++i) position_N.push_back(span.position + i);
  history_.begin(spans);
  const Sublayers::Continued continued{sublayers_.rope_at(to_device(position_N, device())), past};
  at::Tensor context = stream_->start(sublayers_.embed(to_device(token_N, device()).unsqueeze(0)));
  for (Index s = 0; s < config_.sublayers(); ++s)
    context = stream_->write_and_read(s, sublayers_.forward(s, context, &continued));
  return context.squeeze(0);
}

void InferenceNetwork::logits(const at::Tensor& context_NC, const std::vector<std::int64_t>& rows,
                              FunctionRef<void(Index, const at::Tensor&)> visit) const {
  if (rows.empty()) return;
  const Index R = std::ssize(rows), chunk = head_chunk_rows(R, config_.vocab, kDecodingLogitsBytes);
  const at::Tensor context_RC = context_NC.index_select(0, to_device(rows, device()));
  for (Index i = 0; i < R; i += chunk)
    visit(i, sublayers_.logits(context_RC.narrow(0, i, std::min(chunk, R - i))));
}

}  // namespace ddl
