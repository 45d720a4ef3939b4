#include "model/residual/fused_rule.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/gemm.h"
#include "kernels/gemv.h"
#include "kernels/short_conv.h"
#include "kernels/two_layer_gate.h"
#include "model/residual/channel_conv.h"
#include "model/residual/history.h"

namespace ddl {
namespace {

// body(span, threads). Where no span is more than a thread's share, spans go to one thread each; otherwise
// each has all threads to itself.
template <class Body>
void for_spans(const Tokens& tokens, const Exec& ex, const Body& body) {
  Index longest = 0;
  for (const Span& span : tokens.spans) longest = std::max(longest, span.count);
  if (longest * ex.threads <= tokens.count)
    parallel_for(std::ssize(tokens.spans), ex, [&](Index i) { body(i, Exec{}); });
  else
    for (Index i = 0; i < std::ssize(tokens.spans); ++i) body(i, ex);
}

// The same write as if the state held nothing along h. Forward only.
class WithoutReadout final : public Coefficients {
 public:
  explicit WithoutReadout(const Coefficients& inner) : inner_(inner) {}
  bool reads_state() const override { return inner_.reads_state(); }
  bool reads_h_norm() const override { return inner_.reads_h_norm(); }
  Index saved_per_token(Index D) const override { return inner_.saved_per_token(D); }
  void forward(const Forward& token) const override {
    const float nothing_D[kMaxChannels] = {};
    Forward blind = token;
    blind.h_dot_X_D = nothing_D;
    inner_.forward(blind);
  }
  void backward(Backward&) const override { DDL_CHECK(false, "interventions have no backward pass"); }

