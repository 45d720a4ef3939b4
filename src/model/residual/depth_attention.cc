// attnres: attention over depth. There is no running state: a sublayer reads a mixture of the embedding and of
// what every earlier sublayer gave,
//   V_0 = x,  V_i = h of sublayer i - 1        rho_i = 1 / rms(V_i)        q = w * gamma
//   alpha = softmax_i(rho_i q . V_i)           x_in = sum_i alpha_i V_i
// with w and gamma of C numbers per reading sublayer and for the readout. w = 0 at the start: a plain mean. The
// first sublayer sees the embedding alone, so it has no query.
//
// attnres-block: V_1, V_2, ... are sums of h over blocks of model.block_size sublayers, the newest one unfinished.
//
// Backward, with g the gradient of x_in:
//   dl_i  = alpha_i (V_i . g - sum_j alpha_j V_j . g)
//   dV_i += alpha_i g + dl_i rho_i (q - V_i rho_i^2 (q . V_i) / C)
//   dq   += sum_i dl_i rho_i V_i      dw = dq * gamma      dgamma = dq * w
// dh is dV of its source once all later reads have been gone through. attnres keeps nothing but rho and alpha:
// the network keeps h. A block's sum is walked back, h by h.
#include "kernels/depth_attention.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/config.h"
#include "model/residual/rules.h"
#include "model/residual/stages.h"
#include "ref/depth_ops.h"

namespace ddl {

void DepthBlockOptions::describe(Options& o) {
  o.add("model.block_size", block_size, "sublayers whose outputs are summed into one source").range(1, 2000);
}

namespace {

Index checked_block_size(const ModelConfig& config) {
  const Index size = config.rule<DepthBlockOptions>().block_size, S = config.sublayers();
  if (S % size != 0) {
    Index fitting = std::min(size, S);
    while (S % fitting != 0) --fitting;
    throw UserError("model.block_size is {}, which does not divide the {} sublayers of {} layers; {} would",
                    size, S, config.layers, fitting);
  }
  return size;
}

// Of the read in front of sublayer s > 0; s = S: of the readout.
std::string depth_prefix(Index s, Index S) { return s == S ? "readout." : branch_prefix("depth", s); }

// V is the type of the sources but the embedding: T where they are the outputs themselves, float for sums.
template <class T, class V>
class DepthAttentionRule final : public ResidualRule<T> {
 public:
  DepthAttentionRule(const ModelConfig& config, bool sums, Index block_size)
      : C_(config.width),
        S_(config.sublayers()),
        norm_eps_(static_cast<float>(config.norm_eps)),
        sums_(sums),
        block_(block_size),
        blocks_(S_ / block_size) {}

  void add_params(ParamTable& table) override {
    norms_ = add_stage_norms(table, S_, C_);
    queries_.assign(1, {});
    for (Index t = 1; t <= S_; ++t) {
      const std::string prefix = depth_prefix(t, S_);
      const Index w = table.add(prefix + "query", {C_}, Init::constant(0));
      queries_.push_back({w, table.add_norm(prefix + "gain", C_)});
    }
  }

