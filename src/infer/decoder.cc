#include "infer/decoder.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/profiler.h"
#include "kernels/attention.h"
#include "kernels/attention_decode.h"
#include "kernels/embedding.h"
#include "kernels/gemv.h"
#include "kernels/rope_qknorm.h"
#include "kernels/swiglu.h"
#include "model/layout.h"
#include "model/residual/residual.h"

namespace ddl {
namespace {

constexpr Index kShortSpan = 8;                  // up to here queries go over the cache one by one
constexpr Index kQueriesAtOnce = 64;             // of those
constexpr std::size_t kLogitsBytes = 16u << 20;  // of one piece of the head

template <class T>
class TransformerDecoder final : public Decoder {
 public:
  TransformerDecoder(Model& model, const DecoderShape& shape, const Exec& ex)
      : config_(model.config()),
        slots_(shape.slots),
        context_(shape.context > 0 ? shape.context : config_.context),
        chunk_(std::min(std::max(shape.chunk, shape.slots), shape.slots * context_)),
        threads_(ex.threads),
        C_(config_.width),
        F_(config_.mlp_width()),
        H_(config_.heads),
        K_(config_.head_size()),
        V_(config_.vocab),
        head_rows_(std::clamp<Index>(static_cast<Index>(kLogitsBytes / sizeof(float)) / V_, 1, chunk_)),
        residual_(make_residual<T>(config_, {1, chunk_})),
        params_(model.params().data()),
        length_(static_cast<std::size_t>(slots_), 0) {
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
    fill_rope_table(rope_TK_, context_, K_);
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
    residual_->decode_copy(to_slot, from_slot);
    length_[to_slot] = length_[from_slot];
  }

 private:
  // A row of this pass whose logits are wanted, and whose they are.
  struct Wanted {
    Index row, append, token;
  };

  const T* w(Index offset) const { return params_T_ + offset; }
  T* row(T* cache, Index layer, Index slot, Index position) const {
    return cache + ((layer * slots_ + slot) * context_ + position) * C_;
  }

  void plan(Arena& arena) {
    const Index N = chunk_;
    keys_ = arena.take<T>("keys and values", config_.layers * slots_ * context_ * C_);
    values_ = arena.take<T>("keys and values", config_.layers * slots_ * context_ * C_);
    rope_TK_ = arena.take<float>("rotary table", context_ * K_);
    token_N_ = arena.take<std::int32_t>("tokens", N);
    position_N_ = arena.take<std::int32_t>("tokens", N);
    x_NC_ = arena.take<float>("activations", N * C_);
    context_NC_ = arena.take<T>("activations", N * C_);
    h_NC_ = arena.take<T>("activations", N * C_);
    qkv_N3C_ = arena.take<T>("activations", N * 3 * C_);
    q_NC_ = arena.take<T>("activations", N * C_);
    o_NC_ = arena.take<T>("activations", N * C_);
    gate_up_N2F_ = arena.take<T>("activations", N * 2 * F_);
    hidden_NF_ = arena.take<T>("activations", N * F_);
    rstd_N2H_ = arena.take<float>("activations", N * 2 * H_);
    lse_NH_ = arena.take<float>("activations", N * H_);
    wanted_RC_ = arena.take<T>("logits", head_rows_ * C_);
    logits_RV_ = arena.take<float>("logits", head_rows_ * V_);
    last_logits_SV_ = arena.take<float>("logits", slots_ * V_);
    extend_scratch_ = arena.take<std::byte>("attention blocks",
                                            static_cast<Index>(attention_scratch_bytes(N, K_, threads_)));
    decode_scratch_ = arena.take<float>(
        "attention blocks", attention_decode_scratch(std::min(N, kQueriesAtOnce), context_, H_, K_));
    residual_->plan_decode(arena, slots_);
  }

