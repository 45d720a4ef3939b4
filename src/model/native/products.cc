#include "model/native/products.h"

#include "core/error.h"
#include "kernels/packed_product.h"

namespace ddl {

void PackedProducts::plan(Arena& arena, Index N) {
  scratch_ = arena.take<std::byte>("activations", packed_product_scratch(N, weights_.widest()));
}

void PackedProducts::embed(float* x_NC, const std::int32_t* token_N, Index w_VC, Index N, Index V, Index C,
                           const Exec& ex) const {
  const PackedMatrix wte = weights_.matrix(w_VC);
  DDL_CHECK(wte.shape.O == V && wte.shape.I == C, "an embedding of {} x {}, asked for {} x {}", wte.shape.O,
            wte.shape.I, V, C);
  parallel_for(N, ex, [&](Index n) { unpack_row(x_NC + n * C, wte, token_N[n]); });
}

void PackedProducts::linear(float* y_NO, const float* x_NI, Index w_OI, Index N, Index O, Index I,
                            const Exec& ex) const {
  const PackedMatrix w = weights_.matrix(w_OI);
  DDL_CHECK(w.shape.O == O && w.shape.I == I, "a matrix of {} x {}, asked for {} x {}", w.shape.O, w.shape.I,
            O, I);
  packed_product(y_NO, scratch_, x_NI, w, N, ex);
}

}  // namespace ddl
