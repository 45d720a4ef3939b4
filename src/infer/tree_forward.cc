#include "infer/tree_forward.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/profiler.h"
#include "kernels/attention_paths.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/rope_qknorm.h"
#include "kernels/swiglu.h"
#include "model/layout.h"
#include "model/residual/residual.h"

namespace ddl {

bool NextToken::is_most_likely(std::int32_t token) const {
  return logits_V[token] == stats.largest &&
         std::find(logits_V.begin(), logits_V.begin() + token, stats.largest) == logits_V.begin() + token;
}

namespace {

template <class T>
class TransformerTree final : public TreeForward {
 public:
  TransformerTree(Model& model, const TreeShape& shape, const Exec& ex)
      : config_(model.config()),
        N_(padded_rows(shape.batch_tokens)),
        depths_(shape.depths),
        threads_(ex.threads),
        C_(config_.width),
        F_(config_.mlp_width()),
        H_(config_.heads),
        K_(config_.head_size()),
        V_(config_.vocab),
        residual_(make_residual<T>(config_, {1, N_})),
        params_(model.params().data()) {
    ParamTable table;
    layout_ = add_transformer_params(table, config_);
    residual_->add_params(table);
    DDL_CHECK(table.floats() == model.table().floats(), "{} and {} floats of parameters", table.floats(),
              model.table().floats());
    if constexpr (std::is_same_v<T, bf16>)
      params_T_ = model.bf16_copy();
    else
      params_T_ = params_;
    Arena measured = Arena::measuring();
    plan(measured);
    arena_ = Arena::owning(measured.used_bytes());
    plan(arena_);
    residual_->bind(params_, params_T_, nullptr);
    fill_rope_table(rope_TK_, config_.context, K_);
  }

  const ModelConfig& config() const override { return config_; }
  TreeShape shape() const override { return {N_, depths_}; }
  const Arena& arena() const override { return arena_; }

  void run(std::span<const TreeRun> runs, Visit visit, const Exec& ex) override {
    check(runs);
    DDL_CHECK(ex.threads <= threads_, "planned for {} threads, run with {}", threads_, ex.threads);
    forget_pass();
    kept_ = 0, pending_.clear();
    for (Index r = 0; r < std::ssize(runs); ++r) {
      const TreeRun& run = runs[r];
      const Index total = std::ssize(run.tokens);
      for (Index done = 0; done < total;) {
        const Index count = std::min(total - done, N_ - used_);
        enter(run, r, done, count);
        done += count;
        if (used_ == N_) pass(visit, ex);
      }
    }
    if (used_ > 0) pass(visit, ex);
    head(visit, ex);
  }

 private:
  // Of the path to the last token: a span of this pass, or part of one. What lies before the first is kept
  // from earlier passes.
  struct Piece {
    Index span, row, position, count;
    Index end() const { return position + count; }
  };
  // Keys of this pass's queries: rows of this pass, or of the kept path.
  struct Keys {
    bool kept;
    Index begin, count;
  };
  struct Queries {
    Index row, count, first_keys, keys;
  };
  struct Wanted {
    Index row, run, token;
  };

  const T* w(Index offset) const { return params_T_ + offset; }
  T* kept_row(T* rows, Index layer, Index position) const {
    return rows + (layer * config_.context + position) * C_;
  }

  void plan(Arena& arena) {
    const Index context = config_.context;
    kept_keys_ = arena.take<T>("keys and values of a path", config_.layers * context * C_);
    kept_values_ = arena.take<T>("keys and values of a path", config_.layers * context * C_);
    rope_TK_ = arena.take<float>("rotary table", context * K_);
    token_N_ = arena.take<std::int32_t>("tokens", N_);
    position_N_ = arena.take<std::int32_t>("tokens", N_);
    x_NC_ = arena.take<float>("activations", N_ * C_);
    context_NC_ = arena.take<T>("activations", N_ * C_);
    h_NC_ = arena.take<T>("activations", N_ * C_);
    qkv_N3C_ = arena.take<T>("activations", N_ * 3 * C_);
    q_NC_ = arena.take<T>("activations", N_ * C_);
    k_NC_ = arena.take<T>("activations", N_ * C_);
    o_NC_ = arena.take<T>("activations", N_ * C_);
    gate_up_N2F_ = arena.take<T>("activations", N_ * 2 * F_);
    hidden_NF_ = arena.take<T>("activations", N_ * F_);
    rstd_N2H_ = arena.take<float>("activations", N_ * 2 * H_);
    attention_scratch_ =
        arena.take<float>("attention scores", attention_paths_scratch(context, K_, threads_));
    wanted_RC_ = arena.take<T>("logits", kBlockRows * C_);
    logits_RV_ = arena.take<float>("logits", kBlockRows * V_);
    residual_->plan_decode(arena, depths_);
  }