 private:
  const Coefficients& inner_;
};

}  // namespace

template <class T>
FusedRule<T>::FusedRule(const ModelConfig& config, FusedSpec spec)
    : config_(config),
      spec_(std::move(spec)),
      S_(config.sublayers()),
      D_(spec_.channels),
      C_(config.width),
      sublayers_(static_cast<std::size_t>(S_)) {
  for (const BranchSpec& branch : spec_.branches) {
    DDL_CHECK(branch.hidden == 0 || (branch.rows == 1 && branch.activation == Activation::kSigmoid),
              "a two-layer branch is one gate, '{}' is not", branch.name);
    steering_ += branch.rows;
    max_hidden_ = std::max(max_hidden_, branch.hidden);
  }
  if (spec_.write) saved_ = spec_.write->saved_per_token(D_);
}

template <class T>
Index FusedRule<T>::embedding_ring_floats() const {
  return spec_.expand == Expand::kConv ? (spec_.embed_taps - 1) * C_ : 0;
}

template <class T>
Index FusedRule<T>::state_ring_floats() const {
  return spec_.read == Read::kToken ? (S_ + 1) * (spec_.state_taps - 1) * D_ * C_ : 0;
}

// Parameters and memory.

template <class T>
void FusedRule<T>::add_params(ParamTable& table) {
  if (spec_.expand == Expand::kConv)
    expand_w_ = table.add("input_embed.conv.weight", {spec_.embed_taps, D_, C_}, Init::last_tap(1));

  // Compressors start as a plain average over channels of the current token, or normal.
  const Init average = Init::constant(1.0 / static_cast<double>(D_));
  const auto start = [&](Init plain) {
    return spec_.compressor_normal ? Init::normal(config_.hidden_std()) : plain;
  };
  mixes_ = 0;
  const auto add_compressor = [&](const std::string& name, Stage& stage) {
    const Index E = spec_.channel_taps;
    if (folds()) {
      stage.mix = mixes_++;
      const Index own_channel = channel_conv_pad(E);
      stage.compress = table.add(name + ".weight", {E, C_}, start(Init::tap(E - 1 - own_channel, 1)));
    } else if (spec_.read == Read::kChannel) {
      stage.compress = table.add(name + ".weight", {D_, C_}, start(average));
    } else if (spec_.read == Read::kToken) {
      stage.compress = table.add(name + ".weight", {spec_.state_taps, D_, C_}, start(Init::last_tap(1)));
    }
    if (folds() || spec_.read == Read::kToken) stage.read = table.add(name + ".read", {D_}, average);
  };
  const auto add_branch = [&](const std::string& prefix, const BranchSpec& branch) {
    const auto add_weight = [&](const std::string& ending, Index rows, Index inputs) {
      Init init = branch.weight;
      if (!branch.draws_as.empty()) init.draws_as = prefix + branch.draws_as + ending;
      return table.add_matrix(prefix + branch.name + ending, rows, inputs, init);
    };
    BranchParams at;
    const bool two_layers = branch.hidden > 0;
    const std::string last = two_layers ? "_out" : "";
    if (two_layers) at.hidden = add_weight("_in.weight", branch.hidden, C_);
    if (branch.input != BranchInput::kNone)
      at.weight = add_weight(last + ".weight", branch.rows, two_layers ? branch.hidden : C_);
    if (branch.bias) at.bias = table.add(prefix + branch.name + last + ".bias", {branch.rows}, *branch.bias);
    return at;
  };
  stages_.assign(static_cast<std::size_t>(S_ + 1), {});
  for (Index s = 0; s < S_; ++s) {
    Stage& stage = stages_[s];
    const std::string block = fmt::format("transformer.h.{}.", s / 2);
    const bool attention = s % 2 == 0;
    stage.norm = table.add_norm(block + (attention ? "ln_1" : "ln_2") + ".weight", C_);
    if (!spec_.compressor_per_block)
      add_compressor(block + (attention ? "compress_attn" : "compress_mlp"), stage);
    else if (attention)
      add_compressor(block + "compress", stage);
    else
      stage.compress = stages_[s - 1].compress, stage.read = stages_[s - 1].read,
      stage.mix = stages_[s - 1].mix;
    const std::string prefix = block + spec_.branch_prefix + (attention ? "_attn." : "_mlp.");
    for (const BranchSpec& branch : spec_.branches) stage.branches.push_back(add_branch(prefix, branch));
  }
  stages_[S_].norm = table.add_norm("ln_f.weight", C_);
  add_compressor("readout", stages_[S_]);
}

template <class T>
void FusedRule<T>::plan(Arena& arena, const Room& room) {
  const Index N = room.tokens;
  const bool token = spec_.read == Read::kToken;
  state_NDC_ = arena.take<float>("residual state", N * D_ * C_);
  if (token) x_in_NC_ = arena.take<float>("compressed state", N * C_);
  const auto take = [&](Index per_token) {
    return per_token > 0 ? arena.take<float>("gates and readouts", N * per_token) : nullptr;
  };
  for (Index s = 0; s < S_; ++s) {
    Saved& saved = sublayers_[s];
    if (room.training) {
      saved = {take(1), take(steering_), take(saved_), nullptr};
      if (spec_.store_state && spec_.write) saved.state_NDC = arena.take<float>("stored states", N * D_ * C_);
    } else if (s == 0) {
      saved = {take(1), take(steering_), take(saved_), nullptr};
    } else {
      // Without backward all sublayers share a few rows. Steering numbers need two sets that take turns: the
      // pass that writes sublayer s still reads its numbers while it computes those of s + 1.
      saved = sublayers_[0];
      saved.steer_NR = s == 1 ? take(steering_) : sublayers_[s % 2].steer_NR;
    }
  }
  rstd_last_N_ = take(1);
  if (folds()) mix_DC_ = arena.take<float>("folded compressors", mixes_ * D_ * C_);
  if (max_hidden_ > 0) hidden_NG_ = arena.take<float>("gate hidden", N * max_hidden_);
  slots_ = room.slots;
  if (slots_ > 0) {
    if (spec_.expand == Expand::kConv)
      embedding_ring_ = arena.take<float>("history: embeddings", slots_ * embedding_ring_floats());
    if (token) state_ring_ = arena.take<float>("history: expanded states", slots_ * state_ring_floats());
  }
  if (!room.training) return;
  dstate_NDC_ = arena.take<float>("residual state gradient", N * D_ * C_);
  if (token) dx_in_NC_ = arena.take<float>("compressed state gradient", N * C_);
  if (folds()) dmix_DC_ = arena.take<float>("folded compressors", D_ * C_);
  dsteer_NR_ = take(steering_);
  Index scratch = residual_bwd_scratch(D_, C_, steering_);
  if (spec_.expand == Expand::kConv)
    scratch = std::max(scratch, short_conv_scratch(D_, C_, spec_.embed_taps));
  if (token) scratch = std::max(scratch, short_conv_scratch(D_, C_, spec_.state_taps));
  if (max_hidden_ > 0) {
    dhidden_NG_ = arena.take<T>("gate hidden", N * max_hidden_);
    scratch = std::max(scratch, two_layer_gate_scratch(max_hidden_));
  }
  scratch_ = arena.take<float>("reduction scratch", scratch);
}

template <class T>
void FusedRule<T>::bind(const Numbers<T>& numbers) {
  numbers_ = numbers;
  branches_.assign(static_cast<std::size_t>(S_ + 1), {});
  for (Index s = 0; s < S_; ++s) bind_stage(s);
}

template <class T>
void FusedRule<T>::bind_stage(Index s) {
  Index first = 0;
  for (std::size_t i = 0; i < spec_.branches.size(); ++i) {
    const BranchSpec& spec = spec_.branches[i];
    const BranchParams& at = stages_[s].branches[i];
    const bool has_weight = spec.input != BranchInput::kNone;
    if (spec.hidden == 0)
      branches_[s].push_back({.first = first,
                              .rows = spec.rows,
                              .input = spec.input,
                              .activation = spec.activation,
                              .scale = spec.scale,
                              .w_RC = has_weight ? p(at.weight) : nullptr,
                              .b_R = spec.bias ? p(at.bias) : nullptr,
                              .dw_RC = has_weight ? g(at.weight) : nullptr,
                              .db_R = spec.bias ? g(at.bias) : nullptr});
    first += spec.rows;
  }
}

template <class T>
const float* FusedRule<T>::mix(Index s) const {
  if (spec_.read != Read::kChannel) return nullptr;
  return folds() ? mix_DC_ + stages_[s].mix * D_ * C_ : p(stages_[s].compress);
}

// Weights may have changed since the last pass, so each pass folds again: D E C products per compressor,
// about what one token costs.
template <class T>
void FusedRule<T>::fold_compressors() {
  for (Index s = 0; s <= S_; ++s) {
    const Stage& stage = stages_[s];
    if (s > 0 && stage.mix == stages_[s - 1].mix) continue;  // the block's other sublayer
    channel_conv_fold(mix_DC_ + stage.mix * D_ * C_, p(stage.compress), p(stage.read), D_, C_,
                      spec_.channel_taps);
  }
}

// Forward.
//
// A gate steers the write of sublayer s, but it is computed from that sublayer's input. So it is computed one
// step early, in the pass that reads context_s, while the token's row is in the cache; and in the backward pass
// its gradient, which the write of s leaves in dsteer, is paid one step later, in the same place.

template <class T>
void FusedRule<T>::start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) {
  const Index E = spec_.embed_taps;
  if (folds()) fold_compressors();
  if (spec_.expand != Expand::kConv) {
    repeat_fwd(state_NDC_, x_NC, tokens.count, D_, C_, ex);  // identity is a repetition over one channel
  } else if (tokens.are_whole_sequences()) {
    embedding_conv_fwd(state_NDC_, x_NC, p(expand_w_), tokens.count, tokens.sequence_length, D_, C_, E, ex);
  } else {
    const History history({embedding_ring_, embedding_ring_floats(), E - 1, C_}, x_NC, tokens.spans);
    for_spans(tokens, ex, [&](Index i, const Exec& span_ex) {
      const float* before[kMaxTaps];
      const Index row = history.first_row(i);
      embedding_conv_span(state_NDC_ + row * D_ * C_, x_NC + row * C_, history.before(i, before),
                          p(expand_w_), tokens.spans[i].count, D_, C_, E, span_ex);
    });
    history.remember(slots_);
  }
  read(0, context_NC, nullptr, tokens, ex);
}

