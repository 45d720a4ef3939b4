#include "model/trainable.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "core/machine.h"
#include "core/profiler.h"
#include "model/native/engine.h"
#include "model/native/gemm_floor.h"
#include "model/native/network.h"
#include "model/native/products.h"
#include "model/plan.h"

namespace ddl {
namespace {

// What a network that trains takes besides its weights. Runs twice: measuring, then for real.
template <class T>
struct TrainingMemory {
  float *grads = nullptr, *dcontext_NC = nullptr;

  void plan(Arena& arena, Network<T>& network, BatchShape shape, int threads) {
    grads = arena.take<float>("gradients", network.table().floats());
    network.plan(arena, {.tokens = shape.N(), .positions = shape.T, .training = true, .threads = threads});
    dcontext_NC = arena.take<float>("scratch: gradients", shape.N() * network.config().width);
  }
};

void append(std::vector<Arena::Entry>& to, const std::vector<Arena::Entry>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

template <class T>
ModelPlan plan_network(const ModelConfig& config, BatchShape shape, int threads) {
  Network<T> network(config);
  ModelPlan plan;
  plan.table = network.table();
  Arena arena = Arena::measuring();
  Weights::plan(arena, config, plan.table);
  TrainingMemory<T>().plan(arena, network, shape, threads);
  plan.memory = arena.ledger();
  plan.total_bytes = arena.used_bytes();
  const double L = static_cast<double>(config.layers);
  plan.forward.linear = L * (network.attention().flops_linear() + network.mlp().flops_linear());
  plan.forward.attention = L * network.attention().flops_attention(shape.T);
  plan.forward.head = network.head().flops();
  plan.forward.residual = network.residual().flops_forward();
  plan.backward.linear = 2 * plan.forward.linear;
  plan.backward.attention = 2.5 * plan.forward.attention;  // five products
  plan.backward.head = 2 * plan.forward.head;
  plan.backward.residual = network.residual().flops_backward();
  plan.recomputed = L * (network.attention().flops_again(shape.T) + network.mlp().flops_again());
  plan.cache_bytes_per_token = 2 * config.layers * config.width * static_cast<Index>(sizeof(T));
  plan.cache_bytes_per_sequence = network.residual().remembered_floats() * static_cast<Index>(sizeof(float));
  plan.state_bytes_per_token = network.residual().state_floats() * sizeof(float);
  return plan;
}

template <class T>
class NativeTrainable final : public TrainableModel {
 public:
  NativeTrainable(const ModelConfig& config, BatchShape shape, const OptimizerConfig& optimizer,
                  std::uint64_t seed, const Exec& ex)
      : config_(config), shape_(shape), network_(config), weights_(config, seed, ex) {
    arena_ = Arena::planned([&](Arena& arena) { memory_.plan(arena, network_, shape, ex.threads); });
    network_.bind(weights_, memory_.grads);
    optimizer_arena_ = Arena::planned([&](Arena& arena) {
      optimizer_ = make_optimizer(weights_.table(), config.hidden_lr_factor(), optimizer, arena);
    });
    optimizer_->start_average(weights_.values(), ex);
  }

  const ModelConfig& config() const override { return config_; }
  BatchShape shape() const override { return shape_; }
  Weights& weights() override { return weights_; }
  Optimizer& optimizer() override { return *optimizer_; }
  void upload(const Exec& ex) override { weights_.update_copy(ex); }

  double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) override {
    return network_.head().loss(forward(batch, ex), batch.target_BT, scores, 0, nullptr, shape_.N(), ex);
  }

  double loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) override {
    return loss_and_grad_in_parts(
        batch, grad_scale, [](Index, Index) {}, ex);
  }

  double loss_and_grad_in_parts(const BatchView& batch, double grad_scale, GradientsReady ready,
                                const Exec& ex) override {
    DDL_CHECK(grad_scale != 0, "grad_scale 0 is loss()");
    const T* context_NC = forward(batch, ex);
    const double mean = network_.head().loss(context_NC, batch.target_BT, {}, grad_scale, memory_.dcontext_NC,
                                             shape_.N(), ex);
    network_.backward(memory_.dcontext_NC, batch.token_BT, tokens(), ready, ex);
    return mean;
  }

  std::span<float> gradients() override {
    return {memory_.grads, static_cast<std::size_t>(weights_.table().floats())};
  }

  Optimizer::Update update(double lr, const Exec& ex) override {
    return optimizer_->step(weights_.values(), gradients(), weights_.copy(), lr, ex);
  }
  void discard_gradients(const Exec& ex) override { Optimizer::discard(gradients(), ex); }

  std::vector<TokenSeries> series(Index s) const override { return network_.residual().series(s); }

  std::vector<Arena::Entry> memory() const override {
    std::vector<Arena::Entry> all = weights_.arena().ledger();
    append(all, arena_.ledger());
    append(all, optimizer_arena_.ledger());
    return all;
  }
  double measure_floor(const Exec& ex) const override { return measure_step_floor(config_, shape_, 1, ex); }

 private:
  Tokens tokens() const { return Tokens::whole(shape_.B, shape_.T); }
  const T* forward(const BatchView& batch, const Exec& ex) {
    const DenseProducts<T> products(network_.numbers());
    return network_.forward(batch.token_BT, {.tokens = tokens(), .products = &products}, ex);
  }

  const ModelConfig config_;
  const BatchShape shape_;
  Network<T> network_;
  Weights weights_;
  Arena arena_ = Arena::measuring(), optimizer_arena_ = Arena::measuring();
  TrainingMemory<T> memory_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

ModelPlan plan_model(const ModelConfig& config, BatchShape shape) {
  check_batch(config, shape);
  const int threads = default_exec().threads;
  return config.uses_bf16() ? plan_network<bf16>(config, shape, threads)
                            : plan_network<float>(config, shape, threads);
}

std::unique_ptr<TrainableModel> make_native_trainable(const ModelConfig& config, BatchShape shape,
                                                      const OptimizerConfig& optimizer, std::uint64_t seed,
                                                      const Exec& ex) {
  const ModelPlan plan = plan_model(config, shape);
  if (plan.total_bytes > machine_memory_bytes())
    throw UserError(
        "this model needs {} for a batch of {} x {} tokens, the machine has {}; a smaller batch, "
        "model.recompute=block or a smaller preset needs less ('ddl info' shows what takes how much)",
        format_bytes(plan.total_bytes), shape.B, shape.T, format_bytes(machine_memory_bytes()));
  if (config.uses_bf16()) return std::make_unique<NativeTrainable<bf16>>(config, shape, optimizer, seed, ex);
  return std::make_unique<NativeTrainable<float>>(config, shape, optimizer, seed, ex);
}

}  // namespace ddl
