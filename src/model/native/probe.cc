#include "model/probe.h"

#include <algorithm>
#include <type_traits>

#include "core/arena.h"
#include "core/error.h"
#include "model/native/network.h"
#include "model/native/products.h"
#include "model/plan.h"

namespace ddl {
namespace {

template <class T>
class NativeProbe final : public Probe, private PassObserver<T> {
 public:
  NativeProbe(const Weights& weights, BatchShape shape, const Exec& ex)
      : config_(weights.config()),
        shape_(shape),
        C_(config_.width),
        weights_(weights),
        network_(config_),
        wte_(weights.table().find("transformer.wte.weight").offset) {
    const Room room{.tokens = shape.N(), .positions = shape.T, .training = true, .threads = ex.threads};
    arena_ = Arena::planned([&](Arena& arena) { network_.plan(arena, room); });
    network_.bind(weights, nullptr);
    lens_NC_.resize(static_cast<std::size_t>(shape.N() * C_));
  }

  const ModelConfig& config() const override { return config_; }
  BatchShape shape() const override { return shape_; }

  double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) override {
    return run(batch, scores, nullptr, ex);
  }
  double watch(const BatchView& batch, const TokenScores& scores, Visit visit, const Exec& ex) override {
    return run(batch, scores, &visit, ex);
  }

  bool lens(const BatchView& batch, const LensScores& scores, const Exec& ex) override {
    DDL_CHECK(depth_ >= 0, "lens() outside of a visit");
    const Index N = shape_.N();
    if (!network_.residual().read_as_last(depth_, lens_NC_.data(), tokens(), ex)) return false;
    std::vector<float> own_loss;
    float* loss_N = scores.loss_N;
    if (!loss_N) own_loss.resize(static_cast<std::size_t>(N)), loss_N = own_loss.data();
    network_.head().loss(lens_NC_.data(), batch.target_BT, {loss_N, scores.correct_N}, 0, nullptr, N, ex);
    if (!scores.own_N) return true;
    // log p(token) = z_token - logsumexp(z), and the loss is logsumexp(z) - z_target.
    parallel_for(N, ex, [&](Index n) {
      const std::int32_t target = batch.target_BT[n];
      scores.own_N[n] =
          target < 0 ? 0.0f : static_cast<float>(logit(n, batch.token_BT[n]) - logit(n, target) - loss_N[n]);
    });
    return true;
  }

  std::vector<float> logits(Index n, const Exec& ex) override {
    DDL_CHECK(context_NC_, "logits() before a pass");
    std::vector<float> z_V(static_cast<std::size_t>(config_.vocab));
    network_.head().logits(z_V.data(), context_NC_ + n * C_, 1, DenseProducts<T>(network_.numbers()), ex);
    for (float& z : z_V) z *= config_.logit_scale();
    return z_V;
  }

  std::vector<TokenSeries> series(Index s) const override { return network_.residual().series(s); }

  bool replace(const Replacement* replacement) override {
    output_ = nullptr;
    if (!replacement || replacement->series != kOutputSeries)
      return network_.residual().replace(replacement) || !replacement;
    network_.residual().replace(nullptr);
    if (std::ssize(replacement->values) != C_) return false;
    output_ = replacement;
    return true;
  }

 private:
  Tokens tokens() const { return Tokens::whole(shape_.B, shape_.T); }

  double run(const BatchView& batch, const TokenScores& scores, const Visit* visit, const Exec& ex) {
    visit_ = visit;
    const DenseProducts<T> products(network_.numbers());
    const Pass<T> pass{.tokens = tokens(), .products = &products, .observer = this};
    context_NC_ = network_.forward(batch.token_BT, pass, ex);
    return network_.head().loss(context_NC_, batch.target_BT, scores, 0, nullptr, shape_.N(), ex);
  }

  void before_write(Index s, const T* context_NC, T* h_NC) override {
    if (output_ && h_NC && output_->sublayer == s)
      for (Index i = 0; i < shape_.N() * C_; ++i) h_NC[i] = from_float<T>(output_->values[i % C_]);
    if (!visit_) return;
    depth_ = s;
    (*visit_)({.s = s,
               .state = network_.residual().view(s),
               .context_NC = as_float(context_NC, context_float_),
               .h_NC = h_NC ? as_float(h_NC, h_float_) : nullptr});
    depth_ = -1;
  }

  const float* as_float(const T* x_NC, std::vector<float>& copy) const {
    if constexpr (std::is_same_v<T, float>) return x_NC;
    copy.resize(static_cast<std::size_t>(shape_.N() * C_));
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = to_float(x_NC[i]);
    return copy.data();
  }

  double logit(Index n, std::int32_t token) const {
    const Index at = wte_ + token * C_;
    double sum = 0;
    for (Index c = 0; c < C_; ++c) {
      float w = weights_.values()[at + c];
      if constexpr (!std::is_same_v<T, float>) w = to_float(weights_.copy()[at + c]);
      sum += static_cast<double>(w) * static_cast<double>(to_float(lens_NC_[n * C_ + c]));
    }
    return sum * static_cast<double>(config_.logit_scale());
  }

  const ModelConfig config_;
  const BatchShape shape_;
  const Index C_;
  const Weights& weights_;
  Network<T> network_;
  const Index wte_;  // offset of the embedding, which is the head
  Arena arena_ = Arena::measuring();
  std::vector<T> lens_NC_;
  std::vector<float> context_float_, h_float_;  // of bf16 models
  const T* context_NC_ = nullptr;               // what the head read in the last pass
  const Visit* visit_ = nullptr;
  Index depth_ = -1;                     // of the visit
  const Replacement* output_ = nullptr;  // of the outputs
};

}  // namespace

std::unique_ptr<Probe> make_probe(const Weights& weights, BatchShape shape, const Exec& ex) {
  check_batch(weights.config(), shape);
  if (weights.config().uses_bf16()) return std::make_unique<NativeProbe<bf16>>(weights, shape, ex);
  return std::make_unique<NativeProbe<float>>(weights, shape, ex);
}

}  // namespace ddl
