// What computes. An engine makes the three things that the layers above use: a model that learns, a decoder and
// a scorer. The option model.engine chooses one; no layer above this header knows which.
//   native       the CPU kernels of this project
//   reference    the scalar oracle (src/ref) in double precision: slow and obviously right
//   torch        LibTorch, on CPUs and GPUs: an optional part (src/torch), opened when somebody asks for it
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/exec.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/optimizer/optimizer.h"
#include "model/trainable.h"
#include "model/tree_scorer.h"
#include "model/weights.h"

namespace ddl {

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                                         const OptimizerConfig& optimizer, std::uint64_t seed,
                                                         const Exec& ex) const = 0;
  virtual std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape,
                                                const Exec& ex) const = 0;
  virtual std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape,
                                                       const Exec& ex) const = 0;
  // Throws UserError where it cannot compute here: on a GPU that is not there.
  virtual void check_device() const {}
  // Whether products of bf16 numbers are fast where it computes: what Precision::kAuto asks.
  virtual bool has_fast_bf16() const = 0;
  // Whether all its numbers are f64, whatever model.precision says.
  virtual bool computes_in_f64() const { return false; }
  // Whether it multiplies with small weights as they are stored (model/packed_weights.h); others need f32 in the array.
  virtual bool takes_packed_weights() const { return false; }
  // Whether a Probe (model/probe.h) shows what it computes.
  virtual bool can_be_watched() const { return false; }
};

std::vector<std::string> engine_names();
// Throws UserError, naming the nearest, or saying what to install.
const Engine& find_engine(const std::string& name);
// The same, but native in place of one that is not installed: for who only looks at a model.
const Engine& engine_or_native(const std::string& name);

// Where the torch engine computes: "cpu", "cuda" (the first GPU; on several ranks each takes the next),
// "cuda:N", or "auto", a GPU where there is one. A choice of this process, no part of a model or a run.
// Throws UserError on anything else.
void choose_device(const std::string& device);
const std::string& chosen_device();

// By the configuration's engine.

// Parameters at their starting values for `seed`. Throws UserError, with the numbers, on impossible sizes; the native
// engine also where its plan (model/plan.h) exceeds the machine's memory.
std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                               const OptimizerConfig& optimizer, std::uint64_t seed,
                                               const Exec& ex);
// Both refer to the weights, which must outlive them and stay as they are.
// Throw UserError on impossible sizes.
std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape, const Exec& ex);
std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape, const Exec& ex);

}  // namespace ddl