template <class T>
void FusedRule<T>::write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                                  const Exec& ex) {
  const Saved& saved = sublayers_[s];
  if (saved.state_NDC)
    parallel_chunks(tokens.count, 64, ex, [&](Index begin, Index end) {
      std::copy(state_NDC_ + begin * D_ * C_, state_NDC_ + end * D_ * C_, saved.state_NDC + begin * D_ * C_);
    });
  WriteFwd<T> write{.coefficients = spec_.write.get(),
                    .h_NC = h_NC,
                    .steer_NR = saved.steer_NR,
                    .steer_stride = steering_,
                    .saved_NQ = saved.write_NQ};
  std::optional<WithoutReadout> without_readout;
  if (replaced_ && replacement_->sublayer == s) {
    if (replaced_->role == SeriesRole::kReadout)
      write.coefficients = &without_readout.emplace(*spec_.write);
    else
      for (Index n = 0; n < tokens.count; ++n)
        std::copy(replacement_->values.begin(), replacement_->values.end(),
                  saved.steer_NR + n * steering_ + replaced_->first);
  }
  read(s + 1, next_context_NC, &write, tokens, ex);
}

// Writes (where there is something to write) and reads the input of sublayer s. The token compressor needs its
// neighbours' states written, so it cannot share the write's pass.
template <class T>
void FusedRule<T>::read(Index s, T* context_NC, const WriteFwd<T>* write, const Tokens& tokens,
                        const Exec& ex) {
  const ReadFwd<T> part{.mix_DC = mix(s),
                        .norm_C = p(stages_[s].norm),
                        .norm_eps = static_cast<float>(config_.norm_eps),
                        .context_NC = context_NC,
                        .rstd_N = s < S_ ? sublayers_[s].rstd_N : rstd_last_N_,
                        .branches = branches_[s],
                        .steer_NR = s < S_ ? sublayers_[s].steer_NR : nullptr,
                        .steer_stride = steering_};
  const Index N = tokens.count;
  if (spec_.read == Read::kToken) {
    if (write) residual_fwd<T>(state_NDC_, write, nullptr, N, D_, C_, ex);
    compress_tokens(s, tokens, ex);
    residual_fwd<T>(x_in_NC_, nullptr, &part, N, 1, C_, ex);
  } else {
    residual_fwd<T>(state_NDC_, write, &part, N, D_, C_, ex);
  }
  if (s < S_) hidden_branches(s, context_NC, tokens, ex);
}

