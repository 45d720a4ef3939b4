#include "torch/tree_scorer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "model/tree_walk.h"
#include "torch/host_tensor.h"
#include "torch/inference_network.h"
#include "torch/translated.h"

namespace ddl {
namespace {

constexpr const char* kScoringAdvice = "fewer tokens at a time (eval --batch-tokens) need less";

class TorchTreeScorer final : public TreeScorer, private KeysAndValues {
 public:
  TorchTreeScorer(const Weights& weights, const TreeShape& shape, const TorchPlace& place)
      : config_(weights.config()),
        shape_(shape),
        walk_(config_, shape_),
        network_(weights, place, shape.depths) {
    for (at::Tensor* kept : {&kept_keys_, &kept_values_}) {
      *kept = network_.empty_cache({config_.layers, config_.context, config_.heads, config_.head_size()});
      arena_.take<std::byte>("keys and values of a path", static_cast<Index>(kept->nbytes()));
    }
  }

  const ModelConfig& config() const override { return config_; }
  TreeShape shape() const override { return shape_; }
  const Arena& arena() const override { return arena_; }

  void run(std::span<const TreeRun> runs, Visit visit, const Exec& ex) override {
    token_N_.clear();
    walk_.run(
        runs,
        [&](std::span<const std::int32_t> tokens) {
          token_N_.insert(token_N_.end(), tokens.begin(), tokens.end());
        },
        [&] { pass(visit, ex); });
  }

 private:
  void pass(Visit visit, const Exec& ex) {
    const at::NoGradGuard no_graph;
    translated(kScoringAdvice, [&] {
      make_mask();
      std::vector<std::int64_t> rows, positions;
      for (const TreeWalk::Piece& piece : walk_.path())
        for (Index i = 0; i < piece.count; ++i)
          rows.push_back(piece.row + i), positions.push_back(piece.position + i);
      path_rows_ = to_device(rows, network_.device());
      path_positions_ = to_device(positions, network_.device());
      head(network_.forward(token_N_, walk_.spans(), *this, ex), visit);
    });
    token_N_.clear();
  }

  // Which keys a token sees, of the path that earlier passes left and of this pass: what the token before it
  // sees, and itself.
  void make_mask() {
    const Index N = walk_.tokens(), past = walk_.past(), L = past + N;
    const at::Tensor mask_NL = at::zeros({N, L}, at::kBool);
    auto* const mask = static_cast<bool*>(mask_NL.data_ptr());
    std::vector<Index> last_row;  // by span
    Index row = 0;
    for (const Span& span : walk_.spans()) {
      for (Index i = 0; i < span.count; ++i, ++row) {
        if (i > 0 || span.parent >= 0)
          std::copy_n(mask + (i > 0 ? row - 1 : last_row[span.parent]) * L, L, mask + row * L);
        else
          std::fill_n(mask + row * L, span.position, true);
        mask[row * L + past + row] = true;
      }
      last_row.push_back(row - 1);
    }
    mask_11NL_ = mask_NL.to(network_.device()).view({1, 1, N, L});
  }

  // One attention for the whole pass. Afterwards the path to its last token is kept for the next one.
  at::Tensor attend(Index layer, const at::Tensor& q_NHK, const at::Tensor& k_NHK,
                    const at::Tensor& v_NHK) override {
    const auto with_kept_1HLK = [&](const at::Tensor& kept, const at::Tensor& rows_NHK) {
      return at::cat({kept.select(0, layer).narrow(0, 0, walk_.past()), rows_NHK})
          .transpose(0, 1)
          .unsqueeze(0);
    };
    const at::Tensor o = at::scaled_dot_product_attention(q_NHK.transpose(0, 1).unsqueeze(0),
                                                          with_kept_1HLK(kept_keys_, k_NHK),
                                                          with_kept_1HLK(kept_values_, v_NHK), mask_11NL_);
    kept_keys_.select(0, layer).index_copy_(0, path_positions_, k_NHK.index_select(0, path_rows_));
    kept_values_.select(0, layer).index_copy_(0, path_positions_, v_NHK.index_select(0, path_rows_));
    return o.squeeze(0).transpose(0, 1);
  }

  // log_sum = log sum_v exp(scale (z_v - largest)), the sum in double precision.
  void head(const at::Tensor& context_NC, Visit visit) {
    NextToken next;
    next.scale = config_.logit_scale();
    std::vector<std::int64_t> row_R;
    for (const TreeWalk::Wanted& wanted : walk_.wanted()) row_R.push_back(wanted.row);
    network_.logits(context_NC, row_R, [&](Index first, const at::Tensor& z_RV) {
      const at::Tensor largest_R1 = z_RV.amax(1, /*keepdim=*/true);
      const at::Tensor sum_R =
          ((z_RV - largest_R1) * next.scale).exp_().sum({1}, /*keepdim=*/false, at::kDouble);
      const at::Tensor z = z_RV.cpu(), largest = largest_R1.cpu(), log_sum = sum_R.log().cpu();
      for (Index r = 0; r < z.size(0); ++r) {
        next.logits_V = {static_cast<const float*>(z.data_ptr()) + r * config_.vocab,
                         static_cast<std::size_t>(config_.vocab)};
        next.largest = static_cast<const float*>(largest.data_ptr())[r];
        next.log_sum = static_cast<const double*>(log_sum.data_ptr())[r];
        visit(walk_.wanted()[first + r].run, walk_.wanted()[first + r].token, next);
      }
    });
  }

  const ModelConfig config_;
  const TreeShape shape_;
  TreeWalk walk_;
  InferenceNetwork network_;
  at::Tensor kept_keys_, kept_values_;  // [layers][context][H][K], by position
  Arena arena_ = Arena::measuring();

  // Of this pass.
  std::vector<std::int64_t> token_N_;
  at::Tensor mask_11NL_, path_rows_, path_positions_;
};

}  // namespace

std::unique_ptr<TreeScorer> make_torch_tree_scorer(const Weights& weights, const TreeShape& shape,
                                                   const TorchPlace& place) {
  return translated(kScoringAdvice, [&] { return std::make_unique<TorchTreeScorer>(weights, shape, place); });
}

}  // namespace ddl