  void check(std::span<const TreeRun> runs) const {
    for (const TreeRun& run : runs) {
      DDL_CHECK(run.depth >= 0 && run.depth < depths_ && !run.tokens.empty() && run.first_wanted >= 0,
                "a run of {} tokens at depth {} of {}", run.tokens.size(), run.depth, depths_);
      if (run.position + std::ssize(run.tokens) > config_.context)
        throw UserError("a sequence of {} tokens: this model was made for {} (model.context)",
                        run.position + std::ssize(run.tokens), config_.context);
      for (const std::int32_t token : run.tokens)
        if (token < 0 || token >= V_)
          throw UserError("token {} is not in the model's vocabulary of {}", token, V_);
    }
  }

  // Adds tokens [done, done + count) of a run to this pass.
  void enter(const TreeRun& run, Index r, Index done, Index count) {
    const Index position = run.position + done;
    while (!path_.empty() && path_.back().position >= position) path_.pop_back();
    DDL_CHECK(path_.empty() ? position <= kept_ : path_.back().end() == position,
              "a run at position {} does not follow the one before it", position);
    if (path_.empty()) kept_ = position;

    DecodeSpan span{.slot = run.depth, .position = position, .count = count};
    if (!path_.empty())
      span.parent = path_.back().span;
    else if (done == 0 && position > 0)
      span.from = run.depth - 1;
    path_.push_back({std::ssize(spans_), used_, position, count});
    spans_.push_back(span);

    for (Index begin = 0; begin < count; begin += kPathQueries) {
      const Index queries = std::min(kPathQueries, count - begin), first = std::ssize(keys_);
      if (kept_ > 0) keys_.push_back({true, 0, kept_});
      for (const Piece& piece : path_) keys_.push_back({false, piece.row, piece.count});
      keys_.back().count = begin + queries;
      queries_.push_back({used_ + begin, queries, first, std::ssize(keys_) - first});
    }
    for (Index i = 0; i < count; ++i) {
      token_N_[used_ + i] = run.tokens[done + i];
      position_N_[used_ + i] = static_cast<std::int32_t>(position + i);
      if (done + i >= run.first_wanted) wanted_.push_back({used_ + i, r, done + i});
    }
    used_ += count;
  }

  void pass(Visit visit, const Exec& ex) {
    embedding_fwd<float, float>(x_NC_, params_ + layout_.wte, token_N_, used_, V_, C_, ex);
    {
      const ProfileScope scope("residual", ex);
      residual_->decode_open(context_NC_, x_NC_, spans_, ex);
    }
    for (Index s = 0; s < config_.sublayers(); ++s) {
      if (s % 2 == 0)
        attention(s / 2, ex);
      else
        mlp(s / 2, ex);
      const ProfileScope scope("residual", ex);
      residual_->decode_advance(s, context_NC_, h_NC_, spans_, ex);
    }
    for (const Wanted& wanted : wanted_) {
      std::memcpy(wanted_RC_ + std::ssize(pending_) * C_, context_NC_ + wanted.row * C_,
                  static_cast<std::size_t>(C_) * sizeof(T));
      pending_.push_back(wanted);
      if (std::ssize(pending_) == kBlockRows) head(visit, ex);
    }
    kept_ = path_.back().end();
    forget_pass();
  }

  void forget_pass() {
    used_ = 0;
    path_.clear(), spans_.clear(), keys_.clear(), queries_.clear(), wanted_.clear();
  }

  void linear(T* y, const T* x, Index weight, Index out, Index in, const Exec& ex) {
    const ProfileScope scope("linear", ex);
    linear_blocks<T, T>(y, x, w(weight), used_, out, in, ex);
  }

  void attention(Index layer, const Exec& ex) {
    const TransformerLayout::Layer& p = layout_.layers[layer];
    linear(qkv_N3C_, context_NC_, p.qkv, 3 * C_, C_, ex);
    {
      const ProfileScope scope("attention", ex);
      rope_qknorm_fwd<T>(q_NC_, k_NC_, rstd_N2H_, qkv_N3C_, params_ + p.q_norm, params_ + p.k_norm, rope_TK_,
                         position_N_, used_, config_.context, H_, K_, ex);
      key_rows_.clear(), path_queries_.clear();
      for (const Keys& keys : keys_)
        if (keys.kept)
          key_rows_.push_back(
              {kept_row(kept_keys_, layer, 0), kept_row(kept_values_, layer, 0), C_, C_, keys.count});
        else
          key_rows_.push_back(
              {k_NC_ + keys.begin * C_, qkv_N3C_ + keys.begin * 3 * C_ + 2 * C_, C_, 3 * C_, keys.count});
      for (const Queries& q : queries_)
        path_queries_.push_back({o_NC_ + q.row * C_, q_NC_ + q.row * C_, C_, q.count,
                                 std::span(key_rows_).subspan(static_cast<std::size_t>(q.first_keys),
                                                              static_cast<std::size_t>(q.keys))});
      attention_paths<T>(attention_scratch_, path_queries_, config_.context, H_, K_, ex);
      keep_path(layer);
    }
    linear(h_NC_, o_NC_, p.attn_out, C_, C_, ex);
  }

