// What passes do with the large matrices (pass.h): where the matrices are, and by which product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/arena.h"
#include "core/error.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/gemv.h"
#include "model/native/pass.h"
#include "model/packed_weights.h"
#include "model/part.h"
#include "model/weights.h"

namespace ddl {

// The matrices in the array of parameters, multiplied by the library: training's products.
template <class T>
class DenseProducts : public Products<T> {
 public:
  explicit DenseProducts(const Numbers<T>& numbers) : numbers_(numbers) {}

  void embed(float* x_NC, const std::int32_t* token_N, Index w_VC, Index N, Index V, Index C,
             const Exec& ex) const override {
    embedding_fwd<float, float>(x_NC, numbers_.params + w_VC, token_N, N, V, C, ex);
  }
  void linear(T* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I, const Exec& ex) const override {
    linear_fwd<T, T>(y_NO, x_NI, matrix(w_OI), N, O, I, ex);
  }
  void logits(float* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I,
              const Exec& ex) const override {
    linear_fwd<T, float>(y_NO, x_NI, matrix(w_OI), N, O, I, ex);
  }

 protected:
  const T* matrix(Index offset) const { return numbers_.params_T + offset; }

 private:
  Numbers<T> numbers_;
};

// The same in blocks of a fixed shape, so that a row's bits depend on the row alone. Rows must have room for
// padded_rows().
template <class T>
class BlockProducts final : public DenseProducts<T> {
 public:
  using DenseProducts<T>::DenseProducts;
  void linear(T* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I, const Exec& ex) const override {
    linear_blocks<T, T>(y_NO, x_NI, this->matrix(w_OI), N, O, I, ex);
  }
  void logits(float* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I,
              const Exec& ex) const override {
    linear_blocks<T, float>(y_NO, x_NI, this->matrix(w_OI), N, O, I, ex);
  }
};

// Those of a decoder: the first `long_rows` rows of a pass in such blocks, the others by gemv, whose bits for a row
// depend on the row alone, too.
template <class T>
class DecodingProducts final : public DenseProducts<T> {
 public:
  using DenseProducts<T>::DenseProducts;
  Index long_rows = 0;

  void linear(T* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I, const Exec& ex) const override {
    const T* w = this->matrix(w_OI);
    linear_blocks<T, T>(y_NO, x_NI, w, long_rows, O, I, ex);  // may spoil the rows after them
    gemv<T, T>(y_NO + long_rows * O, x_NI + long_rows * I, w, N - long_rows, O, I, ex);
  }
  void logits(float* y_NO, const T* x_NI, Index w_OI, Index N, Index O, Index I,
              const Exec& ex) const override {
    gemv<T, float>(y_NO, x_NI, this->matrix(w_OI), N, O, I, ex);
  }
};

// Packed matrices. A row's bits depend on the row alone.
class PackedProducts final : public Products<float> {
 public:
  explicit PackedProducts(const PackedWeights& weights) : weights_(weights) {}
  void plan(Arena& arena, Index N);  // for passes of at most N tokens

  void embed(float* x_NC, const std::int32_t* token_N, Index w_VC, Index N, Index V, Index C,
             const Exec& ex) const override;
  void linear(float* y_NO, const float* x_NI, Index w_OI, Index N, Index O, Index I,
              const Exec& ex) const override;
  void logits(float* y_NO, const float* x_NI, Index w_OI, Index N, Index O, Index I,
              const Exec& ex) const override {
    linear(y_NO, x_NI, w_OI, N, O, I, ex);
  }

 private:
  const PackedWeights& weights_;
  std::byte* scratch_ = nullptr;
};

// Those of a decoder or a scorer: with packed matrices where the weights have them, else Dense.
template <class T, class Dense>
class InferenceProducts {
 public:
  explicit InferenceProducts(const Weights& weights) {
    if constexpr (std::is_same_v<T, float>)
      if (weights.packed()) packed_.emplace(*weights.packed());
    DDL_CHECK(packed_ || !weights.packed(), "packed matrices are multiplied with f32");
  }
  void plan(Arena& arena, Index N) {
    if (packed_) packed_->plan(arena, N);
  }
  void bind(const Numbers<T>& numbers) {
    if (!packed_) dense_.emplace(numbers);
  }
  const Products<T>& get() const {
    if constexpr (std::is_same_v<T, float>)
      if (packed_) return *packed_;
    return *dense_;
  }
  Dense* dense() { return dense_ ? &*dense_ : nullptr; }

 private:
  std::optional<PackedProducts> packed_;
  std::optional<Dense> dense_;
};

}  // namespace ddl