  void plan(Arena& arena, const Room& room) override {
    const Index N = room.tokens;
    const auto take = [&](const char* name, Index count) { return arena.take<float>(name, count); };
    // Without training the network's outputs overwrite one another.
    owned_.assign(static_cast<std::size_t>(blocks_), nullptr);
    if (sums_ || !room.training)
      for (V*& source : owned_) source = arena.take<V>(sums_ ? "block sums" : "stored outputs", N * C_);
    others_.assign(owned_.begin(), owned_.end());

    reads_.assign(static_cast<std::size_t>(S_ + 1), {});
    for (Index t = 0; t <= S_; ++t) {
      Read& read = reads_[t];
      const bool same_source = !room.training && t > 0 && sources(t) == sources(t - 1);
      read.rho_N = same_source ? reads_[t - 1].rho_N : take("depth attention", N);
      read.alpha_NI = room.training ? take("depth attention", N * sources(t))
                      : t == 0      ? take("depth attention", N * sources(S_))
                                    : reads_[0].alpha_NI;
      read.rstd_N = room.training || t == 0 ? take("norm statistics", N) : reads_[0].rstd_N;
      // A finished block's rho is that of the read after its last sublayer.
      for (Index i = 0; i < sources(t); ++i) read.source_rho.push_back(reads_[std::min(t, i * block_)].rho_N);
    }
    q_C_ = take("depth queries", C_);
    if (!room.training) return;
    dfirst_NC_ = take("source gradients", N * C_);
    dothers_.assign(static_cast<std::size_t>(blocks_), nullptr);
    for (Index j = 0; j < blocks_; ++j)
      if (block_ > 1 || j < blocks_ - 1)  // a last source of one output is done with at once
        dothers_[j] = take("source gradients", N * C_);
    dq_C_ = take("depth queries", C_);
    scratch_ = take("reduction scratch", depth_attention_scratch(C_));
  }

  void bind(const Numbers<T>& numbers) override { numbers_ = numbers; }

  void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override {
    embedding_NC_ = x_NC;
    read(0, context_NC, nullptr, tokens, ex);
  }

  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    V* own = owned_[s / block_];
    if (!own) set_source(s / block_, h_NC);
    const DepthWrite<T, V> write{
        .h_NC = h_NC, .newest_NC = own, .mode = begins_block(s) ? Write::kOverwrite : Write::kAccumulate};
    read(s + 1, next_context_NC, own ? &write : nullptr, tokens, ex);
  }

  // A token's sources are its own: there is nothing to remember of a sequence.
  void copy_slot(Index, Index) override {}
  Index remembered_floats() const override { return 0; }
  double state_floats() const override {
    return static_cast<double>(C_) * mixed_sources() / static_cast<double>(S_);
  }

  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T*, const T* h_NC,
                               const Tokens& tokens, const Exec& ex) override {
    V* own = owned_[s / block_];
    if (!own) set_source(s / block_, h_NC);
    DepthReadBwd<T, V> part = read_backward(s + 1, dnext_context_NC);
    part.dh_NC = dh_NC;
    part.h_NC = h_NC;
    part.newest_NC = begins_block(s) ? nullptr : own;
    std::fill(dq_C_, dq_C_ + C_, 0.0f);
    part.dq_C = dq_C_;
    depth_attention_bwd(part, sources_of(s + 1), scratch_, tokens.count, C_, ex);
    const Query& at = queries_[s + 1];
    for (Index c = 0; c < C_; ++c) {
      g(at.w)[c] += dq_C_[c] * p(at.gain)[c];
      g(at.gain)[c] += dq_C_[c] * p(at.w)[c];
    }
  }

  void start_backward(float* dx_NC, float* dcontext_NC, const T*, const float*, const Tokens& tokens,
                      const Exec& ex) override {
    depth_attention_bwd(read_backward(0, dcontext_NC), sources_of(0), scratch_, tokens.count, C_, ex);
    parallel_chunks(tokens.count, kTokensPerCopy, ex, [&](Index begin, Index end) {
      std::copy(dfirst_NC_ + begin * C_, dfirst_NC_ + end * C_, dx_NC + begin * C_);
    });
  }

  // Per read: the norm 4 C and rho of the newest source 2 C; per source its score and its share, 2 C each. A sum
  // takes C per output but its first.
  double flops_forward() const override {
    return static_cast<double>(C_) *
           (6 * static_cast<double>(S_ + 1) + 4 * mixed_sources() + summed_outputs());
  }
  // Per read: the norm 9 C. Per source: x_in again 2 C, the products with g and q 4 C, its gradient 6 C, the
  // query's 2 C. The embedding's own read joins its gradient, C.
  double flops_backward() const override {
    return static_cast<double>(C_) *
           (9 * static_cast<double>(S_ + 1) + 1 + 14 * mixed_sources() + summed_outputs());
  }