  // The path to this pass's last token, for the next pass.
  void keep_path(Index layer) {
    const std::size_t bytes = static_cast<std::size_t>(C_) * sizeof(T);
    for (const Piece& piece : path_)
      for (Index i = 0; i < piece.count; ++i) {
        const Index row = piece.row + i;
        std::memcpy(kept_row(kept_keys_, layer, piece.position + i), k_NC_ + row * C_, bytes);
        std::memcpy(kept_row(kept_values_, layer, piece.position + i), qkv_N3C_ + row * 3 * C_ + 2 * C_,
                    bytes);
      }
  }

  void mlp(Index layer, const Exec& ex) {
    const TransformerLayout::Layer& p = layout_.layers[layer];
    linear(gate_up_N2F_, context_NC_, p.mlp_in, 2 * F_, C_, ex);
    {
      const ProfileScope scope("swiglu", ex);
      swiglu_fwd<T>(hidden_NF_, gate_up_N2F_, used_, F_, ex);
    }
    linear(h_NC_, hidden_NF_, p.mlp_out, C_, F_, ex);
  }

  // The rows that have gathered, of one pass or several.
  void head(Visit visit, const Exec& ex) {
    if (pending_.empty()) return;
    const Index rows = std::ssize(pending_);
    NextToken next;
    next.scale = config_.logit_scale();
    {
      const ProfileScope scope("head", ex);
      linear_blocks<T, float>(logits_RV_, wanted_RC_, w(layout_.wte), rows, V_, C_, ex);
    }
    SoftmaxStats stats[kBlockRows];
    {
      const ProfileScope scope("softmax", ex);
      softmax_stats(stats, logits_RV_, next.scale, rows, V_, ex);
    }
    for (Index i = 0; i < rows; ++i) {
      next.logits_V = {logits_RV_ + i * V_, static_cast<std::size_t>(V_)};
      next.stats = stats[i];
      visit(pending_[i].run, pending_[i].token, next);
    }
    pending_.clear();
  }

  const ModelConfig config_;
  const Index N_, depths_;
  const int threads_;  // attention's scratch is planned for these
  const Index C_, F_, H_, K_, V_;
  std::unique_ptr<Residual<T>> residual_;
  TransformerLayout layout_;
  const float* params_;
  const T* params_T_ = nullptr;

  Index used_ = 0;  // tokens of this pass so far
  Index kept_ = 0;  // tokens of the path that earlier passes left and this one has not left yet
  std::vector<Piece> path_;
  std::vector<DecodeSpan> spans_;
  std::vector<Keys> keys_;
  std::vector<Queries> queries_;
  std::vector<Wanted> wanted_, pending_;
  std::vector<KeyRows<T>> key_rows_;
  std::vector<PathQueries<T>> path_queries_;

  Arena arena_ = Arena::measuring();
  T *kept_keys_ = nullptr, *kept_values_ = nullptr;  // [layers][context][C]
  float* rope_TK_ = nullptr;
  std::int32_t *token_N_ = nullptr, *position_N_ = nullptr;
  float* x_NC_ = nullptr;
  T *context_NC_ = nullptr, *h_NC_ = nullptr, *qkv_N3C_ = nullptr, *q_NC_ = nullptr, *k_NC_ = nullptr,
    *o_NC_ = nullptr;
  T *gate_up_N2F_ = nullptr, *hidden_NF_ = nullptr, *wanted_RC_ = nullptr;
  float *rstd_N2H_ = nullptr, *logits_RV_ = nullptr, *attention_scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<TreeForward> make_tree_forward(Model& model, const TreeShape& shape, const Exec& ex) {
  if (shape.batch_tokens < 1) throw UserError("{} tokens at a time: expected at least 1", shape.batch_tokens);
  DDL_CHECK(shape.depths > 0, "{} depths", shape.depths);
  if (model.config().uses_bf16()) return std::make_unique<TransformerTree<bf16>>(model, shape, ex);
  return std::make_unique<TransformerTree<float>>(model, shape, ex);
}

}  // namespace ddl
