// The residual rule: everything that differs between a plain Transformer and a delta Transformer is behind
// this class, and no other folder asks which rule it is.
//
// A network of S sublayers (attention, MLP, attention, ...) runs as
//     start                    the embedding becomes the state;  read: context_0 = RMSNorm(x_in)
//     for s = 0 .. S-1:        h = sublayer_s(context_s)
//         write_and_read(s)    h enters the state;  read: context_{s+1}, after the last sublayer the readout
// and backward as the mirror image: write_and_read_backward(S-1), ..., (0), start_backward. Write and read
// share a call because a token's state is then in the first-level cache for both.
//
// The same verbs serve training, prompts, single tokens and trees of sequences: what differs is `Tokens`.
//
// A rule owns its state, its saved values and the norm in front of every sublayer (the norm is part of the
// same pass). T is the type of activations: float or bf16. State, norms, gates and statistics are always f32.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "model/params.h"

namespace ddl {

// `count` tokens of one sequence, the first at `position`. Their rows follow those of the span before. They
// continue the sequence in slot `from`, or, where `parent` is given, the end of that span of the same pass,
// and afterwards the sequence is in `slot`. So one sequence may be continued several times.
struct Span {
  Index slot = 0, position = 0, count = 0;
  Index from = slot;
  Index parent = -1;
};
using Spans = std::span<const Span>;

// The tokens of one pass: whole sequences, or spans of sequences whose past is remembered by slot.
struct Tokens {
  Index count = 0;            // N
  Index sequence_length = 0;  // T: whole sequences of T tokens, one after another; 0: spans
  Spans spans = {};

  static Tokens whole(Index B, Index T) { return {B * T, T, {}}; }
  static Tokens of(Spans spans) {
    Index n = 0;
    for (const Span& span : spans) n += span.count;
    return {n, 0, spans};
  }
  bool are_whole_sequences() const { return sequence_length > 0; }
};

// What the parts of a network must have room for.
struct Room {
  Index tokens = 1;       // of a pass, at most
  Index positions = 1;    // of a sequence, at most
  bool training = false;  // backward passes follow forward passes
  Index slots = 0;        // sequences whose past is remembered; 0: whole sequences only
  int threads = 1;
};

// Where a part finds its numbers. params_T is the copy GEMMs read: params itself for float, the bf16 copy for
// bf16. grads is null without training.
template <class T>
struct Numbers {
  const float* params = nullptr;
  const T* params_T = nullptr;
  float* grads = nullptr;
};

// Something a rule can report about every token of the last pass at one sublayer, for metrics and audits.
struct TokenSeries {
  std::string name;               // "gate", "target", "readout", ...
  const float* values = nullptr;  // values[n * stride + i], i < per_token
  Index per_token = 1, stride = 1;
  float low = 0, high = 0;  // the range of the values; equal: unbounded
};

// What a rule shows of its tokens in front of sublayer s, for audits.
struct StateView {
  const float* state_NDC = nullptr;  // null: it has no running state
  Index channels = 0;                // D
  const float* rstd_N = nullptr;     // 1 / sqrt(mean(x_in^2) + eps) of what sublayer s reads
};

// An intervention, for audits: at one sublayer every token's values of a series are the same numbers.
struct Replacement {
  Index sublayer = 0;
  std::string series;
  std::vector<float> values;  // as many as the series has per token
};

template <class T>
class ResidualRule {
 public:
  virtual ~ResidualRule() = default;

  // Before any pass, in this order. plan() runs twice: measuring, then for real.
  virtual void add_params(ParamTable& table) = 0;
  virtual void plan(Arena& arena, const Room& room) = 0;
  virtual void bind(const Numbers<T>& numbers) = 0;

  // Forward. A span at position 0 begins a new sequence in its slot. With spans, a token's result depends on
  // its sequence alone: not on the other spans, nor on how the sequence is cut into spans.
  virtual void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) = 0;
  virtual void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                              const Exec& ex) = 0;
  virtual void copy_slot(Index to, Index from) = 0;  // what it remembers of a sequence

  // Backward, after a forward pass over the same whole sequences. dnext_context_NC is the gradient of what
  // write_and_read(s) read; it may be changed. dh_NC and dx_NC are overwritten.
  virtual void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC,
                                       const T* h_NC, const Tokens& tokens, const Exec& ex) = 0;
  virtual void start_backward(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                              const Tokens& tokens, const Exec& ex) = 0;

  // Per token, multiply-add as two: the rule's own arithmetic, norms included.
  virtual double flops_forward() const = 0;
  virtual double flops_backward() const = 0;
  virtual Index remembered_floats() const = 0;  // per sequence and slot
  // What a sublayer's write and read go through, per token: the state, or what is read in its place (on average).
  virtual double state_floats() const = 0;

  virtual std::vector<TokenSeries> series(Index /*s*/) const { return {}; }

  // For audits, in forward passes over whole sequences that keep what training keeps (Room::training).
  // In front of sublayer s, S being the head; valid until its write.
  virtual StateView view(Index /*s*/) const { return {}; }
  // What the head would read if the network ended in front of sublayer s. False: the rule cannot say.
  virtual bool read_as_last(Index /*s*/, T* /*context_NC*/, const Tokens& /*tokens*/, const Exec& /*ex*/) {
    return false;
  }
  // From now on; null ends it. The rule refers to it. False: there is no such series, or it cannot be replaced.
  virtual bool replace(const Replacement* /*replacement*/) { return false; }
};

}  // namespace ddl