  std::vector<TokenSeries> series(Index s) const override {
    const Index I = sources(s);
    const float* alpha_NI = reads_[s].alpha_NI;
    return {{.name = "attention to the embedding",
             .values = alpha_NI,
             .per_token = 1,
             .stride = I,
             .low = 0,
             .high = 1},
            {.name = "attention to the newest source",
             .values = alpha_NI + I - 1,
             .stride = I,
             .low = 0,
             .high = 1}};
  }

  StateView view(Index s) const override { return {nullptr, 0, reads_[s].rstd_N}; }
  bool read_as_last(Index t, T* context_NC, const Tokens& tokens, const Exec& ex) override {
    DepthSources<V> so_far = sources_of(S_);  // with the head's query
    so_far.count = sources(t);
    so_far.rho_N = reads_[t].source_rho.data();
    const DepthRead<T> part{.newest_rho_N = reads_[t].rho_N,
                            .alpha_NI = reads_[S_].alpha_NI,
                            .context_NC = context_NC,
                            .rstd_N = reads_[S_].rstd_N};
    depth_attention_fwd<T, V>(part, nullptr, so_far, tokens.count, C_, ex);
    return true;
  }

 private:
  static constexpr Index kTokensPerCopy = 64;
  struct Query {
    Index w = 0, gain = 0;  // offsets
  };
  // What the read in front of sublayer t saved.
  struct Read {
    float *rho_N = nullptr, *alpha_NI = nullptr, *rstd_N = nullptr;  // rho of the newest source
    std::vector<const float*> source_rho;                            // of all that it mixed
  };

  const float* p(Index offset) const { return numbers_.params + offset; }
  float* g(Index offset) const { return numbers_.grads + offset; }
  bool begins_block(Index s) const { return s % block_ == 0; }
  Index sources(Index t) const { return 1 + (t + block_ - 1) / block_; }  // I, seen by sublayer t
  // The number of pairs of a read after the first and a source; and of outputs that are added to a sum.
  double mixed_sources() const {
    Index pairs = 0;
    for (Index t = 1; t <= S_; ++t) pairs += sources(t);
    return static_cast<double>(pairs);
  }
  double summed_outputs() const { return static_cast<double>(S_ - blocks_); }

  // An output is a source itself only where V is T.
  void set_source(Index j, const T* h_NC) {
    if constexpr (std::is_same_v<T, V>)
      others_[j] = h_NC;
    else
      DDL_CHECK(false, "sums are the rule's own");
  }

  // Computes q of the read in front of sublayer t.
  DepthSources<V> sources_of(Index t) {
    if (t > 0)
      for (Index c = 0; c < C_; ++c) q_C_[c] = p(queries_[t].w)[c] * p(queries_[t].gain)[c];
    return {.count = sources(t),
            .first_NC = embedding_NC_,
            .others_NC = others_.data(),
            .rho_N = reads_[t].source_rho.data(),
            .q_C = q_C_,
            .norm_C = p(norms_[t]),
            .norm_eps = norm_eps_};
  }
  void read(Index t, T* context_NC, const DepthWrite<T, V>* write, const Tokens& tokens, const Exec& ex) {
    const Read& saved = reads_[t];
    const DepthRead<T> part{.newest_rho_N = saved.rho_N,
                            .alpha_NI = saved.alpha_NI,
                            .context_NC = context_NC,
                            .rstd_N = saved.rstd_N};
    depth_attention_fwd(part, write, sources_of(t), tokens.count, C_, ex);
  }
  DepthReadBwd<T, V> read_backward(Index t, const float* dcontext_NC) {
    return {.alpha_NI = reads_[t].alpha_NI,
            .rstd_N = reads_[t].rstd_N,
            .dcontext_NC = dcontext_NC,
            .dfirst_NC = dfirst_NC_,
            .dothers_NC = dothers_.data(),
            .mode = t == S_ ? Write::kOverwrite : Write::kAccumulate,
            .dnorm_C = g(norms_[t])};
  }

