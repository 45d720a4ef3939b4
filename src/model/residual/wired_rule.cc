#include "model/residual/wired_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.h"
#include "kernels/short_conv.h"
#include "kernels/two_layer_gate.h"
#include "model/residual/wired_rule_class.h"

namespace ddl {
namespace {

// The gate's bias at the start: 2 sigmoid(bias) = beta_init, kept off the ends where it would be infinite.
double gate_bias(double beta_init) {
  const double p = std::clamp(beta_init / 2, 1e-6, 1 - 1e-6);
  return std::log(p / (1 - p));
}

}  // namespace

template <class T>
void WiredRule<T>::add_params(ParamTable& table) {
  const double hidden_std = config_.hidden_std_factor / std::sqrt(static_cast<double>(C_));
  const Index E = config_.state_kernel;
  if (wiring_.expand == Expand::kConv)
    expand_w_ = table.add("input_embed.conv.weight", {config_.embed_kernel, D_, C_}, Init::last_tap(1));

  // Compressors start as a plain average over channels of the current token.
  const auto add_compressor = [&](const std::string& name, Stage& stage) {
    if (wiring_.read == Read::kChannel)
      stage.compress = table.add(name + ".weight", {D_, C_}, Init::constant(1.0 / static_cast<double>(D_)));
    if (wiring_.read == Read::kToken) {
      stage.compress = table.add(name + ".weight", {E, D_, C_}, Init::last_tap(1));
      stage.read = table.add(name + ".read", {D_}, Init::constant(1.0 / static_cast<double>(D_)));
    }
  };
  stages_.assign(static_cast<std::size_t>(S_ + 1), {});
  for (Index s = 0; s < S_; ++s) {
    Stage& stage = stages_[s];
    const std::string block = fmt::format("transformer.h.{}.", s / 2);
    const bool attention = s % 2 == 0;
    stage.norm = table.add(block + (attention ? "ln_1" : "ln_2") + ".weight", {C_}, Init::constant(1));
    if (config_.compressor == "sublayer")
      add_compressor(block + (attention ? "compress_attn" : "compress_mlp"), stage);
    else if (attention)
      add_compressor(block + "compress", stage);
    else
      stage.compress = stages_[s - 1].compress, stage.read = stages_[s - 1].read;
    if (!branches_) continue;
    const std::string name = block + (attention ? "ddl_attn" : "ddl_mlp");
    const Init hidden = Init::normal(hidden_std);
    if (two_layer_) {
      stage.gate_in = table.add_matrix(name + ".beta_in.weight", config_.gate_hidden, C_, hidden);
      stage.gate_w = table.add_matrix(name + ".beta_out.weight", 1, config_.gate_hidden, hidden);
      stage.gate_b = table.add(name + ".beta_out.bias", {1}, Init::constant(gate_bias(config_.beta_init)));
    } else {
      stage.gate_w = table.add_matrix(name + ".beta.weight", 1, C_, hidden);
      stage.gate_b = table.add(name + ".beta.bias", {1}, Init::constant(gate_bias(config_.beta_init)));
    }
    stage.value_w = table.add_matrix(name + ".v_proj.weight", D_, C_, hidden);
    if (value_ != ValueBranch::kLinear)
      stage.value_b =
          table.add(name + ".v_proj.bias", {D_}, Init::constant(value_ == ValueBranch::kBiased ? 2.0 : 0.0));
  }
  stages_[S_].norm = table.add("ln_f.weight", {C_}, Init::constant(1));
  add_compressor("readout", stages_[S_]);
}

template <class T>
void WiredRule<T>::plan(Arena& arena, bool training) {
  state_NDC_ = arena.take<float>("residual state", N_ * D_ * C_);
  const bool token = wiring_.read == Read::kToken;
  if (token) x_in_NC_ = arena.take<float>("compressed state", N_ * C_);
  // Without backward every sublayer uses the same few rows.
  for (Index s = 0; s < S_; ++s) {
    Saved& saved = saved_[s];
    if (!training && s > 0) {
      saved = saved_[0];
      continue;
    }
    const auto take = [&](Index per_token) {
      return arena.take<float>("gates and readouts", N_ * per_token);
    };
    saved.rstd_N = take(1);
    if (!branches_) continue;
    saved.beta_N = take(1);
    saved.v_ND = take(D_);
    saved.kscale_N = take(1);
    if (wiring_.write == WriteRule::kDelta) saved.readout_ND = take(D_);
  }
  rstd_last_N_ = arena.take<float>("gates and readouts", N_);
  if (two_layer_) gate_hidden_NG_ = arena.take<float>("gate hidden", N_ * config_.gate_hidden);
  if (!training) {
    // The next sublayer's gate is computed in the pass that still reads this one's: two sets take turns.
    if (branches_ && S_ > 1) {
      Saved second = saved_[0];
      second.beta_N = arena.take<float>("gates and readouts", N_);
      second.v_ND = arena.take<float>("gates and readouts", N_ * D_);
      for (Index s = 1; s < S_; s += 2) saved_[s] = second;
    }
    return;
  }
  dstate_NDC_ = arena.take<float>("residual state gradient", N_ * D_ * C_);
  if (token) dx_in_NC_ = arena.take<float>("compressed state gradient", N_ * C_);
  if (branches_) {
    dbeta_N_ = arena.take<float>("gates and readouts", N_);
    dv_ND_ = arena.take<float>("gates and readouts", N_ * D_);
  }
  if (two_layer_) dgate_hidden_NG_ = arena.take<T>("gate hidden", N_ * config_.gate_hidden);
  Index scratch = residual_bwd_scratch(D_, C_, D_);
  if (wiring_.expand == Expand::kConv)
    scratch = std::max(scratch, short_conv_scratch(D_, C_, config_.embed_kernel));
  if (token) scratch = std::max(scratch, short_conv_scratch(D_, C_, config_.state_kernel));
  if (two_layer_) scratch = std::max(scratch, two_layer_gate_scratch(config_.gate_hidden));
  scratch_ = arena.take<float>("reduction scratch", scratch);
}

// --- the parts of a pass
// ----------------------------------------------------------------------------------------------

template <class T>
BranchWeights WiredRule<T>::branch_weights(Index s) const {
  if (!branches_ || s == S_) return {};
  const Stage& stage = stages_[s];
  return {.gate_w_C = two_layer_ ? nullptr : p(stage.gate_w),
          .gate_b = p(stage.gate_b),
          .value = value_,
          .value_w_DC = p(stage.value_w),
          .value_b_D = value_ == ValueBranch::kLinear ? nullptr : p(stage.value_b),
          .channels = D_};
}

template <class T>
WriteFwd<T> WiredRule<T>::write_fwd(Index s, const T* h_NC) const {
  const Saved& saved = saved_[s];
  return {.rule = wiring_.write,
          .h_NC = h_NC,
          .beta_N = saved.beta_N,
          .v_ND = saved.v_ND,
          .k_eps = static_cast<float>(config_.k_eps),
          .readout_ND = saved.readout_ND,
          .kscale_N = saved.kscale_N};
}

template <class T>
WriteBwd<T> WiredRule<T>::write_bwd(Index s, const T* h_NC, T* dh_NC) const {
  const Saved& saved = saved_[s];
  return {.rule = wiring_.write,
          .h_NC = h_NC,
          .beta_N = saved.beta_N,
          .v_ND = saved.v_ND,
          .readout_ND = saved.readout_ND,
          .kscale_N = saved.kscale_N,
          .dh_NC = dh_NC,
          .dbeta_N = dbeta_N_,
          .dv_ND = dv_ND_};
}

template <class T>
ReadFwd<T> WiredRule<T>::read_fwd(Index s, T* context_NC) const {
  const bool last = s == S_;
  return {.mix_DC = wiring_.read == Read::kChannel ? p(stages_[s].compress) : nullptr,
          .norm_C = p(stages_[s].norm),
          .context_NC = context_NC,
          .rstd_N = last ? rstd_last_N_ : saved_[s].rstd_N,
          .branches = branch_weights(s),
          .beta_N = last ? nullptr : saved_[s].beta_N,
          .v_ND = last ? nullptr : saved_[s].v_ND};
}

template <class T>
ReadBwd<T> WiredRule<T>::read_bwd(Index s, const float* dcontext_NC) const {
  const bool last = s == S_;
  const Stage& stage = stages_[s];
  ReadBwd<T> read{.mix_DC = wiring_.read == Read::kChannel ? p(stage.compress) : nullptr,
                  .norm_C = p(stage.norm),
                  .rstd_N = last ? rstd_last_N_ : saved_[s].rstd_N,
                  .dcontext_NC = dcontext_NC,
                  .branches = branch_weights(s),
                  .dstate_mode = last ? Write::kOverwrite : Write::kAccumulate,
                  .dmix_DC = wiring_.read == Read::kChannel ? g(stage.compress) : nullptr,
                  .dnorm_C = g(stage.norm)};
  if (!read.branches.value_w_DC) return read;
  read.beta_N = saved_[s].beta_N, read.v_ND = saved_[s].v_ND;
  read.dbeta_N = dbeta_N_, read.dv_ND = dv_ND_;
  if (!two_layer_) read.dgate_w_C = g(stage.gate_w), read.dgate_b = g(stage.gate_b);
  read.dvalue_w_DC = g(stage.value_w);
  if (value_ != ValueBranch::kLinear) read.dvalue_b_D = g(stage.value_b);
  return read;
}

template <class T>
void WiredRule<T>::gate_fwd(Index s, const T* context_NC, const Exec& ex) const {
  const Index G = config_.gate_hidden;
  linear_fwd(gate_hidden_NG_, context_NC, params_T_ + stages_[s].gate_in, N_, G, C_, ex);
  two_layer_gate_fwd(saved_[s].beta_N, gate_hidden_NG_, p(stages_[s].gate_w), p(stages_[s].gate_b), N_, G,
                     ex);
}

// Adds the gate's path to dcontext. The hidden layer is computed again: a small GEMM instead of a stored
// tensor.
template <class T>
void WiredRule<T>::gate_bwd(Index s, float* dcontext_NC, const T* context_NC, const Exec& ex) const {
  const Index G = config_.gate_hidden;
  const Stage& stage = stages_[s];
  linear_fwd(gate_hidden_NG_, context_NC, params_T_ + stage.gate_in, N_, G, C_, ex);
  two_layer_gate_bwd<T>(dgate_hidden_NG_, g(stage.gate_w), g(stage.gate_b), dbeta_N_, saved_[s].beta_N,
                        gate_hidden_NG_, p(stage.gate_w), scratch_, N_, G, ex);
  linear_bwd_weight(g(stage.gate_in), dgate_hidden_NG_, context_NC, N_, G, C_, ex);
  linear_bwd_input(dcontext_NC, Write::kAccumulate, dgate_hidden_NG_, params_T_ + stage.gate_in, N_, G, C_,
                   ex);
}

// Write (where given) and read for stage s. The token compressor needs its neighbours' states written, so it
// cannot share the write's pass.
template <class T>
void WiredRule<T>::step_fwd(Index s, T* context_NC, const WriteFwd<T>* write, const Exec& ex) {
  const ReadFwd<T> read = read_fwd(s, context_NC);
  if (wiring_.read == Read::kToken) {
    if (write) residual_fwd<T>(state_NDC_, write, nullptr, N_, D_, C_, ex);
    token_compress_fwd(x_in_NC_, state_NDC_, p(stages_[s].compress), p(stages_[s].read), N_, T_, D_, C_,
                       config_.state_kernel, ex);
    residual_fwd<T>(x_in_NC_, nullptr, &read, N_, 1, C_, ex);
  } else {
    residual_fwd<T>(state_NDC_, write, &read, N_, D_, C_, ex);
  }
  if (two_layer_ && s < S_) gate_fwd(s, context_NC, ex);
}

template <class T>
void WiredRule<T>::step_bwd(Index s, float* dcontext_NC, const T* context_NC, const WriteBwd<T>* write,
                            const Exec& ex) {
  if (two_layer_ && s < S_) gate_bwd(s, dcontext_NC, context_NC, ex);
  ReadBwd<T> read = read_bwd(s, dcontext_NC);
  if (wiring_.read == Read::kToken) {
    const Stage& stage = stages_[s];
    const Write dstate_mode = read.dstate_mode;
    const Index E = config_.state_kernel;
    token_compress_fwd(x_in_NC_, state_NDC_, p(stage.compress), p(stage.read), N_, T_, D_, C_, E, ex);
    read.dstate_mode = Write::kOverwrite;
    residual_bwd<T>(x_in_NC_, dx_in_NC_, &read, nullptr, scratch_, N_, 1, C_, ex);
    token_compress_bwd(dstate_NDC_, dstate_mode, g(stage.compress), g(stage.read), dx_in_NC_, state_NDC_,
                       p(stage.compress), p(stage.read), scratch_, N_, T_, D_, C_, E, ex);
    if (write) residual_bwd<T>(state_NDC_, dstate_NDC_, nullptr, write, scratch_, N_, D_, C_, ex);
  } else {
    residual_bwd<T>(state_NDC_, dstate_NDC_, &read, write, scratch_, N_, D_, C_, ex);
  }
}

// --- the interface
// ----------------------------------------------------------------------------------------------------

template <class T>
void WiredRule<T>::open(T* context_NC, const float* x_NC, const Exec& ex) {
  if (wiring_.expand == Expand::kConv)
    embedding_conv_fwd(state_NDC_, x_NC, p(expand_w_), N_, T_, D_, C_, config_.embed_kernel, ex);
  else
    repeat_fwd(state_NDC_, x_NC, N_, D_, C_, ex);  // identity is a repetition over one channel
  step_fwd(0, context_NC, nullptr, ex);
}

template <class T>
void WiredRule<T>::advance(Index s, T* next_context_NC, const T* h_NC, const Exec& ex) {
  const WriteFwd<T> write = write_fwd(s, h_NC);
  step_fwd(s + 1, next_context_NC, &write, ex);
}

template <class T>
void WiredRule<T>::retreat(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC,
                           const T* h_NC, const Exec& ex) {
  const WriteBwd<T> write = write_bwd(s, h_NC, dh_NC);
  step_bwd(s + 1, dnext_context_NC, next_context_NC, &write, ex);
}

template <class T>
void WiredRule<T>::close(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                         const Exec& ex) {
  step_bwd(0, dcontext_NC, context_NC, nullptr, ex);
  if (wiring_.expand == Expand::kConv)
    embedding_conv_bwd(dx_NC, g(expand_w_), dstate_NDC_, x_NC, p(expand_w_), scratch_, N_, T_, D_, C_,
                       config_.embed_kernel, ex);
  else
    repeat_bwd(dx_NC, dstate_NDC_, N_, D_, C_, ex);
}

// --- costs
// ------------------------------------------------------------------------------------------------------------
// Counted from the kernels' inner loops, a multiply-add as two; exponentials and divisions by token are left
// out.

template <class T>
double WiredRule<T>::flops_forward() const {
  const double C = static_cast<double>(C_), DC = C * static_cast<double>(D_), S = static_cast<double>(S_);
  const double E = static_cast<double>(config_.state_kernel), G = static_cast<double>(config_.gate_hidden);
  const double norm = 4 * C;
  const double read = wiring_.read == Read::kChannel ? 2 * DC
                      : wiring_.read == Read::kToken ? (2 * E + 2) * DC
                                                     : 0;
  const double write = wiring_.write == WriteRule::kAdd     ? C
                       : wiring_.write == WriteRule::kDelta ? 2 * C + 4 * DC
                                                            : 2 * C + 2 * DC;
  const double gate = two_layer_ ? 2 * C * G + 2 * G : 2 * C;
  const double branches = branches_ ? gate + 2 * DC : 0;
  const double expand =
      wiring_.expand == Expand::kConv ? 2 * static_cast<double>(config_.embed_kernel) * DC : 0;
  return expand + (S + 1) * (read + norm) + S * (write + branches);
}

template <class T>
double WiredRule<T>::flops_backward() const {
  const double C = static_cast<double>(C_), DC = C * static_cast<double>(D_), S = static_cast<double>(S_);
  const double E = static_cast<double>(config_.state_kernel), G = static_cast<double>(config_.gate_hidden);
  const double norm = 9 * C;
  const double read = wiring_.read == Read::kChannel ? 6 * DC
                      : wiring_.read == Read::kToken ? (6 * E + 4) * DC
                                                     : C;
  const double write = wiring_.write == WriteRule::kAdd     ? C
                       : wiring_.write == WriteRule::kDelta ? 2 * C + 10 * DC
                                                            : 2 * C + 6 * DC;
  const double gate = two_layer_ ? 6 * C * G + 6 * G : 4 * C;
  const double branches = branches_ ? gate + 4 * DC : 0;
  const double expand = wiring_.expand == Expand::kConv ? 4 * static_cast<double>(config_.embed_kernel) * DC
                        : wiring_.expand == Expand::kRepeat ? DC
                                                            : 0;
  return expand + (S + 1) * (read + norm) + S * (write + branches);
}

template <class T>
Index WiredRule<T>::cache_floats() const {
  const Index embeddings = wiring_.expand == Expand::kConv ? (config_.embed_kernel - 1) * C_ : 0;
  const Index states = wiring_.read == Read::kToken ? (S_ + 1) * (config_.state_kernel - 1) * D_ * C_ : 0;
  return embeddings + states;
}

template class WiredRule<float>;
template class WiredRule<bf16>;

ResidualEntry wired_rule(std::string name, std::string summary, Wiring wiring,
                         std::optional<PaperCost> paper) {
  return {std::move(name),
          std::move(summary),
          paper,
          [wiring](const ModelConfig& config, BatchShape shape) -> std::unique_ptr<Residual<float>> {
            return std::make_unique<WiredRule<float>>(config, shape, wiring);
          },
          [wiring](const ModelConfig& config, BatchShape shape) -> std::unique_ptr<Residual<bf16>> {
            return std::make_unique<WiredRule<bf16>>(config, shape, wiring);
          },
          wiring.write == WriteRule::kWriteOnly ? "a write-only rule" : ""};
}

}  // namespace ddl