  void check(std::span<const Append> appends) const {
    std::vector<bool> taken(static_cast<std::size_t>(slots_), false);
    for (const Append& a : appends) {
      DDL_CHECK(a.slot >= 0 && a.slot < slots_ && !taken[a.slot], "slot {} of {}", a.slot, slots_);
      DDL_CHECK(!a.tokens.empty(), "nothing to append to slot {}", a.slot);
      taken[a.slot] = true;
      if (length_[a.slot] + std::ssize(a.tokens) > context_)
        throw UserError(
            "a sequence of {} tokens: this model was made for {} (model.context); shorten it, or let the "
            "context slide",
            length_[a.slot] + std::ssize(a.tokens), context_);
      for (const std::int32_t token : a.tokens)
        if (token < 0 || token >= V_)
          throw UserError("token {} is not in the model's vocabulary of {}", token, V_);
    }
  }

  // Cuts the appends into passes of at most chunk_ tokens.
  void run(std::span<const Append> appends, bool every_token, Visit visit, const Exec& ex) {
    check(appends);
    DDL_CHECK(ex.threads <= threads_, "planned for {} threads, run with {}", threads_, ex.threads);
    Index used = 0;
    spans_.clear(), wanted_.clear();
    const auto flush = [&] {
      if (used > 0) pass(used, visit, ex);
      used = 0, spans_.clear(), wanted_.clear();
    };
    for (Index i = 0; i < std::ssize(appends); ++i) {
      const Append& a = appends[i];
      const Index total = std::ssize(a.tokens);
      for (Index done = 0; done < total;) {
        const Index count = std::min(total - done, chunk_ - used), start = length_[a.slot];
        spans_.push_back({a.slot, start, count});
        for (Index j = 0; j < count; ++j) {
          token_N_[used + j] = a.tokens[done + j];
          position_N_[used + j] = static_cast<std::int32_t>(start + j);
          if (every_token || done + j + 1 == total) wanted_.push_back({used + j, i, done + j});
        }
        length_[a.slot] += count, used += count, done += count;
        if (used == chunk_) flush();
      }
    }
    flush();
  }

  void pass(Index N, Visit visit, const Exec& ex) {
    embedding_fwd<float, float>(x_NC_, params_ + layout_.wte, token_N_, N, V_, C_, ex);
    residual_->decode_open(context_NC_, x_NC_, spans_, ex);
    for (Index s = 0; s < config_.sublayers(); ++s) {
      if (s % 2 == 0)
        attention(s / 2, N, ex);
      else
        mlp(s / 2, N, ex);
      const ProfileScope scope("residual", ex);
      residual_->decode_advance(s, context_NC_, h_NC_, spans_, ex);
    }
    head(visit, ex);
  }

  void linear(T* y, const T* x, Index weight, Index N, Index out, Index in, const Exec& ex) {
    const ProfileScope scope("linear", ex);
    linear_decode<T, T>(y, x, w(weight), N, out, in, ex);
  }

  void attention(Index layer, Index N, const Exec& ex) {
    const TransformerLayout::Layer& p = layout_.layers[layer];
    linear(qkv_N3C_, context_NC_, p.qkv, N, 3 * C_, C_, ex);
    {
      const ProfileScope scope("attention", ex);
      Index n = 0;
      for (const DecodeSpan& span : spans_) {
        store(layer, span, n, ex);
        n += span.count;
      }
      n = 0;
      queries_.clear();
      for (const DecodeSpan& span : spans_) {
        if (span.count > kShortSpan)
          attention_extend<T>({o_NC_ + n * C_, C_}, lse_NH_, extend_scratch_, {q_NC_ + n * C_, C_},
                              {row(keys_, layer, span.slot, 0), C_}, {row(values_, layer, span.slot, 0), C_},
                              span.position, span.count, H_, K_, ex);
        else
          for (Index i = 0; i < span.count; ++i) {
            queries_.push_back({o_NC_ + (n + i) * C_, q_NC_ + (n + i) * C_, row(keys_, layer, span.slot, 0),
                                row(values_, layer, span.slot, 0), C_, span.position + i + 1});
            if (std::ssize(queries_) == kQueriesAtOnce) answer_queries(ex);
          }
        n += span.count;
      }
      answer_queries(ex);
    }
    linear(h_NC_, o_NC_, p.attn_out, N, C_, C_, ex);
  }

