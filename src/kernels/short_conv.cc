#include "kernels/short_conv.h"

#include <cstring>

#include "kernels/isa.h"
#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_conv.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

void RepeatForward(float* state, const float* x, Index D, Index C) {
  for (Index d = 0; d < D; ++d) std::memcpy(state + d * C, x, static_cast<std::size_t>(C) * sizeof(float));
}

void RepeatBackward(float* dx, const float* dstate, Index D, Index C) {
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    auto sum = hn::LoadU(tag, dstate + i);
    for (Index d = 1; d < D; ++d) sum = hn::Add(sum, hn::LoadU(tag, dstate + d * C + i));
    hn::StoreU(sum, tag, dx + i);
  });
}

// One token at position t. `back` taps reach into the past of an input row, `ahead` into the future of a
// gradient. Forward takes the input rows one by one, rows[s] the one s steps back, because a decoder's past
// lies elsewhere than its present.
void EmbeddingConvForward(float* state, const float* const* rows, const float* w_EDC, Index back, Index D,
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

void EmbeddingConvBackward(float* dx, float* piece_EDC, const float* dstate, const float* x,
                           const float* w_EDC, Index back, Index ahead, Index D, Index C, Index E) {
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    auto sum = hn::Zero(tag);
    for (Index s = 0; s <= ahead; ++s)
      for (Index d = 0; d < D; ++d)
        sum = hn::MulAdd(hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i),
                         hn::LoadU(tag, dstate + (s * D + d) * C + i), sum);
    hn::StoreU(sum, tag, dx + i);
    for (Index s = 0; s <= back; ++s) {
      const auto input = hn::LoadU(tag, x - s * C + i);
      for (Index d = 0; d < D; ++d) {
        float* g = piece_EDC + ((E - 1 - s) * D + d) * C + i;
        hn::StoreU(hn::MulAdd(hn::LoadU(tag, dstate + d * C + i), input, hn::LoadU(tag, g)), tag, g);
      }
    }
  });
}

void TokenCompressForward(float* x, const float* const* rows, const float* w_EDC, const float* read_D,
                          Index back, Index D, Index C, Index E) {
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    auto total = hn::Zero(tag);
    for (Index d = 0; d < D; ++d) {
      auto sum = hn::Zero(tag);
      for (Index s = 0; s <= back; ++s)
        sum = hn::MulAdd(hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i),
                         hn::LoadU(tag, rows[s] + d * C + i), sum);
      total = hn::MulAdd(hn::Set(tag, read_D[d]), sum, total);
    }
    hn::StoreU(total, tag, x + i);
  });
}

