// One pass of tokens through the network. Training, prompts, single tokens and trees of sequences run the same
// loop (network.h); they differ in three things, which a Pass names.
#pragma once

#include <cstdint>

#include "core/exec.h"
#include "model/tokens.h"

namespace ddl {

template <class T>
class Attention;

// Keys and values from earlier passes, and how the tokens of this one attend to them.
template <class T>
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Makes attention's output rows of its packed q, k and v, and keeps what later passes need.
  virtual void attend(Index layer, Attention<T>& attention, const Exec& ex) = 0;
};

// Looks at a pass while it runs, and may change a sublayer's output. For audits.
template <class T>
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // In front of the write of sublayer s, whose input and output these are; s = S: in front of the head, and h_NC
  // is null.
  virtual void before_write(Index s, const T* context_NC, T* h_NC) = 0;
};

// What a pass does with the large matrices (products.h). A matrix is named by its offset in the table of
// parameters. Which product is best, and which bits it promises, depends on the kind of pass.
template <class T>
class Products {
 public:
  virtual ~Products() = default;
  // x_n = w[token_n]
  virtual void embed(float* x_NC, const std::int32_t* token_N, Index w_VC, Index N, Index V, Index C,
                     const Exec& ex) const = 0;
  // y_NO = x_NI w_OI^T
  virtual void linear(T* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I,
                      const Exec& ex) const = 0;
  // The same for rows of the head.
  virtual void logits(float* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I,
                      const Exec& ex) const = 0;
};

template <class T>
struct Pass {
  Tokens tokens;
  const Products<T>* products = nullptr;
  KeyValueStore<T>* past = nullptr;          // null: whole sequences, which attend to themselves
  const std::int32_t* position_N = nullptr;  // null: whole sequences
  PassObserver<T>* observer = nullptr;
};

}  // namespace ddl