  // Rotates and normalises a span's queries and keys; its keys and values enter the cache.
  void store(Index layer, const DecodeSpan& span, Index n, const Exec& ex) {
    const TransformerLayout::Layer& p = layout_.layers[layer];
    const T* qkv = qkv_N3C_ + n * 3 * C_;
    rope_qknorm_fwd<T>(q_NC_ + n * C_, row(keys_, layer, span.slot, span.position), rstd_N2H_, qkv,
                       params_ + p.q_norm, params_ + p.k_norm, rope_TK_, position_N_ + n, span.count,
                       context_, H_, K_, ex);
    for (Index i = 0; i < span.count; ++i)
      std::memcpy(row(values_, layer, span.slot, span.position + i), qkv + i * 3 * C_ + 2 * C_,
                  static_cast<std::size_t>(C_) * sizeof(T));
  }

  void answer_queries(const Exec& ex) {
    attention_decode<T>(decode_scratch_, queries_.data(), std::ssize(queries_), H_, K_, ex);
    queries_.clear();
  }

  void mlp(Index layer, Index N, const Exec& ex) {
    const TransformerLayout::Layer& p = layout_.layers[layer];
    linear(gate_up_N2F_, context_NC_, p.mlp_in, N, 2 * F_, C_, ex);
    swiglu_fwd<T>(hidden_NF_, gate_up_N2F_, N, F_, ex);
    linear(h_NC_, hidden_NF_, p.mlp_out, N, C_, F_, ex);
  }

  void head(Visit visit, const Exec& ex) {
    const float scale = config_.logit_scale();
    for (Index begin = 0; begin < std::ssize(wanted_); begin += head_rows_) {
      const Index rows = std::min(head_rows_, std::ssize(wanted_) - begin);
      for (Index r = 0; r < rows; ++r)
        std::memcpy(wanted_RC_ + r * C_, context_NC_ + wanted_[begin + r].row * C_,
                    static_cast<std::size_t>(C_) * sizeof(T));
      {
        const ProfileScope scope("head", ex);
        linear_decode<T, float>(logits_RV_, wanted_RC_, w(layout_.wte), rows, V_, C_, ex);
      }
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
  const Index C_, F_, H_, K_, V_, head_rows_;
  std::unique_ptr<Residual<T>> residual_;
  TransformerLayout layout_;
  const float* params_;
  const T* params_T_ = nullptr;

  std::vector<Index> length_;  // by slot
  std::vector<DecodeSpan> spans_;
  std::vector<Wanted> wanted_;
  std::vector<CachedQuery<T>> queries_;

  Arena arena_ = Arena::measuring();
  T *keys_ = nullptr, *values_ = nullptr;  // [layers][slots][context][C]
  float* rope_TK_ = nullptr;
  std::int32_t *token_N_ = nullptr, *position_N_ = nullptr;
  float* x_NC_ = nullptr;
  T *context_NC_ = nullptr, *h_NC_ = nullptr, *qkv_N3C_ = nullptr, *q_NC_ = nullptr, *o_NC_ = nullptr;
  T *gate_up_N2F_ = nullptr, *hidden_NF_ = nullptr, *wanted_RC_ = nullptr;
  float *rstd_N2H_ = nullptr, *lse_NH_ = nullptr, *logits_RV_ = nullptr, *last_logits_SV_ = nullptr;
  std::byte* extend_scratch_ = nullptr;
  float* decode_scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(Model& model, const DecoderShape& shape, const Exec& ex) {
  if (shape.slots < 1 || shape.chunk < 1 || shape.context < 0 || shape.context > model.config().context)
    throw UserError(
        "a decoder for {} sequences of {} tokens, {} at a time: expected at least one, and at most {} tokens "
        "(model.context)",
        shape.slots, shape.context, shape.chunk, model.config().context);
  if (model.config().uses_bf16()) return std::make_unique<TransformerDecoder<bf16>>(model, shape, ex);
  return std::make_unique<TransformerDecoder<float>>(model, shape, ex);
}

}  // namespace ddl