void TokenCompressBackward(float* dstate, bool fresh, float* piece_EDC, const float* dx, const float* state,
                           const float* w_EDC, const float* read_D, Index back, Index ahead, Index D, Index C,
                           Index E) {
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    const auto g = hn::LoadU(tag, dx + i);
    for (Index d = 0; d < D; ++d) {
      auto sum = hn::Zero(tag);
      for (Index s = 0; s <= ahead; ++s)
        sum = hn::MulAdd(hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i),
                         hn::LoadU(tag, dx + s * C + i), sum);
      float* to = dstate + d * C + i;
      const auto before = fresh ? hn::Zero(tag) : hn::LoadU(tag, to);
      hn::StoreU(hn::MulAdd(hn::Set(tag, read_D[d]), sum, before), tag, to);
      for (Index s = 0; s <= back; ++s) {
        float* p = piece_EDC + ((E - 1 - s) * D + d) * C + i;
        hn::StoreU(hn::MulAdd(g, hn::LoadU(tag, state + (d - s * D) * C + i), hn::LoadU(tag, p)), tag, p);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {
namespace {

HWY_EXPORT(RepeatForward);
HWY_EXPORT(RepeatBackward);
HWY_EXPORT(EmbeddingConvForward);
HWY_EXPORT(EmbeddingConvBackward);
HWY_EXPORT(TokenCompressForward);
HWY_EXPORT(TokenCompressBackward);

constexpr Index kTokensPerTask = 16;

void for_tokens(Index N, const Exec& ex, FunctionRef<void(Index)> token) {
  current_isa();
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) token(n);
  });
}

// How many steps a tap may reach back from, or ahead of, token n without leaving its sequence.
Index reach_back(Index n, Index T, Index E) { return std::min(E - 1, n % T); }
Index reach_ahead(Index n, Index T, Index E) { return std::min(E - 1, T - 1 - n % T); }

// The input rows a token reads: at[s] is the one s steps back, s = 0 .. back.
struct Rows {
  Index back;
  const float* at[kMaxTaps];
};

Rows sequence_rows(const float* rows, Index n, Index T, Index stride, Index E) {
  Rows r;
  r.back = reach_back(n, T, E);
  for (Index s = 0; s <= r.back; ++s) r.at[s] = rows + (n - s) * stride;
  return r;
}

// For token i of a span that starts at `position`; rows before the span are in the ring.
Rows span_rows(const float* span, const float* ring, Index position, Index i, Index stride, Index E) {
  Rows r;
  r.back = std::min(E - 1, position + i);
  for (Index s = 0; s <= r.back; ++s)
    r.at[s] = s <= i ? span + (i - s) * stride : ring + ((position + i - s) % (E - 1)) * stride;
  return r;
}

// The last E-1 rows of the span (all of them, where it has fewer) into their places.
void update_ring(float* ring, const float* span, Index position, Index n, Index stride, Index E) {
  for (Index i = std::max<Index>(0, n - (E - 1)); i < n; ++i)
    std::memcpy(ring + ((position + i) % (E - 1)) * stride, span + i * stride,
                static_cast<std::size_t>(stride) * sizeof(float));
}

// token(n, piece's sums) for all tokens; the sums of all pieces, joined in order, end in the first piece's
// row.
float* sum_over_tokens(float* scratch, Index N, Index count, const Exec& ex,
                       FunctionRef<void(Index, float*)> token) {
  current_isa();
  parallel_for(kPieces, ex, [&](Index p) {
    float* row = scratch + p * count;
    std::memset(row, 0, static_cast<std::size_t>(count) * sizeof(float));
    for (Index n = piece_begin(N, p); n < piece_begin(N, p + 1); ++n) token(n, row);
  });
  parallel_chunks(count, 2048, ex, [&](Index begin, Index end) {
    for (Index p = 1; p < kPieces; ++p)
      for (Index i = begin; i < end; ++i) scratch[i] += scratch[p * count + i];
  });
  return scratch;
}

}  // namespace

Index short_conv_scratch(Index D, Index C, Index E) { return kPieces * D * C * E; }

void repeat_fwd(float* state_NDC, const float* x_NC, Index N, Index D, Index C, const Exec& ex) {
  for_tokens(N, ex, [&](Index n) {
    HWY_DYNAMIC_DISPATCH(RepeatForward)(state_NDC + n * D * C, x_NC + n * C, D, C);
  });
}

void repeat_bwd(float* dx_NC, const float* dstate_NDC, Index N, Index D, Index C, const Exec& ex) {
  for_tokens(N, ex, [&](Index n) {
    HWY_DYNAMIC_DISPATCH(RepeatBackward)(dx_NC + n * C, dstate_NDC + n * D * C, D, C);
  });
}

void embedding_conv_fwd(float* state_NDC, const float* x_NC, const float* w_EDC, Index N, Index T, Index D,
                        Index C, Index E, const Exec& ex) {
  DDL_CHECK(E <= kMaxTaps, "{} taps", E);
  for_tokens(N, ex, [&](Index n) {
    const Rows rows = sequence_rows(x_NC, n, T, C, E);
    HWY_DYNAMIC_DISPATCH(EmbeddingConvForward)(state_NDC + n * D * C, rows.at, w_EDC, rows.back, D, C, E);
  });
}

