// Incremental decoding: sequences live in slots, tokens are appended to them, and only the new tokens are
// computed. What a sequence's past costs is exactly its keys and values, plus what its residual rule must
// remember (the last few embeddings or states, where it looks back at them).
//
// On the native engine, a sequence's logits are a function of its own appends alone, to the bit: not of what
// shares their passes, of slots, chunk or threads; on torch, to rounding. With small weights
// (core/weight_format.h) they are a function of its tokens alone: the pieces in which a prompt is appended do
// not matter either. With f32 weights, and with bf16 activations, they do: up to 16 tokens of an append are
// multiplied by one kernel, more by another.
#pragma once

#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "model/config.h"

namespace ddl {

struct DecoderShape {
  Index slots = 1;    // sequences at a time
  Index chunk = 256;  // tokens computed at a time; longer appends are cut
  Index context = 0;  // longest sequence; 0: the model's
};

class Decoder {
 public:
  struct Append {
    Index slot = 0;
    std::span<const std::int32_t> tokens;  // at least one
  };
  // visit(i, j, logits): what follows token j of append i. The logits live until visit returns.
  using Visit = FunctionRef<void(Index, Index, std::span<const float>)>;

  virtual ~Decoder() = default;

  virtual const ModelConfig& config() const = 0;
  virtual Index slots() const = 0;
  virtual Index context() const = 0;
  virtual Index length(Index slot) const = 0;
  virtual const Arena& arena() const = 0;

  // Appends tokens to sequences of any lengths, each in a slot of its own. Afterwards logits(i) is what
  // follows append i, until the next call. Throws UserError where a sequence would outgrow the context or a
  // token is not in the vocabulary; then nothing has changed.
  virtual void append(std::span<const Append> appends, const Exec& ex) = 0;
  virtual std::span<const float> logits(Index append) const = 0;
  // The same, with the logits after every token.
  virtual void append_visiting(std::span<const Append> appends, Visit visit, const Exec& ex) = 0;

  virtual void reset(Index slot) = 0;  // forgets the sequence
  virtual void copy(Index to_slot, Index from_slot) = 0;
};

// Whether tokens may be appended to a sequence of `length` tokens: throws UserError where it would outgrow the
// context or a token is not in the vocabulary.
void check_append(const Decoder::Append& append, Index length, Index context, Index vocab);

}  // namespace ddl
