#include "torch/earlier_tokens.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include "torch/host_tensor.h"

namespace ddl {
namespace {

class WholeSequences final : public EarlierTokens {
 public:
  std::vector<at::Tensor> rows(Index, const at::Tensor& x, Index taps) override {
    // Zeros in front of a sequence: two numbers for each dimension, the last first.
    std::vector<std::int64_t> pad(static_cast<std::size_t>(2 * (x.dim() - 1)), 0);
    pad[pad.size() - 2] = taps - 1;
    const at::Tensor padded = at::constant_pad_nd(x, pad);
    std::vector<at::Tensor> rows;
    for (Index back = 0; back < taps; ++back) rows.push_back(padded.narrow(1, taps - 1 - back, x.size(1)));
    return rows;
  }
};

}  // namespace

EarlierTokens& whole_sequences() {
  static WholeSequences sequences;
  return sequences;
}

SpanHistory::SpanHistory(Index slots, Index most_taps, const at::Device& device)
    : slots_(slots), backs_(most_taps - 1), device_(device) {}

void SpanHistory::begin(Spans spans) {
  if (backs_ == 0) return;
  const Index N = Tokens::of(spans).count, remembered = slots_ * backs_, zero = remembered + N;
  std::vector<std::vector<std::int64_t>> source(static_cast<std::size_t>(backs_));
  std::vector<std::vector<Index>> after;  // by span: the row `back` tokens before what follows it
  std::vector<std::int64_t> kept;
  for (Index row = 0; row < remembered; ++row) kept.push_back(row);
  Index first = remembered;
  for (const Span& span : spans) {
    // The row `back` tokens before token j of this span.
    const auto row = [&](Index j, Index back) {
      if (back <= j) return first + j - back;
      const Index before = back - j;
      if (span.parent >= 0) return after[span.parent][before - 1];
      return before <= span.position ? span.from * backs_ + before - 1 : zero;
    };
    for (Index back = 1; back <= backs_; ++back)
      for (Index j = 0; j < span.count; ++j) source[back - 1].push_back(row(j, back));
    auto& ends = after.emplace_back();
    for (Index back = 1; back <= backs_; ++back) {
      ends.push_back(row(span.count, back));
      kept[span.slot * backs_ + back - 1] = ends.back();
    }
    first += span.count;
  }
  source_N_.clear();
  for (const auto& rows : source) source_N_.push_back(to_device(rows, device_));
  kept_ = to_device(kept, device_);
}

std::vector<at::Tensor> SpanHistory::rows(Index place, const at::Tensor& x, Index taps) {
  if (taps == 1) return {x};
  const at::Tensor x_N = x.squeeze(0);
  std::vector<std::int64_t> shape = x_N.sizes().vec();
  at::Tensor& remembered = remembered_[place];
  if (!remembered.defined()) {
    shape[0] = slots_ * backs_;
    remembered = at::zeros(shape, x.options());
  }
  shape[0] = 1;
  const at::Tensor all = at::cat({remembered, x_N, at::zeros(shape, x.options())});
  std::vector<at::Tensor> rows{x};
  for (Index back = 1; back < taps; ++back)
    rows.push_back(all.index_select(0, source_N_[back - 1]).unsqueeze(0));
  remembered = all.index_select(0, kept_);
  return rows;
}

void SpanHistory::copy_slot(Index to, Index from) {
  for (auto& [place, rows] : remembered_)
    rows.narrow(0, to * backs_, backs_).copy_(rows.narrow(0, from * backs_, backs_));
}

}  // namespace ddl