  const Index C_, S_;
  const float norm_eps_;
  const bool sums_;
  const Index block_, blocks_;
  std::vector<Index> norms_;    // offsets
  std::vector<Query> queries_;  // by read
  std::vector<Read> reads_;
  std::vector<V*> owned_;         // the sources but the embedding, where the rule keeps them
  std::vector<const V*> others_;  // the same, or the network's outputs
  std::vector<float*> dothers_;
  Numbers<T> numbers_;
  const float* embedding_NC_ = nullptr;  // of this pass
  float *q_C_ = nullptr, *dq_C_ = nullptr, *dfirst_NC_ = nullptr, *scratch_ = nullptr;
};

// Its state: all sources, one after another.
template <class Num>
class DepthAttentionOracle : public ref::Rule<Num> {
 public:
  explicit DepthAttentionOracle(const ModelConfig& config, Index block_size = 1)
      : width_(config.width), sublayers_(config.sublayers()), block_size_(block_size) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index s = 1; s <= sublayers_; ++s)
      for (const char* name : {"query", "gain"}) counts[depth_prefix(s, sublayers_) + name] = width_;
  }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index, Index) const override {
    return x_NC;
  }
  ref::Vec<Num> read(const ref::Vec<Num>& source_INC, const ref::Place& place, const ref::Parameters<Num>& w,
                     Index B, Index T) const override {
    if (place.s == 0) return source_INC;
    const std::string prefix = depth_prefix(place.s, sublayers_);
    ref::Vec<Num> q_C = ref::find_parameter(w, prefix + "query");
    const ref::Vec<Num>& gain_C = ref::find_parameter(w, prefix + "gain");
    for (Index c = 0; c < width_; ++c) q_C[c] *= gain_C[c];
    return ref::depth_mix(source_INC, q_C, div_exact(std::ssize(source_INC), B * T * width_), B * T, width_);
  }
  ref::Vec<Num> write(const ref::Vec<Num>& source_INC, ref::SublayerTrace<Num>& sublayer,
                      const ref::Place& place, const ref::Parameters<Num>&, Index) const override {
    ref::Vec<Num> next = source_INC;
    const ref::Vec<Num>& h_NC = sublayer.h_NC;
    if (place.s % block_size_ == 0)
      next.insert(next.end(), h_NC.begin(), h_NC.end());
    else
      for (std::size_t i = 0; i < h_NC.size(); ++i) next[next.size() - h_NC.size() + i] += h_NC[i];
    return next;
  }

 private:
  const Index width_, sublayers_, block_size_;
};

template <class Num>
class DepthBlockOracle final : public DepthAttentionOracle<Num> {
 public:
  explicit DepthBlockOracle(const ModelConfig& config)
      : DepthAttentionOracle<Num>(config, checked_block_size(config)) {}
};

}  // namespace

std::vector<RuleEntry> depth_attention_rules() {
  RuleEntry full{.name = "attnres",
                 .summary = "attention over depth: each sublayer mixes all earlier outputs"};
  full.make_f32 = [](const ModelConfig& config) {
    return std::make_unique<DepthAttentionRule<float, float>>(config, false, 1);
  };
  full.make_bf16 = [](const ModelConfig& config) {
    return std::make_unique<DepthAttentionRule<bf16, bf16>>(config, false, 1);
  };
  RuleEntry block{.name = "attnres-block",
                  .summary = "attention over depth, outputs summed per block of sublayers",
                  .options = OptionSetPtr(DepthBlockOptions())};
  block.make_f32 = [](const ModelConfig& config) {
    return std::make_unique<DepthAttentionRule<float, float>>(config, true, checked_block_size(config));
  };
  block.make_bf16 = [](const ModelConfig& config) {
    return std::make_unique<DepthAttentionRule<bf16, float>>(config, true, checked_block_size(config));
  };
  return {with_oracle<DepthAttentionOracle>(std::move(full)),
          with_oracle<DepthBlockOracle>(std::move(block))};
}

}  // namespace ddl
