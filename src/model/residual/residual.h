// The residual interface: everything that differs between a plain Transformer and a delta Transformer is
// behind this class, and no other folder asks which rule it is.
//
// A network of S sublayers (attention, MLP, attention, ...) runs as
//     open                     x -> state;  read: context_0 = RMSNorm(x_in)
//     for s = 0 .. S-1:        h = sublayer_s(context_s)
//         advance(s)           write h into the state;  read: context_{s+1}; after the last sublayer the
//         readout
// and backward as the mirror image: retreat(S-1), ..., retreat(0), close. Write and read share a call because
// a token's state is then in the first-level cache for both.
//
// Decoding runs the same way over spans of tokens of several sequences, plan_decode, decode_open and
// decode_advance in place of plan, open and advance. What a rule must remember of a sequence's past it keeps
// itself, by slot.
//
// A rule owns its state, its saved values and the norm in front of every sublayer (the norm is part of the
// same pass). T is the type of activations: float or bf16. State, norms, gates and statistics are always f32.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "model/params.h"

namespace ddl {

struct ModelConfig;

struct BatchShape {
  Index B = 1, T = 1;
  Index N() const { return B * T; }
};

// What a sublayer's gate did to the last batch, for audits and metrics. All null for rules without a gate.
struct GateTrace {
  const float* beta_N = nullptr;
  const float* v_ND = nullptr;
  const float* readout_ND = nullptr;  // null for write-only rules
  Index channels = 0;
};

// `count` tokens of one sequence, the first at `position`. Their rows follow those of the span before. They
// go on from the sequence in slot `from`, or, where `parent` is given, from the end of that span of the same
// call, and afterwards the sequence is in `slot`. So one sequence may be gone on from several times.
struct DecodeSpan {
  Index slot = 0, position = 0, count = 0;
  Index from = slot;
  Index parent = -1;
};
using DecodeSpans = std::span<const DecodeSpan>;

inline Index token_count(DecodeSpans spans) {
  Index n = 0;
  for (const DecodeSpan& span : spans) n += span.count;
  return n;
}

template <class T>
class Residual {
 public:
  virtual ~Residual() = default;

  // Before any forward pass, in this order. plan() runs twice: measuring, then for real.
  virtual void add_params(ParamTable& table) = 0;
  virtual void plan(Arena& arena, bool training) = 0;
  // params_T is the copy GEMMs read: params itself for float, the bf16 copy for bf16. grads is null for
  // inference.
  virtual void bind(const float* params, const T* params_T, float* grads) = 0;

  virtual void open(T* context_NC, const float* x_NC, const Exec& ex) = 0;
  virtual void advance(Index s, T* next_context_NC, const T* h_NC, const Exec& ex) = 0;

  // dnext_context_NC is the gradient of what advance(s) wrote; it may be changed. dh_NC overwrites.
  virtual void retreat(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC, const T* h_NC,
                       const Exec& ex) = 0;
  // The gradient of open: dx_NC overwrites.
  virtual void close(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                     const Exec& ex) = 0;

  // Decoding: at most shape.N() tokens a call. A span at position 0 begins a new sequence in its slot. A
  // token's result depends on its sequence alone: not on the other spans, nor on how the sequence is cut into
  // spans.
  virtual void plan_decode(Arena& arena, Index slots) = 0;
  virtual void decode_open(T* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) = 0;
  virtual void decode_advance(Index s, T* next_context_NC, const T* h_NC, DecodeSpans spans,
                              const Exec& ex) = 0;
  virtual void decode_copy(Index to_slot, Index from_slot) = 0;

  // Per token, multiply-add as two: the rule's own arithmetic, norms included.
  virtual double flops_forward() const = 0;
  virtual double flops_backward() const = 0;
  // What decoding keeps per sequence besides attention's keys and values.
  virtual Index cache_floats() const = 0;

  virtual GateTrace trace(Index) const { return {}; }
};

// --- the registry
// -----------------------------------------------------------------------------------------------------

// A row of the paper's cost table, as ratios to its baseline (four H200s, small model).
struct PaperCost {
  double train_speed, inference_speed, peak_memory;
};

template <class T>
using MakeResidual = std::function<std::unique_ptr<Residual<T>>(const ModelConfig&, BatchShape)>;

struct ResidualEntry {
  std::string name, summary;
  std::optional<PaperCost> paper;
  MakeResidual<float> make_f32;
  MakeResidual<bf16> make_bf16;
  // Why the paper's released code cannot express it; empty: it can.
  std::string not_in_reference = "a rule of its own";
};

// For rules that live outside this folder. A name that is taken now means the new rule.
void register_residual(ResidualEntry entry);
std::vector<std::string> residual_names();
const ResidualEntry& find_residual(const std::string& name);  // throws UserError, naming the nearest

template <class T>
std::unique_ptr<Residual<T>> make_residual(const ModelConfig& config, BatchShape shape);

}  // namespace ddl
