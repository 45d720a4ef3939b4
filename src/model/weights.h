// The numbers of a model, apart from anything that computes with them: a table that says which tensor lies
// where, the f32 array, and the low-precision copy that GEMMs read where the model runs in bf16. Loading,
// export, import and checkpoints use this alone.
//
// For inference the large matrices may be in a small format instead (core/weight_format.h). Then they are packed,
// and the array holds what is left: norms, gates and the rule's parameters. Training and export need f32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "core/weight_format.h"
#include "model/config.h"
#include "model/packed_weights.h"
#include "model/params.h"

namespace ddl {

// Which tensors a model of this configuration has, and where they are in this format.
ParamTable param_table(const ModelConfig& config, WeightFormat format = WeightFormat::kF32);

class Weights {
 public:
  explicit Weights(const ModelConfig& config, WeightFormat format = WeightFormat::kF32);  // all zero
  Weights(const ModelConfig& config, std::uint64_t seed, const Exec& ex);  // at their starting values

  const ModelConfig& config() const { return config_; }
  const ParamTable& table() const { return table_; }
  WeightFormat format() const { return packed_ ? packed_->format() : WeightFormat::kF32; }
  // What is multiplied: as ModelConfig::numbers(), or "f32 with q8 weights".
  std::string numbers() const;
  std::span<float> values() { return {values_, static_cast<std::size_t>(table_.floats())}; }
  std::span<const float> values() const { return {values_, static_cast<std::size_t>(table_.floats())}; }
  std::span<float> tensor(std::string_view name);                    // must exist, and be in the array
  PackedWeights* packed() { return packed_ ? &*packed_ : nullptr; }  // null in f32
  const PackedWeights* packed() const { return packed_ ? &*packed_ : nullptr; }

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
  std::optional<PackedWeights> packed_;
};

// The same numbers in another format: rounded where it is smaller. What small weights stand for, exactly, is
// to_format(weights, WeightFormat::kF32).
Weights to_format(const Weights& weights, WeightFormat format, const Exec& ex);

}  // namespace ddl