template <class T>
void FusedRule<T>::compress_tokens(Index s, const Tokens& tokens, const Exec& ex) {
  const Stage& stage = stages_[s];
  const Index E = spec_.state_taps, ring = (E - 1) * D_ * C_;
  if (tokens.are_whole_sequences()) {
    token_compress_fwd(x_in_NC_, state_NDC_, p(stage.compress), p(stage.read), tokens.count,
                       tokens.sequence_length, D_, C_, E, ex);
    return;
  }
  const History history({state_ring_ + s * ring, state_ring_floats(), E - 1, D_ * C_}, state_NDC_,
                        tokens.spans);
  for_spans(tokens, ex, [&](Index i, const Exec& span_ex) {
    const float* before[kMaxTaps];
    const Index row = history.first_row(i);
    token_compress_span(x_in_NC_ + row * C_, state_NDC_ + row * D_ * C_, history.before(i, before),
                        p(stage.compress), p(stage.read), tokens.spans[i].count, D_, C_, E, span_ex);
  });
  history.remember(slots_);
}

// Two-layer branches: a small GEMM, which cannot be part of the pass. For spans gemv, because its bits for a
// token do not depend on the other tokens.
template <class T>
void FusedRule<T>::hidden_branches(Index s, const T* context_NC, const Tokens& tokens, const Exec& ex) {
  Index first = 0;
  for (std::size_t i = 0; i < spec_.branches.size(); ++i) {
    const BranchSpec& branch = spec_.branches[i];
    const BranchParams& at = stages_[s].branches[i];
    const Index G = branch.hidden, N = tokens.count;
    if (G > 0) {
      if (tokens.are_whole_sequences())
        linear_fwd(hidden_NG_, context_NC, numbers_.params_T + at.hidden, N, G, C_, ex);
      else
        gemv(hidden_NG_, context_NC, numbers_.params_T + at.hidden, N, G, C_, ex);
      two_layer_gate_fwd(sublayers_[s].steer_NR + first, steering_, branch.scale, hidden_NG_, p(at.weight),
                         p(at.bias), N, G, ex);
    }
    first += branch.rows;
  }
}

template <class T>
void FusedRule<T>::copy_slot(Index to, Index from) {
  const auto copy = [&](float* rings, Index floats) {
    if (rings)
      std::memcpy(rings + to * floats, rings + from * floats,
                  static_cast<std::size_t>(floats) * sizeof(float));
  };
  copy(embedding_ring_, embedding_ring_floats());
  copy(state_ring_, state_ring_floats());
}

// Backward.

