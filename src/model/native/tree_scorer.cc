#include "model/tree_scorer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/profiler.h"
#include "kernels/attention_paths.h"
#include "kernels/gemm.h"
#include "kernels/softmax_xent.h"
#include "model/native/engine.h"
#include "model/native/network.h"
#include "model/native/products.h"
#include "model/tree_walk.h"

namespace ddl {

namespace {

constexpr Index kHeadRows = 96;  // tokens whose logits are held at once
static_assert(kHeadRows % kTileRows == 0);

template <class T>
class NativeTreeScorer final : public TreeScorer, private KeyValueStore<T> {
 public:
  NativeTreeScorer(const Weights& weights, const TreeShape& shape, const Exec& ex)
      : config_(weights.config()),
        shape_{padded_rows(shape.batch_tokens), shape.depths},
        threads_(ex.threads),
        C_(config_.width),
        H_(config_.heads),
        K_(config_.head_size()),
        V_(config_.vocab),
        network_(config_, matrices_of(weights.format())),
        products_(weights),
        walk_(config_, shape_) {
    arena_ = Arena::planned([this](Arena& arena) { plan(arena); });
    network_.bind(weights, nullptr);
    products_.bind(network_.numbers());
  }

  const ModelConfig& config() const override { return config_; }
  TreeShape shape() const override { return shape_; }
  const Arena& arena() const override { return arena_; }

  void run(std::span<const TreeRun> runs, Visit visit, const Exec& ex) override {
    DDL_CHECK(ex.threads <= threads_, "planned for {} threads, run with {}", threads_, ex.threads);
    keys_.clear(), queries_.clear(), pending_.clear();
    walk_.run(
        runs, [&](std::span<const std::int32_t> tokens) { enter(tokens); }, [&] { pass(visit, ex); });
    head(visit, ex);
  }

 private:
  using Piece = TreeWalk::Piece;
  // Keys of this pass's queries: rows of this pass, or of the kept path.
  struct Keys {
    bool kept;
    Index begin, count;
  };
  struct Queries {
    Index row, count, first_keys, keys;
  };

  T* kept_row(T* rows, Index layer, Index position) const {
    return rows + (layer * config_.context + position) * C_;
  }

  void plan(Arena& arena) {
    const Index N = shape_.batch_tokens, context = config_.context;
    token_N_ = arena.take<std::int32_t>("tokens", N);
    position_N_ = arena.take<std::int32_t>("tokens", N);
    kept_keys_ = arena.take<T>("keys and values of a path", config_.layers * context * C_);
    kept_values_ = arena.take<T>("keys and values of a path", config_.layers * context * C_);
    k_NC_ = arena.take<T>("activations", N * C_);
    attention_scratch_ =
        arena.take<float>("attention scores", attention_paths_scratch(context, K_, threads_));
    wanted_RC_ = arena.take<T>("logits", kHeadRows * C_);
    logits_RV_ = arena.take<float>("logits", kHeadRows * V_);
    products_.plan(arena, N);
    network_.plan(arena, {.tokens = N, .positions = context, .slots = shape_.depths, .threads = threads_});
  }

  // Tokens that are the last span of this pass now.
  void enter(std::span<const std::int32_t> tokens) {
    const Piece own = walk_.path().back();
    for (Index begin = 0; begin < own.count; begin += kPathQueries) {
      const Index queries = std::min(kPathQueries, own.count - begin), first = std::ssize(keys_);
      if (walk_.kept() > 0) keys_.push_back({true, 0, walk_.kept()});
      for (const Piece& piece : walk_.path()) keys_.push_back({false, piece.row, piece.count});
      keys_.back().count = begin + queries;
      queries_.push_back({own.row + begin, queries, first, std::ssize(keys_) - first});
    }
    for (Index i = 0; i < own.count; ++i) {
      token_N_[own.row + i] = tokens[i];
      position_N_[own.row + i] = static_cast<std::int32_t>(own.position + i);
    }
  }

