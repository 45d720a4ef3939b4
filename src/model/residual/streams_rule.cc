#include "model/residual/streams_rule.h"

#include <algorithm>
#include <utility>

#include "kernels/short_conv.h"

namespace ddl {

template <class T>
StreamsRule<T>::StreamsRule(const ModelConfig& config, StreamsSpec spec)
    : spec_(std::move(spec)),
      S_(config.sublayers()),
      D_(spec_.streams),
      C_(config.width),
      norm_eps_(static_cast<float>(config.norm_eps)),
      saved_(static_cast<std::size_t>(S_ + 1)) {}

template <class T>
void StreamsRule<T>::add_params(ParamTable& table) {
  stages_.assign(static_cast<std::size_t>(S_ + 1), {});
  for (Index s = 0; s < S_; ++s) {
    const std::string block = fmt::format("transformer.h.{}.", s / 2);
    const bool attention = s % 2 == 0;
    stages_[s].norm = table.add_norm(block + (attention ? "ln_1" : "ln_2") + ".weight", C_);
    stages_[s].mixer = spec_.add_params(table, block + spec_.prefix + (attention ? "_attn." : "_mlp."), s);
    row_norms_ = stages_[s].mixer.row_norm >= 0;
  }
  stages_[S_].norm = table.add_norm("ln_f.weight", C_);
}

template <class T>
void StreamsRule<T>::plan(Arena& arena, const Room& room) {
  const Index N = room.tokens;
  const StreamMixer& mixer = *spec_.mixer;
  const bool looks = mixer.rows() > 0;
  for (Index s = 0; s <= S_; ++s) {
    Saved& saved = saved_[s];
    if (!room.training && s > 0) {
      saved = saved_[0];  // a pass writes a token before it decides the next numbers, so one set is enough
      continue;
    }
    saved.state_NDC =
        arena.take<float>(room.training && s < S_ ? "stored states" : "residual state", N * D_ * C_);
    saved.rstd_N = arena.take<float>("mixing numbers", N);
    if (s == S_) continue;
    if (looks) {
      saved.dots_NQ = arena.take<float>("mixing numbers", N * mixer.dots(D_));
      saved.square_ND = arena.take<float>("mixing numbers", N * D_);
    }
    saved.numbers_NK = arena.take<float>("mixing numbers", N * StreamNumbers{D_}.count());
  }
  if (norms_rows()) rows_RC_ = arena.take<float>("mixing rows", row_count());
  if (!room.training) return;
  dstate_NDC_ = arena.take<float>("residual state gradient", N * D_ * C_);
  dnumbers_NK_ = arena.take<float>("mixing numbers", N * StreamNumbers{D_}.count());
  if (norms_rows()) drows_RC_ = arena.take<float>("mixing rows", row_count());
  scratch_ = arena.take<float>("reduction scratch", streams_bwd_scratch(mixer, D_, C_));
}

// u . w with u = gamma * X_i rstd_i is rstd_i X_i . (gamma * w): the pass gets gamma * w, once for all tokens.
//   dw_r = gamma * d(gamma * w_r)        dgamma = sum_r w_r * d(gamma * w_r)
template <class T>
void StreamsRule<T>::scale_rows(Index s) const {
  const float *w = p(stages_[s].mixer.rows), *gamma = p(stages_[s].mixer.row_norm);
  for (Index i = 0; i < row_count(); ++i) rows_RC_[i] = w[i] * gamma[i % C_];
}

template <class T>
void StreamsRule<T>::scale_rows_backward(Index s) const {
  const float *w = p(stages_[s].mixer.rows), *gamma = p(stages_[s].mixer.row_norm);
  float *dw = g(stages_[s].mixer.rows), *dgamma = g(stages_[s].mixer.row_norm);
  for (Index i = 0; i < row_count(); ++i) {
    dw[i] += drows_RC_[i] * gamma[i % C_];
    dgamma[i % C_] += drows_RC_[i] * w[i];
  }
}

template <class T>
StreamsLook StreamsRule<T>::look(Index s) const {
  if (s == S_) return {};
  const MixerParams& at = stages_[s].mixer;
  return {.mixer = spec_.mixer.get(),
          .w = norms_rows() ? rows_RC_ : p(at.rows),
          .extra = p(at.extra),
          .dots_NQ = saved_[s].dots_NQ,
          .square_ND = saved_[s].square_ND,
          .numbers_NK = saved_[s].numbers_NK};
}

// Forward.

template <class T>
void StreamsRule<T>::read(Index s, T* context_NC, const StreamsWriteFwd<T>* write, const Tokens& tokens,
                          const Exec& ex) {
  if (s < S_ && norms_rows()) scale_rows(s);
  const StreamsReadFwd<T> part{.look = look(s),
                               .norm_C = p(stages_[s].norm),
                               .norm_eps = norm_eps_,
                               .context_NC = context_NC,
                               .rstd_N = saved_[s].rstd_N};
  streams_fwd<T>(saved_[s].state_NDC, write, &part, tokens.count, D_, C_, ex);
}

template <class T>
void StreamsRule<T>::start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) {
  repeat_fwd(saved_[0].state_NDC, x_NC, tokens.count, D_, C_, ex);
  read(0, context_NC, nullptr, tokens, ex);
}

template <class T>
void StreamsRule<T>::write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                                    const Exec& ex) {
  const StreamsWriteFwd<T> write{
      .from_NDC = saved_[s].state_NDC, .h_NC = h_NC, .numbers_NK = saved_[s].numbers_NK};
  read(s + 1, next_context_NC, &write, tokens, ex);
}

