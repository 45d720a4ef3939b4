// A small model's table with parameters, gradients and an optimizer over them.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "core/rng.h"
#include "model/config.h"
#include "model/optimizer/optimizer.h"
#include "model/weights.h"

namespace ddl {

inline ModelConfig optimizer_test_model() {
  ModelConfig c;
  c.layers = 1, c.width = 16, c.heads = 2, c.vocab = 11, c.context = 4, c.precision = Precision::kF32;
  return c;
}

struct OptimizerBench {
  ParamTable table;
  std::vector<float> params, grads;
  std::vector<bf16> copy;
  Arena arena;
  std::unique_ptr<Optimizer> optimizer;

  OptimizerBench(ParamTable parameters, double hidden_lr_factor, const OptimizerConfig& config)
      : table(std::move(parameters)), arena(Arena::measuring()) {
    params.resize(table.floats()), grads.resize(table.floats()), copy.resize(table.floats());
    table.initialise(params.data(), 1, Exec{});
    make_optimizer(table, hidden_lr_factor, config, arena);
    arena = Arena::owning(arena.used_bytes());
    optimizer = make_optimizer(table, hidden_lr_factor, config, arena);
    optimizer->start_average(params, Exec{});
  }
  OptimizerBench(const ModelConfig& model, const OptimizerConfig& config)
      : OptimizerBench(param_table(model), model.hidden_lr_factor(), config) {}

  void fill_grads(double scale, std::uint64_t seed = 7) {
    const Random random(seed, "grads");
    for (const Param& p : table.list())
      for (Index i = p.offset; i < p.offset + p.count; ++i)
        grads[i] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i)));
  }
  Optimizer::Update step(double lr, const Exec& ex = {}) {
    return optimizer->step(params, grads, copy.data(), lr, ex);
  }
  double norm() const {
    double sum = 0;
    for (const float g : grads) sum += static_cast<double>(g) * static_cast<double>(g);
    return std::sqrt(sum);
  }
  const float* state(const std::string& name) const {
    for (const NamedArray& array : optimizer->state())
      if (array.name == name) return array.data;
    return nullptr;
  }
};

}  // namespace ddl
