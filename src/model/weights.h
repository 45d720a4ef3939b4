// The numbers of a model, apart from anything that computes with them: a table that says which tensor lies
// where, the f32 array, and the low-precision copy that GEMMs read where the model runs in bf16. Loading,
// export, import and checkpoints use this alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "model/config.h"
#include "model/params.h"

namespace ddl {

// Which tensors a model of this configuration has.
ParamTable param_table(const ModelConfig& config);

class Weights {
 public:
  explicit Weights(const ModelConfig& config);                             // all zero
  Weights(const ModelConfig& config, std::uint64_t seed, const Exec& ex);  // at their starting values

  const ModelConfig& config() const { return config_; }
  const ParamTable& table() const { return table_; }
  std::span<float> values() { return {values_, static_cast<std::size_t>(table_.floats())}; }
  std::span<const float> values() const { return {values_, static_cast<std::size_t>(table_.floats())}; }
  std::span<float> tensor(std::string_view name);  // must exist

  // The copy that GEMMs read; null in f32. After values() have changed, update_copy() brings it up to date, or
  // whoever changed them keeps it so, as the fused optimizers do.
  bf16* copy() { return copy_; }
  const bf16* copy() const { return copy_; }
  void update_copy(const Exec& ex);

  const Arena& arena() const { return arena_; }
  // What such weights take from an arena.
  struct Slices {
    float* values = nullptr;
    bf16* copy = nullptr;
  };
  static Slices plan(Arena& arena, const ModelConfig& config, const ParamTable& table);

 private:
  void take(Arena& arena);

  ModelConfig config_;
  ParamTable table_;
  Arena arena_ = Arena::measuring();
  float* values_ = nullptr;
  bf16* copy_ = nullptr;
};

}  // namespace ddl