// Adds the two-layer branches' paths to dcontext. Their hidden layers are computed again: a small GEMM instead
// of a stored tensor.
template <class T>
void FusedRule<T>::hidden_branches_backward(Index s, float* dcontext_NC, const T* context_NC, Index N,
                                            const Exec& ex) {
  Index first = 0;
  for (std::size_t i = 0; i < spec_.branches.size(); ++i) {
    const BranchSpec& branch = spec_.branches[i];
    const BranchParams& at = stages_[s].branches[i];
    if (const Index G = branch.hidden; G > 0) {
      linear_fwd(hidden_NG_, context_NC, numbers_.params_T + at.hidden, N, G, C_, ex);
      two_layer_gate_bwd<T>(dhidden_NG_, g(at.weight), g(at.bias), dsteer_NR_ + first,
                            sublayers_[s].steer_NR + first, steering_, branch.scale, hidden_NG_, p(at.weight),
                            scratch_, N, G, ex);
      linear_bwd_weight(g(at.hidden), dhidden_NG_, context_NC, N, G, C_, ex);
      linear_bwd_input(dcontext_NC, Write::kAccumulate, dhidden_NG_, numbers_.params_T + at.hidden, N, G, C_,
                       ex);
    }
    first += branch.rows;
  }
}

// The mirror image of read().
template <class T>
void FusedRule<T>::read_backward(Index s, float* dcontext_NC, const T* context_NC, const WriteBwd<T>* write,
                                 const Tokens& tokens, const Exec& ex) {
  const Index N = tokens.count;
  const Stage& stage = stages_[s];
  const bool channel = spec_.read == Read::kChannel;
  if (s < S_) hidden_branches_backward(s, dcontext_NC, context_NC, N, ex);
  const Write dstate_mode = s == S_ ? Write::kOverwrite : Write::kAccumulate;
  if (folds()) std::fill_n(dmix_DC_, D_ * C_, 0.0f);
  ReadBwd<T> part{.mix_DC = mix(s),
                  .norm_C = p(stage.norm),
                  .rstd_N = s < S_ ? sublayers_[s].rstd_N : rstd_last_N_,
                  .dcontext_NC = dcontext_NC,
                  .branches = branches_[s],
                  .steer_NR = s < S_ ? sublayers_[s].steer_NR : nullptr,
                  .dsteer_NR = dsteer_NR_,
                  .steer_stride = steering_,
                  .dstate_mode = dstate_mode,
                  .dmix_DC = folds()   ? dmix_DC_
                             : channel ? g(stage.compress)
                                       : nullptr,
                  .dnorm_C = g(stage.norm)};
  if (spec_.read != Read::kToken) {
    residual_bwd<T>(state_NDC_, dstate_NDC_, &part, write, scratch_, N, D_, C_, ex);
    if (folds())
      channel_conv_unfold_gradient(g(stage.compress), g(stage.read), dmix_DC_, p(stage.compress),
                                   p(stage.read), D_, C_, spec_.channel_taps);
    return;
  }
  compress_tokens(s, tokens, ex);
  part.dstate_mode = Write::kOverwrite;
  residual_bwd<T>(x_in_NC_, dx_in_NC_, &part, nullptr, scratch_, N, 1, C_, ex);
  token_compress_bwd(dstate_NDC_, dstate_mode, g(stage.compress), g(stage.read), dx_in_NC_, state_NDC_,
                     p(stage.compress), p(stage.read), scratch_, N, tokens.sequence_length, D_, C_,
                     spec_.state_taps, ex);
  if (write) residual_bwd<T>(state_NDC_, dstate_NDC_, nullptr, write, scratch_, N, D_, C_, ex);
}

template <class T>
void FusedRule<T>::write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC,
                                           const T* next_context_NC, const T* h_NC, const Tokens& tokens,
                                           const Exec& ex) {
  const Saved& saved = sublayers_[s];
  const WriteBwd<T> write{.coefficients = spec_.write.get(),
                          .h_NC = h_NC,
                          .steer_NR = saved.steer_NR,
                          .steer_stride = steering_,
                          .saved_NQ = saved.write_NQ,
                          .stored_state_NDC = saved.state_NDC,
                          .dh_NC = dh_NC,
                          .dsteer_NR = dsteer_NR_};
  read_backward(s + 1, dnext_context_NC, next_context_NC, &write, tokens, ex);
}

template <class T>
void FusedRule<T>::start_backward(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                                  const Tokens& tokens, const Exec& ex) {
  read_backward(0, dcontext_NC, context_NC, nullptr, tokens, ex);
  if (spec_.expand == Expand::kConv)
    embedding_conv_bwd(dx_NC, g(expand_w_), dstate_NDC_, x_NC, p(expand_w_), scratch_, tokens.count,
                       tokens.sequence_length, D_, C_, spec_.embed_taps, ex);
  else
    repeat_bwd(dx_NC, dstate_NDC_, tokens.count, D_, C_, ex);
}

