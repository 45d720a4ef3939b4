#include "model/decoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "kernels/attention_paths.h"
#include "kernels/gemv.h"
#include "model/native/engine.h"
#include "model/native/network.h"
#include "model/native/products.h"

namespace ddl {
namespace {

// Appends of more tokens are multiplied in blocks by the library, where the weights are f32 or bf16 in place.
constexpr Index kLongAppend = kGemvTokens;

template <class T>
class NativeDecoder final : public Decoder, private KeyValueStore<T> {
 public:
  NativeDecoder(const Weights& weights, const DecoderShape& shape, const Exec& ex)
      : config_(weights.config()),
        slots_(shape.slots),
        context_(shape.context > 0 ? shape.context : config_.context),
        chunk_(std::min(std::max(shape.chunk, shape.slots), shape.slots * context_)),
        threads_(ex.threads),
        C_(config_.width),
        H_(config_.heads),
        K_(config_.head_size()),
        V_(config_.vocab),
        head_rows_(head_chunk_rows(chunk_, V_, kDecodingLogitsBytes)),
        network_(config_, matrices_of(weights.format())),
        products_(weights),
        length_(static_cast<std::size_t>(slots_), 0) {
    arena_ = Arena::planned([this](Arena& arena) { plan(arena); });
    network_.bind(weights, nullptr);
    products_.bind(network_.numbers());
  }

  const ModelConfig& config() const override { return config_; }
  Index slots() const override { return slots_; }
  Index context() const override { return context_; }
  Index length(Index slot) const override { return length_[slot]; }
  const Arena& arena() const override { return arena_; }

  void append(std::span<const Append> appends, const Exec& ex) override {
    run(
        appends, false,
        [&](Index i, Index, std::span<const float> logits) {
          std::copy(logits.begin(), logits.end(), last_logits_SV_ + i * V_);
        },
        ex);
  }
  std::span<const float> logits(Index append) const override {
    return {last_logits_SV_ + append * V_, static_cast<std::size_t>(V_)};
  }
  void append_visiting(std::span<const Append> appends, Visit visit, const Exec& ex) override {
    run(appends, true, visit, ex);
  }

  void reset(Index slot) override { length_[slot] = 0; }
  void copy(Index to_slot, Index from_slot) override {
    if (to_slot == from_slot) return;
    for (Index layer = 0; layer < config_.layers; ++layer)
      for (T* cache : {keys_, values_})
        std::memcpy(row(cache, layer, to_slot, 0), row(cache, layer, from_slot, 0),
                    static_cast<std::size_t>(length_[from_slot] * C_) * sizeof(T));
    network_.residual().copy_slot(to_slot, from_slot);
    length_[to_slot] = length_[from_slot];
  }

 private:
  // A row of this pass whose logits are wanted, and whose they are.
  struct Wanted {
    Index row, append, token;
  };

  T* row(T* cache, Index layer, Index slot, Index position) const {
    return cache + ((layer * slots_ + slot) * context_ + position) * C_;
  }

  void plan(Arena& arena) {
    token_N_ = arena.take<std::int32_t>("tokens", chunk_);
    position_N_ = arena.take<std::int32_t>("tokens", chunk_);
    keys_ = arena.take<T>("keys and values", config_.layers * slots_ * context_ * C_);
    values_ = arena.take<T>("keys and values", config_.layers * slots_ * context_ * C_);
    k_NC_ = arena.take<T>("activations", chunk_ * C_);
    wanted_RC_ = arena.take<T>("logits", head_rows_ * C_);
    logits_RV_ = arena.take<float>("logits", head_rows_ * V_);
    last_logits_SV_ = arena.take<float>("logits", slots_ * V_);
    attention_scratch_ =
        arena.take<float>("attention scores", attention_paths_scratch(context_, K_, threads_));
    const Index N = padded_rows(chunk_);
    products_.plan(arena, N);
    network_.plan(arena, {.tokens = N, .positions = context_, .slots = slots_, .threads = threads_});
  }

  void check(std::span<const Append> appends) const {
    std::vector<bool> taken(static_cast<std::size_t>(slots_), false);
    for (const Append& a : appends) {
      DDL_CHECK(a.slot >= 0 && a.slot < slots_ && !taken[a.slot], "slot {} of {}", a.slot, slots_);
      taken[a.slot] = true;
      check_append(a, length_[a.slot], context_, V_);
    }
  }

  // Cuts the appends into passes of at most chunk_ tokens, the long ones first.
  void run(std::span<const Append> appends, bool every_token, Visit visit, const Exec& ex) {
    check(appends);
    DDL_CHECK(ex.threads <= threads_, "planned for {} threads, run with {}", threads_, ex.threads);
    used_ = long_rows_ = 0;
    spans_.clear(), wanted_.clear();
    for (const bool is_long : {true, false})
      for (Index i = 0; i < std::ssize(appends); ++i)
        if ((std::ssize(appends[i].tokens) > kLongAppend) == is_long)
          enter(appends[i], i, every_token, visit, ex);
    pass(visit, ex);
  }

