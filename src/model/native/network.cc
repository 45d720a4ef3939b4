#include "model/native/network.h"

#include <type_traits>

#include "core/profiler.h"
#include "model/residual/registry.h"

namespace ddl {

template <class T>
Network<T>::Network(const ModelConfig& config, ParamTable::Matrices matrices)
    : config_(config),
      C_(config.width),
      S_(config.sublayers()),
      table_(matrices),
      head_(config),
      attention_(config),
      mlp_(config),
      residual_(make_rule<T>(config)) {
  head_.add_params(table_);
  for (Index layer = 0; layer < config.layers; ++layer) {
    layer_begin_.push_back(table_.floats());
    attention_.add_params(table_);
    mlp_.add_params(table_);
  }
  layer_begin_.push_back(table_.floats());
  residual_->add_params(table_);
}

template <class T>
void Network<T>::plan(Arena& arena, const Room& room) {
  const Index N = room.tokens;
  x_NC_ = arena.take<float>("embedding", N * C_);
  context_.assign(static_cast<std::size_t>(S_ + 1), nullptr);
  h_.assign(static_cast<std::size_t>(S_), nullptr);
  for (Index s = 0; s <= S_; ++s)
    context_[s] = room.training || s == 0 ? arena.take<T>("sublayer inputs", N * C_) : context_[0];
  for (Index s = 0; s < S_; ++s)
    h_[s] = room.training || s == 0 ? arena.take<T>("sublayer outputs", N * C_) : h_[0];
  attention_.plan(arena, room);
  mlp_.plan(arena, room);
  head_.plan(arena, room);
  residual_->plan(arena, room);
  if (!room.training) return;
  dx_NC_ = arena.take<float>("scratch: gradients", N * C_);
  dh_NC_ = arena.take<T>("scratch: gradients", N * C_);
}

template <class T>
void Network<T>::bind(const Weights& weights, float* grads) {
  DDL_CHECK(weights.table().floats() == table_.floats(), "{} and {} floats of parameters",
            weights.table().floats(), table_.floats());
  numbers_ = {.params = weights.values().data(), .params_T = nullptr, .grads = grads};
  if constexpr (std::is_same_v<T, float>)
    numbers_.params_T = numbers_.params;
  else
    numbers_.params_T = weights.copy();
  DDL_CHECK(numbers_.params_T != nullptr, "weights without a bf16 copy");
  head_.bind(numbers_);
  attention_.bind(numbers_);
  mlp_.bind(numbers_);
  residual_->bind(numbers_);
}

template <class T>
const T* Network<T>::forward(const std::int32_t* token_N, const Pass<T>& pass, const Exec& ex) {
  head_.embed(x_NC_, token_N, pass.tokens.count, *pass.products, ex);
  {
    const ProfileScope scope("residual forward", ex);
    residual_->start(context_[0], x_NC_, pass.tokens, ex);
  }
  for (Index s = 0; s < S_; ++s) {
    if (s % 2 == 0)
      attention_.forward(s / 2, h_[s], context_[s], pass, ex);
    else
      mlp_.forward(s / 2, h_[s], context_[s], pass, ex);
    if (pass.observer) pass.observer->before_write(s, context_[s], h_[s]);
    const ProfileScope scope("residual forward", ex);
    residual_->write_and_read(s, context_[s + 1], h_[s], pass.tokens, ex);
  }
  if (pass.observer) pass.observer->before_write(S_, context_[S_], nullptr);
  return context_[S_];
}

template <class T>
void Network<T>::backward(float* dcontext_NC, const std::int32_t* token_N, const Tokens& tokens,
                          FunctionRef<void(Index begin, Index end)> ready, const Exec& ex) {
  for (Index s = S_ - 1; s >= 0; --s) {
    {
      const ProfileScope scope("residual backward", ex);
      residual_->write_and_read_backward(s, dh_NC_, dcontext_NC, context_[s + 1], h_[s], tokens, ex);
    }
    if (s % 2 == 0)
      attention_.backward(s / 2, dcontext_NC, dh_NC_, context_[s], tokens, ex);
    else
      mlp_.backward(s / 2, dcontext_NC, dh_NC_, context_[s], tokens, ex);
    if (s % 2 == 0) ready(layer_begin_[s / 2], layer_begin_[s / 2 + 1]);
  }
  {
    const ProfileScope scope("residual backward", ex);
    residual_->start_backward(dx_NC_, dcontext_NC, context_[0], x_NC_, tokens, ex);
  }
  {
    const ProfileScope scope("embedding backward", ex);
    head_.embed_backward(dx_NC_, token_N, tokens.count, ex);
  }
  ready(0, layer_begin_.front());
  ready(layer_begin_.back(), table_.floats());
}

template class Network<float>;
template class Network<bf16>;

}  // namespace ddl