void embedding_conv_span(float* state_nDC, float* ring_RC, const float* x_nC, const float* w_EDC,
                         Index position, Index n, Index D, Index C, Index E, const Exec& ex) {
  DDL_CHECK(E <= kMaxTaps, "{} taps", E);
  for_tokens(n, ex, [&](Index i) {
    const Rows rows = span_rows(x_nC, ring_RC, position, i, C, E);
    HWY_DYNAMIC_DISPATCH(EmbeddingConvForward)(state_nDC + i * D * C, rows.at, w_EDC, rows.back, D, C, E);
  });
  update_ring(ring_RC, x_nC, position, n, C, E);
}

void embedding_conv_bwd(float* dx_NC, float* dw_EDC, const float* dstate_NDC, const float* x_NC,
                        const float* w_EDC, float* scratch, Index N, Index T, Index D, Index C, Index E,
                        const Exec& ex) {
  const float* sums_EDC = sum_over_tokens(scratch, N, E * D * C, ex, [&](Index n, float* row) {
    HWY_DYNAMIC_DISPATCH(EmbeddingConvBackward)
    (dx_NC + n * C, row, dstate_NDC + n * D * C, x_NC + n * C, w_EDC, reach_back(n, T, E),
     reach_ahead(n, T, E), D, C, E);
  });
  for (Index i = 0; i < E * D * C; ++i) dw_EDC[i] += sums_EDC[i];
}

void token_compress_fwd(float* x_NC, const float* state_NDC, const float* w_EDC, const float* read_D, Index N,
                        Index T, Index D, Index C, Index E, const Exec& ex) {
  DDL_CHECK(E <= kMaxTaps, "{} taps", E);
  for_tokens(N, ex, [&](Index n) {
    const Rows rows = sequence_rows(state_NDC, n, T, D * C, E);
    HWY_DYNAMIC_DISPATCH(TokenCompressForward)(x_NC + n * C, rows.at, w_EDC, read_D, rows.back, D, C, E);
  });
}

void token_compress_span(float* x_nC, float* ring_RDC, const float* state_nDC, const float* w_EDC,
                         const float* read_D, Index position, Index n, Index D, Index C, Index E,
                         const Exec& ex) {
  DDL_CHECK(E <= kMaxTaps, "{} taps", E);
  for_tokens(n, ex, [&](Index i) {
    const Rows rows = span_rows(state_nDC, ring_RDC, position, i, D * C, E);
    HWY_DYNAMIC_DISPATCH(TokenCompressForward)(x_nC + i * C, rows.at, w_EDC, read_D, rows.back, D, C, E);
  });
  update_ring(ring_RDC, state_nDC, position, n, D * C, E);
}

void token_compress_bwd(float* dstate_NDC, Write dstate_mode, float* dw_EDC, float* dread_D,
                        const float* dx_NC, const float* state_NDC, const float* w_EDC, const float* read_D,
                        float* scratch, Index N, Index T, Index D, Index C, Index E, const Exec& ex) {
  const bool fresh = dstate_mode == Write::kOverwrite;
  const float* sums_EDC = sum_over_tokens(scratch, N, E * D * C, ex, [&](Index n, float* row) {
    HWY_DYNAMIC_DISPATCH(TokenCompressBackward)
    (dstate_NDC + n * D * C, fresh, row, dx_NC + n * C, state_NDC + n * D * C, w_EDC, read_D,
     reach_back(n, T, E), reach_ahead(n, T, E), D, C, E);
  });
  for (Index e = 0; e < E; ++e)
    for (Index d = 0; d < D; ++d) {
      double dread = 0;
      for (Index i = (e * D + d) * C; i < (e * D + d + 1) * C; ++i) {
        dw_EDC[i] += read_D[d] * sums_EDC[i];
        dread += double{w_EDC[i]} * sums_EDC[i];
      }
      dread_D[d] += static_cast<float>(dread);
    }
}

}  // namespace ddl
#endif  // HWY_ONCE
