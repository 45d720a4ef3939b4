#include "model/model.h"

#include <unistd.h>

#include "model/transformer.h"

namespace ddl {
namespace {

void check_shape(const ModelConfig& config, BatchShape shape) {
  config.check();
  if (shape.B < 1 || shape.B > kMaxBatch || shape.T < 1 || shape.T > config.context)
    throw UserError("a batch of {} x {} tokens: expected 1 to {} sequences of 1 to {} tokens (model.context)",
                    shape.B, shape.T, kMaxBatch, config.context);
}

std::size_t machine_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                               : ~std::size_t{0};
}

template <class T>
std::unique_ptr<Model> make(const ModelConfig& config, BatchShape shape, Model::Mode mode, std::uint64_t seed,
                            const Exec& ex) {
  auto model = std::make_unique<Transformer<T>>(config, shape, mode, ex.threads);
  const ModelPlan plan = model->plan();
  if (plan.total_bytes > machine_bytes())
    throw UserError(
        "this model needs {} for a batch of {} x {} tokens, the machine has {}; a smaller batch, "
        "model.recompute=block or a smaller preset needs less ('ddl info' shows what takes how much)",
        format_bytes(plan.total_bytes), shape.B, shape.T, format_bytes(machine_bytes()));
  model->allocate(seed, ex);
  return model;
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelConfig& config, BatchShape shape, Model::Mode mode,
                                  std::uint64_t seed, const Exec& ex) {
  check_shape(config, shape);
  return config.uses_bf16() ? make<bf16>(config, shape, mode, seed, ex)
                            : make<float>(config, shape, mode, seed, ex);
}

ModelPlan plan_model(const ModelConfig& config, BatchShape shape, Model::Mode mode) {
  check_shape(config, shape);
  const int threads = default_exec().threads;
  return config.uses_bf16() ? Transformer<bf16>(config, shape, mode, threads).plan()
                            : Transformer<float>(config, shape, mode, threads).plan();
}

}  // namespace ddl
