#include "model/weights.h"

#include <string>

#include "model/native/network.h"

namespace ddl {

ParamTable param_table(const ModelConfig& config) {
  config.check();
  return Network<float>(config).table();
}

Weights::Weights(const ModelConfig& config) : config_(config), table_(param_table(config)) {
  Arena measured = Arena::measuring();
  take(measured);
  arena_ = Arena::owning(measured.used_bytes());
  take(arena_);
}

Weights::Weights(const ModelConfig& config, std::uint64_t seed, const Exec& ex) : Weights(config) {
  table_.initialise(values_, seed, ex);
  update_copy(ex);
}

void Weights::take(Arena& arena) {
  const Slices slices = plan(arena, config_, table_);
  values_ = slices.values, copy_ = slices.copy;
}

Weights::Slices Weights::plan(Arena& arena, const ModelConfig& config, const ParamTable& table) {
  Slices slices;
  slices.values = arena.take<float>("parameters", table.floats());
  if (config.uses_bf16()) slices.copy = arena.take<bf16>("parameters, bf16 copy", table.floats());
  return slices;
}

std::span<float> Weights::tensor(std::string_view name) {
  const Param& p = table_.find(std::string(name));
  return values().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.count));
}

void Weights::update_copy(const Exec& ex) {
  if (!copy_) return;
  parallel_chunks(table_.floats(), 1 << 16, ex, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) copy_[i] = to_bf16(values_[i]);
  });
}

}  // namespace ddl
