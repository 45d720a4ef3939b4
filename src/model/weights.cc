#include "model/weights.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/native/network.h"

namespace ddl {

ParamTable param_table(const ModelConfig& config, WeightFormat format) {
  config.check();
  return Network<float>(config, matrices_of(format)).table();
}

Weights::Weights(const ModelConfig& config, WeightFormat format)
    : config_(config), table_(param_table(config, format)) {
  if (format != WeightFormat::kF32) {
    config_.precision = Precision::kF32;  // what meets small weights
    packed_.emplace(table_, format);
  }
  arena_ = Arena::planned([this](Arena& arena) { take(arena); });
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

std::string Weights::numbers() const {
  return packed_ ? fmt::format("{} with {} weights", config_.numbers(), info(format()).name)
                 : config_.numbers();
}

std::span<float> Weights::tensor(std::string_view name) {
  const Param& p = table_.find(std::string(name));
  DDL_CHECK(!p.packed, "{} is packed", name);
  return values().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.count));
}

void Weights::update_copy(const Exec& ex) {
  if (!copy_) return;
  parallel_chunks(table_.floats(), 1 << 16, ex, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) copy_[i] = to_bf16(values_[i]);
  });
}

Weights to_format(const Weights& from, WeightFormat format, const Exec& ex) {
  Weights to(from.config(), format);
  std::vector<float> wide;  // a matrix between two small formats
  for (std::size_t i = 0; i < to.table().list().size(); ++i) {
    const Param &p = from.table().list()[i], &q = to.table().list()[i];
    const float* numbers = p.packed ? nullptr : from.values().data() + p.offset;
    if (!q.packed) {
      float* out = to.values().data() + q.offset;
      if (p.packed)
        from.packed()->unpack(out, p, ex);
      else
        std::copy_n(numbers, p.count, out);
      continue;
    }
    if (p.packed) {
      wide.resize(static_cast<std::size_t>(p.count));
      from.packed()->unpack(wide.data(), p, ex);
      numbers = wide.data();
    }
    to.packed()->pack(q, numbers, ex);
  }
  to.update_copy(ex);
  return to;
}

}  // namespace ddl