// Backward. The numbers of sublayer s are decided by the pass that reads its input, and steer its write. So the
// write's backward leaves their gradients in dnumbers, and they are paid one step later.

template <class T>
void StreamsRule<T>::read_backward(Index s, float* dcontext_NC, const StreamsWriteBwd<T>* write,
                                   const Tokens& tokens, const Exec& ex) {
  const bool mixes = s < S_;
  const MixerParams& at = stages_[s].mixer;
  if (mixes && norms_rows()) {
    scale_rows(s);
    std::fill_n(drows_RC_, row_count(), 0.0f);
  }
  const StreamsReadBwd<T> part{.look = look(s),
                               .state_NDC = saved_[s].state_NDC,
                               .norm_C = p(stages_[s].norm),
                               .rstd_N = saved_[s].rstd_N,
                               .dcontext_NC = dcontext_NC,
                               .dnumbers_NK = dnumbers_NK_,
                               .dstate_mode = mixes ? Write::kAccumulate : Write::kOverwrite,
                               .dw = !mixes         ? nullptr
                                     : norms_rows() ? drows_RC_
                                                    : g(at.rows),
                               .dextra = mixes ? g(at.extra) : nullptr,
                               .dnorm_C = g(stages_[s].norm)};
  streams_bwd<T>(dstate_NDC_, &part, write, scratch_, tokens.count, D_, C_, ex);
  if (mixes && norms_rows()) scale_rows_backward(s);
}

template <class T>
void StreamsRule<T>::write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T*,
                                             const T* h_NC, const Tokens& tokens, const Exec& ex) {
  const StreamsWriteBwd<T> write{.from_NDC = saved_[s].state_NDC,
                                 .h_NC = h_NC,
                                 .numbers_NK = saved_[s].numbers_NK,
                                 .dh_NC = dh_NC,
                                 .dnumbers_NK = dnumbers_NK_};
  read_backward(s + 1, dnext_context_NC, &write, tokens, ex);
}

template <class T>
void StreamsRule<T>::start_backward(float* dx_NC, float* dcontext_NC, const T*, const float*,
                                    const Tokens& tokens, const Exec& ex) {
  read_backward(0, dcontext_NC, nullptr, tokens, ex);
  repeat_bwd(dx_NC, dstate_NDC_, tokens.count, D_, C_, ex);
}

// Costs: counted from the kernel's inner loops, a multiply-add as two; what is done once per token and number is
// left out.

template <class T>
double StreamsRule<T>::flops_forward() const {
  const double C = static_cast<double>(C_), D = static_cast<double>(D_), S = static_cast<double>(S_);
  const double R = static_cast<double>(spec_.mixer->rows());
  const double read = 2 * D * C, norm = 4 * C;
  const double write = 2 * (D + 1) * D * C;
  const double look = R > 0 ? 2 * R * D * C + 2 * D * C : 0;  // dots, squares
  return (S + 1) * (read + norm) + S * (write + look);
}

template <class T>
double StreamsRule<T>::flops_backward() const {
  const double C = static_cast<double>(C_), D = static_cast<double>(D_), S = static_cast<double>(S_);
  const double R = static_cast<double>(spec_.mixer->rows());
  const double read = 4 * D * C, norm = 9 * C;                // x_in again, dX
  const double read_numbers = 2 * D * C;                      // the readout has none
  const double write = 4 * (D + 1) * D * C;                   // dX and dmix, dh and dwrite
  const double look = R > 0 ? 4 * R * D * C + 2 * D * C : 0;  // dX and dw, the squares' path
  return D * C + (S + 1) * (read + norm) + S * (read_numbers + write + look);
}

template <class T>
std::vector<TokenSeries> StreamsRule<T>::series(Index s) const {
  const StreamNumbers at{D_};
  const float* numbers = saved_[s].numbers_NK;
  return {
      {.name = "read weight", .values = numbers + at.read(), .per_token = D_, .stride = at.count()},
      {.name = "write weight", .values = numbers + at.write(), .per_token = D_, .stride = at.count()},
      {.name = "mixing", .values = numbers + at.mix(), .per_token = D_ * D_, .stride = at.count()},
      {.name = "mixing diagonal", .values = numbers + at.diagonal(), .per_token = D_, .stride = at.count()}};
}

template <class T>
bool StreamsRule<T>::read_as_last(Index s, T* context_NC, const Tokens& tokens, const Exec& ex) {
  const StreamsReadFwd<T> part{.look = look(S_),
                               .norm_C = p(stages_[S_].norm),
                               .norm_eps = norm_eps_,
                               .context_NC = context_NC,
                               .rstd_N = saved_[S_].rstd_N};
  streams_fwd<T>(saved_[s].state_NDC, nullptr, &part, tokens.count, D_, C_, ex);
  return true;
}

template class StreamsRule<float>;
template class StreamsRule<bf16>;

RuleEntry streams_rule(std::string name, std::string summary, OptionSetPtr options,
                       std::function<StreamsSpec(const ModelConfig&)> spec) {
  RuleEntry entry{.name = std::move(name), .summary = std::move(summary), .options = std::move(options)};
  entry.make_f32 = [spec](const ModelConfig& config) {
    return std::make_unique<StreamsRule<float>>(config, spec(config));
  };
  entry.make_bf16 = [spec](const ModelConfig& config) {
    return std::make_unique<StreamsRule<bf16>>(config, spec(config));
  };
  return entry;
}

}  // namespace ddl