  void enter(const Append& a, Index append, bool every_token, Visit visit, const Exec& ex) {
    const Index total = std::ssize(a.tokens);
    for (Index done = 0; done < total;) {
      const Index count = std::min(total - done, chunk_ - used_), start = length_[a.slot];
      spans_.push_back({a.slot, start, count});
      for (Index j = 0; j < count; ++j) {
        token_N_[used_ + j] = a.tokens[done + j];
        position_N_[used_ + j] = static_cast<std::int32_t>(start + j);
        if (every_token || done + j + 1 == total) wanted_.push_back({used_ + j, append, done + j});
      }
      length_[a.slot] += count, used_ += count, done += count;
      if (total > kLongAppend) long_rows_ = used_;
      if (used_ == chunk_) pass(visit, ex);
    }
  }

  void pass(Visit visit, const Exec& ex) {
    if (used_ == 0) return;
    if (products_.dense()) products_.dense()->long_rows = long_rows_;
    const T* context_NC = network_.forward(
        token_N_,
        {.tokens = Tokens::of(spans_), .products = &products_.get(), .past = this, .position_N = position_N_},
        ex);
    head(context_NC, visit, ex);
    used_ = long_rows_ = 0;
    spans_.clear(), wanted_.clear();
  }

  // Keys and values of this pass enter the cache; then each span attends to its sequence.
  void attend(Index layer, Attention<T>& attention, const Exec& ex) override {
    const PackedQkv<T> qkv = attention.qkv(layer);
    attention.rotate(k_NC_, layer, 0, used_, ex);
    const std::size_t bytes = static_cast<std::size_t>(C_) * sizeof(T);
    Index n = 0;
    for (const Span& span : spans_) {
      std::memcpy(row(keys_, layer, span.slot, span.position), k_NC_ + n * C_,
                  static_cast<std::size_t>(span.count) * bytes);
      for (Index i = 0; i < span.count; ++i, ++n)
        std::memcpy(row(values_, layer, span.slot, span.position + i), qkv.v(n), bytes);
    }
    n = 0;
    key_rows_.clear(), queries_.clear();
    for (const Span& span : spans_)
      for (Index begin = 0; begin < span.count; begin += kPathQueries) {
        const Index count = std::min(kPathQueries, span.count - begin);
        key_rows_.push_back({row(keys_, layer, span.slot, 0), row(values_, layer, span.slot, 0), C_, C_,
                             span.position + begin + count});
        queries_.push_back({attention.o_NC(layer) + n * C_, attention.q_NC() + n * C_, C_, count, {}});
        n += count;
      }
    for (std::size_t i = 0; i < queries_.size(); ++i) queries_[i].keys = std::span(key_rows_).subspan(i, 1);
    attention_paths<T>(attention_scratch_, queries_, context_, H_, K_, ex);
  }

  void head(const T* context_NC, Visit visit, const Exec& ex) {
    const float scale = config_.logit_scale();
    for (Index begin = 0; begin < std::ssize(wanted_); begin += head_rows_) {
      const Index rows = std::min(head_rows_, std::ssize(wanted_) - begin);
      for (Index r = 0; r < rows; ++r)
        std::memcpy(wanted_RC_ + r * C_, context_NC + wanted_[begin + r].row * C_,
                    static_cast<std::size_t>(C_) * sizeof(T));
      network_.head().logits(logits_RV_, wanted_RC_, rows, products_.get(), ex);
      for (Index r = 0; r < rows; ++r) {
        float* logits = logits_RV_ + r * V_;
        if (scale != 1)
          for (Index v = 0; v < V_; ++v) logits[v] *= scale;
        visit(wanted_[begin + r].append, wanted_[begin + r].token, {logits, static_cast<std::size_t>(V_)});
      }
    }
  }

  const ModelConfig config_;
  const Index slots_, context_, chunk_;
  const int threads_;  // attention's scratch is planned for these
  const Index C_, H_, K_, V_, head_rows_;
  Network<T> network_;
  InferenceProducts<T, DecodingProducts<T>> products_;

  std::vector<Index> length_;       // by slot
  Index used_ = 0, long_rows_ = 0;  // tokens of this pass so far, and those of long appends
  std::vector<Span> spans_;
  std::vector<Wanted> wanted_;
  std::vector<KeyRows<T>> key_rows_;
  std::vector<PathQueries<T>> queries_;

  Arena arena_ = Arena::measuring();
  std::int32_t *token_N_ = nullptr, *position_N_ = nullptr;
  T *keys_ = nullptr, *values_ = nullptr;  // [layers][slots][context][C]
  T *k_NC_ = nullptr, *wanted_RC_ = nullptr;
  float *logits_RV_ = nullptr, *last_logits_SV_ = nullptr, *attention_scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> make_native_decoder(const Weights& weights, const DecoderShape& shape,
                                             const Exec& ex) {
  if (weights.config().uses_bf16()) return std::make_unique<NativeDecoder<bf16>>(weights, shape, ex);
  return std::make_unique<NativeDecoder<float>>(weights, shape, ex);
}

}  // namespace ddl