// Costs: counted from the kernels' inner loops, a multiply-add as two; exponentials and divisions per token are
// left out.

template <class T>
double FusedRule<T>::flops_forward() const {
  const double C = static_cast<double>(C_), DC = C * static_cast<double>(D_), S = static_cast<double>(S_);
  const double norm = 4 * C;
  const double read = spec_.read == Read::kChannel ? 2 * DC
                      : spec_.read == Read::kToken ? (2 * static_cast<double>(spec_.state_taps) + 2) * DC
                                                   : 0;
  double write = C;
  if (spec_.write)
    write = 2 * DC + (spec_.write->reads_h_norm() ? 2 * C : 0) + (spec_.write->reads_state() ? 2 * DC : 0);
  double branches = 0;
  for (const BranchSpec& b : spec_.branches) {
    const double G = static_cast<double>(b.hidden), rows = static_cast<double>(b.rows);
    branches += G > 0 ? 2 * C * G + 2 * G : b.input == BranchInput::kNone ? 0 : 2 * C * rows;
  }
  const double expand = spec_.expand == Expand::kConv ? 2 * static_cast<double>(spec_.embed_taps) * DC : 0;
  return expand + (S + 1) * (read + norm) + S * (write + branches);
}

template <class T>
double FusedRule<T>::flops_backward() const {
  const double C = static_cast<double>(C_), DC = C * static_cast<double>(D_), S = static_cast<double>(S_);
  const double norm = 9 * C;
  const double read = spec_.read == Read::kChannel ? 6 * DC
                      : spec_.read == Read::kToken ? (6 * static_cast<double>(spec_.state_taps) + 4) * DC
                                                   : C;
  double write = C;
  if (spec_.write)
    write = 6 * DC + (spec_.write->reads_h_norm() ? 2 * C : 0) + (spec_.write->reads_state() ? 4 * DC : 0);
  double branches = 0;
  for (const BranchSpec& b : spec_.branches) {
    const double G = static_cast<double>(b.hidden), rows = static_cast<double>(b.rows);
    branches += G > 0 ? 6 * C * G + 6 * G : b.input == BranchInput::kNone ? 0 : 4 * C * rows;
  }
  const double expand = spec_.expand == Expand::kConv     ? 4 * static_cast<double>(spec_.embed_taps) * DC
                        : spec_.expand == Expand::kRepeat ? DC
                                                          : 0;
  return expand + (S + 1) * (read + norm) + S * (write + branches);
}

template <class T>
std::vector<TokenSeries> FusedRule<T>::series(Index s) const {
  std::vector<TokenSeries> all;
  for (const SeriesSpec& spec : spec_.series)
    all.push_back(spec.of(sublayers_[s].steer_NR, steering_, sublayers_[s].write_NQ, saved_));
  return all;
}

// Audits.

template <class T>
StateView FusedRule<T>::view(Index s) const {
  return {state_NDC_, D_, s < S_ ? sublayers_[s].rstd_N : rstd_last_N_};
}

template <class T>
bool FusedRule<T>::read_as_last(Index, T* context_NC, const Tokens& tokens, const Exec& ex) {
  read(S_, context_NC, nullptr, tokens, ex);
  return true;
}

template <class T>
bool FusedRule<T>::replace(const Replacement* replacement) {
  replacement_ = replacement;
  replaced_ = nullptr;
  if (!replacement) return true;
  for (const SeriesSpec& spec : spec_.series) {
    if (spec.name != replacement->series || spec.count != std::ssize(replacement->values)) continue;
    const bool zeros = std::all_of(replacement->values.begin(), replacement->values.end(),
                                   [](float value) { return value == 0; });
    if (spec.source == SeriesSpec::kSteering || (spec.role == SeriesRole::kReadout && zeros))
      replaced_ = &spec;
  }
  return replaced_ != nullptr;
}

template class FusedRule<float>;
template class FusedRule<bf16>;

RuleEntry fused_rule(std::string name, std::string summary, OptionSetPtr options,
                     std::function<FusedSpec(const ModelConfig&)> spec) {
  RuleEntry entry{.name = std::move(name), .summary = std::move(summary), .options = std::move(options)};
  entry.make_f32 = [spec](const ModelConfig& config) {
    return std::make_unique<FusedRule<float>>(config, spec(config));
  };
  entry.make_bf16 = [spec](const ModelConfig& config) {
    return std::make_unique<FusedRule<bf16>>(config, spec(config));
  };
  return entry;
}

}  // namespace ddl
