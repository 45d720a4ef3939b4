// The two convolutions for decoding. The first tokens of a span read the rows before it, all others the span.
#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "core/index.h"
#include "kernels/short_conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_conv_span.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// One token; rows[s] is the input row s steps back. Sums have the order of short_conv.cc, for the same bits.
void EmbeddingConvToken(float* state, const float* const* rows, const float* w_EDC, Index back, Index D,
                        Index C, Index E) {
  for (Index d = 0; d < D; ++d)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      auto sum = hn::Zero(tag);
      for (Index s = 0; s <= back; ++s)
        sum = hn::MulAdd(hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i), hn::LoadU(tag, rows[s] + i),
                         sum);
      hn::StoreU(sum, tag, state + d * C + i);
    });
}

void TokenCompressToken(float* x, const float* const* rows, const float* w_EDC, const float* read_D,
                        Index back, Index D, Index C, Index E) {
  for (Index d = 0; d < D; ++d)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      auto sum = hn::Zero(tag);
      for (Index s = 0; s <= back; ++s)
        sum = hn::MulAdd(hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i),
                         hn::LoadU(tag, rows[s] + d * C + i), sum);
      const auto before = d > 0 ? hn::LoadU(tag, x + i) : hn::Zero(tag);
      hn::StoreU(hn::MulAdd(hn::Set(tag, read_D[d]), sum, before), tag, x + i);
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {
namespace {

HWY_EXPORT(EmbeddingConvToken);
HWY_EXPORT(TokenCompressToken);

// A span's input rows and those before it.
struct Span {
  const float* rows;
  RowsBefore before;
  Index n, stride, E;

  // token(i, rows, back) for the tokens that reach behind the span.
  void for_first_tokens(FunctionRef<void(Index, const float* const*, Index)> token) const {
    DDL_CHECK(E <= kMaxTaps && std::ssize(before) < E, "{} rows before {} taps", before.size(), E);
    const float* at[kMaxTaps];
    for (Index i = 0; i < std::min(E - 1, n); ++i) {
      const Index back = std::min(E - 1, i + std::ssize(before));
      for (Index s = 0; s <= back; ++s) at[s] = s <= i ? rows + (i - s) * stride : before[s - i - 1];
      token(i, at, back);
    }
  }
  // Whether for_first_tokens covers the span: then nothing need be computed before it.
  bool is_short() const { return n <= E - 1; }
};

}  // namespace

// A long span is computed as if it began its sequence; the first tokens, where that is wrong, are redone.
void embedding_conv_span(float* state_nDC, const float* x_nC, RowsBefore before, const float* w_EDC, Index n,
                         Index D, Index C, Index E, const Exec& ex) {
  const Span span{x_nC, before, n, C, E};
  if (!span.is_short()) embedding_conv_fwd(state_nDC, x_nC, w_EDC, n, n, D, C, E, ex);
  span.for_first_tokens([&](Index i, const float* const* rows, Index back) {
    DDL_DISPATCH(EmbeddingConvToken, state_nDC + i * D * C, rows, w_EDC, back, D, C, E);
  });
}

void token_compress_span(float* x_nC, const float* state_nDC, RowsBefore before, const float* w_EDC,
                         const float* read_D, Index n, Index D, Index C, Index E, const Exec& ex) {
  const Span span{state_nDC, before, n, D * C, E};
  if (!span.is_short()) token_compress_fwd(x_nC, state_nDC, w_EDC, read_D, n, n, D, C, E, ex);
  span.for_first_tokens([&](Index i, const float* const* rows, Index back) {
    DDL_DISPATCH(TokenCompressToken, x_nC + i * C, rows, w_EDC, read_D, back, D, C, E);
  });
}

}  // namespace ddl
#endif
