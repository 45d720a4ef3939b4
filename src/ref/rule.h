// A residual rule as the oracle sees it: how the embedding becomes the state, how a sublayer's input is read
// from it, and how the sublayer's output enters it. What the state looks like is the rule's own business.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ref/complex_step.h"
#include "ref/ops.h"
#include "ref/tape.h"

namespace ddl::ref {

template <class Num>
using Parameters = std::map<std::string, Vec<Num>>;

template <class Num>
const Vec<Num>& find_parameter(const Parameters<Num>& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  DDL_CHECK(found != parameters.end(), "parameter {} is missing", name);
  return found->second;
}

// Sublayer s of S; s = S is the readout in front of the head, which is read and never written.
struct Place {
  Index s = 0;
  std::string block;  // "transformer.h.0."; empty for the readout
  std::string kind;   // "attn", "mlp" or "readout"
};

// What one sublayer did, for tests and audits. In an additive model k, beta, v, readout and discrepancy stay
// empty.
template <class Num>
struct SublayerTrace {
  std::string name;                     // "transformer.h.0.attn"
  Vec<Num> x_in_NC, c_NC, h_NC;         // input, its norm, the sublayer's output
  Vec<Num> k_NC, beta_N, v_ND;          // direction, gate, target
  Vec<Num> readout_ND, discrepancy_ND;  // k^T X and v - k^T X, both before the write
  Vec<Num> state_NDC;                   // after the write
};

template <class Num>
class Rule {
 public:
  virtual ~Rule() = default;

  // The rule's parameters with their numbers of elements.
  virtual void add_counts(std::map<std::string, Index>& counts) const = 0;

  // B sequences of T tokens, N = B T.
  virtual Vec<Num> start(const Vec<Num>& x_NC, const Parameters<Num>& w, Index B, Index T) const = 0;
  virtual Vec<Num> read(const Vec<Num>& state, const Place& place, const Parameters<Num>& w, Index B,
                        Index T) const = 0;
  // The next state, from x_in, c and h in `sublayer`; may record there what it did.
  virtual Vec<Num> write(const Vec<Num>& state, SublayerTrace<Num>& sublayer, const Place& place,
                         const Parameters<Num>& w, Index N) const = 0;
};

}  // namespace ddl::ref