  void pass(Visit visit, const Exec& ex) {
    const T* context_NC = network_.forward(token_N_,
                                           {.tokens = Tokens::of(walk_.spans()),
                                            .products = &products_.get(),
                                            .past = this,
                                            .position_N = position_N_},
                                           ex);
    for (const TreeWalk::Wanted& wanted : walk_.wanted()) {
      std::memcpy(wanted_RC_ + std::ssize(pending_) * C_, context_NC + wanted.row * C_,
                  static_cast<std::size_t>(C_) * sizeof(T));
      pending_.push_back(wanted);
      if (std::ssize(pending_) == kHeadRows) head(visit, ex);
    }
    keys_.clear(), queries_.clear();
  }

  void attend(Index layer, Attention<T>& attention, const Exec& ex) override {
    const PackedQkv<T> qkv = attention.qkv(layer);
    attention.rotate(k_NC_, layer, 0, walk_.tokens(), ex);
    key_rows_.clear(), path_queries_.clear();
    for (const Keys& keys : keys_)
      if (keys.kept)
        key_rows_.push_back(
            {kept_row(kept_keys_, layer, 0), kept_row(kept_values_, layer, 0), C_, C_, keys.count});
      else
        key_rows_.push_back({k_NC_ + keys.begin * C_, qkv.v(keys.begin), C_, qkv.stride, keys.count});
    for (const Queries& q : queries_)
      path_queries_.push_back({attention.o_NC(layer) + q.row * C_, attention.q_NC() + q.row * C_, C_, q.count,
                               std::span(key_rows_).subspan(static_cast<std::size_t>(q.first_keys),
                                                            static_cast<std::size_t>(q.keys))});
    attention_paths<T>(attention_scratch_, path_queries_, config_.context, H_, K_, ex);
    keep_path(layer, qkv);
  }

  // The path to this pass's last token, for the next pass.
  void keep_path(Index layer, const PackedQkv<T>& qkv) {
    const std::size_t bytes = static_cast<std::size_t>(C_) * sizeof(T);
    for (const Piece& piece : walk_.path())
      for (Index i = 0; i < piece.count; ++i) {
        const Index row = piece.row + i;
        std::memcpy(kept_row(kept_keys_, layer, piece.position + i), k_NC_ + row * C_, bytes);
        std::memcpy(kept_row(kept_values_, layer, piece.position + i), qkv.v(row), bytes);
      }
  }

  // The rows that have gathered, of one pass or several.
  void head(Visit visit, const Exec& ex) {
    if (pending_.empty()) return;
    const Index rows = std::ssize(pending_);
    NextToken next;
    next.scale = config_.logit_scale();
    network_.head().logits(logits_RV_, wanted_RC_, rows, products_.get(), ex);
    SoftmaxStats stats[kHeadRows];
    {
      const ProfileScope scope("softmax", ex);
      softmax_stats(stats, logits_RV_, next.scale, rows, V_, ex);
    }
    for (Index i = 0; i < rows; ++i) {
      next.logits_V = {logits_RV_ + i * V_, static_cast<std::size_t>(V_)};
      next.largest = stats[i].largest, next.log_sum = stats[i].log_sum;
      visit(pending_[i].run, pending_[i].token, next);
    }
    pending_.clear();
  }

  const ModelConfig config_;
  const TreeShape shape_;
  const int threads_;  // attention's scratch is planned for these
  const Index C_, H_, K_, V_;
  Network<T> network_;
  InferenceProducts<T, BlockProducts<T>> products_;

  TreeWalk walk_;
  std::vector<Keys> keys_;  // of this pass
  std::vector<Queries> queries_;
  std::vector<TreeWalk::Wanted> pending_;  // rows that wait for the head
  std::vector<KeyRows<T>> key_rows_;
  std::vector<PathQueries<T>> path_queries_;

  Arena arena_ = Arena::measuring();
  std::int32_t *token_N_ = nullptr, *position_N_ = nullptr;
  T *kept_keys_ = nullptr, *kept_values_ = nullptr;  // [layers][context][C]
  T *k_NC_ = nullptr, *wanted_RC_ = nullptr;
  float *logits_RV_ = nullptr, *attention_scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<TreeScorer> make_native_tree_scorer(const Weights& weights, const TreeShape& shape,
                                                    const Exec& ex) {
  if (weights.config().uses_bf16()) return std::make_unique<NativeTreeScorer<bf16>>(weights, shape, ex);
  return std::make_unique<NativeTreeScorer<float>>(weights, shape, ex);
}

}  // namespace ddl
