#include "kernels/short_conv.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/function_ref.h"
#include "kernels/ordered_sums.h"

#ifndef DDL_KERNELS_SHORT_CONV_EXTENTS_
#define DDL_KERNELS_SHORT_CONV_EXTENTS_
namespace ddl {
struct ConvExtents {
  Index T, D, C, E;
};
}  // namespace ddl
#endif

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

// The functions below take B consecutive tokens of one sequence that all reach equally far: `back` steps into
// the past of an input row, `ahead` into the future of a gradient row. With B = 4 a weight is loaded once for
// four tokens. Channels are the outer loop, so that at most some fifteen rows are walked at a time: rows of a
// power-of-two-like width fall into the same few sets of the first-level cache, and walking all taps of all
// channels together thrashes it.

template <class Tag, Index B>
struct Rows {
  hn::Vec<Tag> v[B];
};

template <Index B>
void EmbeddingConvForward(float* HWY_RESTRICT state, const float* HWY_RESTRICT x,
                          const float* HWY_RESTRICT w_EDC, Index back, Index D, Index C, Index E) {
  for (Index d = 0; d < D; ++d)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> sum;
      for (Index b = 0; b < B; ++b) sum.v[b] = hn::Zero(tag);
      for (Index s = 0; s <= back; ++s) {
        const auto w = hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i);
        for (Index b = 0; b < B; ++b) sum.v[b] = hn::MulAdd(w, hn::LoadU(tag, x + (b - s) * C + i), sum.v[b]);
      }
      for (Index b = 0; b < B; ++b) hn::StoreU(sum.v[b], tag, state + (b * D + d) * C + i);
    });
}

template <Index B>
void EmbeddingConvBackward(float* HWY_RESTRICT dx, float* HWY_RESTRICT part_EDC,
                           const float* HWY_RESTRICT dstate, const float* HWY_RESTRICT x,
                           const float* HWY_RESTRICT w_EDC, Index back, Index ahead, Index D, Index C,
                           Index E) {
  for (Index d = 0; d < D; ++d) {
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> sum;
      for (Index b = 0; b < B; ++b) sum.v[b] = d > 0 ? hn::LoadU(tag, dx + b * C + i) : hn::Zero(tag);
      for (Index s = 0; s <= ahead; ++s) {
        const auto w = hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i);
        for (Index b = 0; b < B; ++b)
          sum.v[b] = hn::MulAdd(w, hn::LoadU(tag, dstate + ((b + s) * D + d) * C + i), sum.v[b]);
      }
      for (Index b = 0; b < B; ++b) hn::StoreU(sum.v[b], tag, dx + b * C + i);
    });
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> g;
      for (Index b = 0; b < B; ++b) g.v[b] = hn::LoadU(tag, dstate + (b * D + d) * C + i);
      for (Index s = 0; s <= back; ++s) {
        float* p = part_EDC + ((E - 1 - s) * D + d) * C + i;
        auto total = hn::LoadU(tag, p);
        for (Index b = 0; b < B; ++b) total = hn::MulAdd(g.v[b], hn::LoadU(tag, x + (b - s) * C + i), total);
        hn::StoreU(total, tag, p);
      }
    });
  }
}

template <Index B>
void TokenCompressForward(float* HWY_RESTRICT x, const float* HWY_RESTRICT state,
                          const float* HWY_RESTRICT w_EDC, const float* read_D, Index back, Index D, Index C,
                          Index E) {
  for (Index d = 0; d < D; ++d)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> sum;
      for (Index b = 0; b < B; ++b) sum.v[b] = hn::Zero(tag);
      for (Index s = 0; s <= back; ++s) {
        const auto w = hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i);
        for (Index b = 0; b < B; ++b)
          sum.v[b] = hn::MulAdd(w, hn::LoadU(tag, state + ((b - s) * D + d) * C + i), sum.v[b]);
      }
      for (Index b = 0; b < B; ++b) {
        const auto before = d > 0 ? hn::LoadU(tag, x + b * C + i) : hn::Zero(tag);
        hn::StoreU(hn::MulAdd(hn::Set(tag, read_D[d]), sum.v[b], before), tag, x + b * C + i);
      }
    });
}

template <Index B>
void TokenCompressBackward(float* HWY_RESTRICT dstate, bool fresh, float* HWY_RESTRICT part_EDC,
                           const float* HWY_RESTRICT dx, const float* HWY_RESTRICT state,
                           const float* HWY_RESTRICT w_EDC, const float* read_D, Index back, Index ahead,
                           Index D, Index C, Index E) {
  for (Index d = 0; d < D; ++d) {
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> sum;
      for (Index b = 0; b < B; ++b) sum.v[b] = hn::Zero(tag);
      for (Index s = 0; s <= ahead; ++s) {
        const auto w = hn::LoadU(tag, w_EDC + ((E - 1 - s) * D + d) * C + i);
        for (Index b = 0; b < B; ++b)
          sum.v[b] = hn::MulAdd(w, hn::LoadU(tag, dx + (b + s) * C + i), sum.v[b]);
      }
      for (Index b = 0; b < B; ++b) {
        float* to = dstate + (b * D + d) * C + i;
        const auto before = fresh ? hn::Zero(tag) : hn::LoadU(tag, to);
        hn::StoreU(hn::MulAdd(hn::Set(tag, read_D[d]), sum.v[b], before), tag, to);
      }
    });
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      Rows<decltype(tag), B> g;
      for (Index b = 0; b < B; ++b) g.v[b] = hn::LoadU(tag, dx + b * C + i);
      for (Index s = 0; s <= back; ++s) {
        float* p = part_EDC + ((E - 1 - s) * D + d) * C + i;
        auto total = hn::LoadU(tag, p);
        for (Index b = 0; b < B; ++b)
          total = hn::MulAdd(g.v[b], hn::LoadU(tag, state + ((b - s) * D + d) * C + i), total);
        hn::StoreU(total, tag, p);
      }
    });
  }
}

// The tokens [begin, end): in blocks of four inside a sequence, one by one near its ends, which lack taps.
template <class Body>
HWY_INLINE void ForTokenBlocks(Index begin, Index end, Index T, Index E, bool looks_ahead, const Body& body) {
  constexpr Index kBlock = 4;
  for (Index n = begin; n < end;) {
    const Index t = n % T, back = std::min(E - 1, t), ahead = std::min(E - 1, T - 1 - t);
    const bool inside =
        n + kBlock <= end && t + kBlock <= T && back == E - 1 && (!looks_ahead || t + kBlock - 1 + E - 1 < T);
    if (inside) {
      body(n, back, E - 1, std::integral_constant<Index, kBlock>());
      n += kBlock;
    } else {
      body(n, back, ahead, std::integral_constant<Index, 1>());
      ++n;
    }
  }
}

void EmbeddingConvForwardRange(float* state_NDC, const float* x_NC, const float* w_EDC, Index begin,
                               Index end, ConvExtents e) {
  ForTokenBlocks(begin, end, e.T, e.E, false, [&](Index n, Index back, Index, auto B) HWY_ATTR {
    EmbeddingConvForward<B>(state_NDC + n * e.D * e.C, x_NC + n * e.C, w_EDC, back, e.D, e.C, e.E);
  });
}

void EmbeddingConvBackwardRange(float* dx_NC, float* part_EDC, const float* dstate_NDC, const float* x_NC,
                                const float* w_EDC, Index begin, Index end, ConvExtents e) {
  ForTokenBlocks(begin, end, e.T, e.E, true, [&](Index n, Index back, Index ahead, auto B) HWY_ATTR {
    EmbeddingConvBackward<B>(dx_NC + n * e.C, part_EDC, dstate_NDC + n * e.D * e.C, x_NC + n * e.C, w_EDC,
                             back, ahead, e.D, e.C, e.E);
  });
}

void TokenCompressForwardRange(float* x_NC, const float* state_NDC, const float* w_EDC, const float* read_D,
                               Index begin, Index end, ConvExtents e) {
  ForTokenBlocks(begin, end, e.T, e.E, false, [&](Index n, Index back, Index, auto B) HWY_ATTR {
    TokenCompressForward<B>(x_NC + n * e.C, state_NDC + n * e.D * e.C, w_EDC, read_D, back, e.D, e.C, e.E);
  });
}

void TokenCompressBackwardRange(float* dstate_NDC, bool fresh, float* part_EDC, const float* dx_NC,
                                const float* state_NDC, const float* w_EDC, const float* read_D, Index begin,
                                Index end, ConvExtents e) {
  ForTokenBlocks(begin, end, e.T, e.E, true, [&](Index n, Index back, Index ahead, auto B) HWY_ATTR {
    TokenCompressBackward<B>(dstate_NDC + n * e.D * e.C, fresh, part_EDC, dx_NC + n * e.C,
                             state_NDC + n * e.D * e.C, w_EDC, read_D, back, ahead, e.D, e.C, e.E);
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
HWY_EXPORT(EmbeddingConvForwardRange);
HWY_EXPORT(EmbeddingConvBackwardRange);
HWY_EXPORT(TokenCompressForwardRange);
HWY_EXPORT(TokenCompressBackwardRange);

// Sums over tokens: sum(begin, end, row) adds up one part of the tokens in `row`; then the rows are added in
// order. Returns the total, which is the first row.
float* sum_over_tokens(float* scratch, Index N, Index count, const Exec& ex,
                       FunctionRef<void(Index, Index, float*)> sum) {
  parallel_for(kSumParts, ex, [&](Index p) {
    float* row = scratch + p * count;
    std::memset(row, 0, static_cast<std::size_t>(count) * sizeof(float));
    sum(part_begin(N, p), part_begin(N, p + 1), row);
  });
  parallel_chunks(count, kSumGrain, ex, [&](Index begin, Index end) {
    for (Index p = 1; p < kSumParts; ++p)
      for (Index i = begin; i < end; ++i) scratch[i] += scratch[p * count + i];
  });
  return scratch;
}

}  // namespace

Index short_conv_scratch(Index D, Index C, Index E) { return kSumParts * D * C * E; }

void repeat_fwd(float* state_NDC, const float* x_NC, Index N, Index D, Index C, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n)
      DDL_DISPATCH(RepeatForward, state_NDC + n * D * C, x_NC + n * C, D, C);
  });
}

void repeat_bwd(float* dx_NC, const float* dstate_NDC, Index N, Index D, Index C, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n)
      DDL_DISPATCH(RepeatBackward, dx_NC + n * C, dstate_NDC + n * D * C, D, C);
  });
}

void embedding_conv_fwd(float* state_NDC, const float* x_NC, const float* w_EDC, Index N, Index T, Index D,
                        Index C, Index E, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    DDL_DISPATCH(EmbeddingConvForwardRange, state_NDC, x_NC, w_EDC, begin, end, ConvExtents{T, D, C, E});
  });
}

void embedding_conv_bwd(float* dx_NC, float* dw_EDC, const float* dstate_NDC, const float* x_NC,
                        const float* w_EDC, float* scratch, Index N, Index T, Index D, Index C, Index E,
                        const Exec& ex) {
  const float* sums_EDC = sum_over_tokens(scratch, N, E * D * C, ex, [&](Index begin, Index end, float* row) {
    DDL_DISPATCH(EmbeddingConvBackwardRange, dx_NC, row, dstate_NDC, x_NC, w_EDC, begin, end,
                 ConvExtents{T, D, C, E});
  });
  for (Index i = 0; i < E * D * C; ++i) dw_EDC[i] += sums_EDC[i];
}

void token_compress_fwd(float* x_NC, const float* state_NDC, const float* w_EDC, const float* read_D, Index N,
                        Index T, Index D, Index C, Index E, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    DDL_DISPATCH(TokenCompressForwardRange, x_NC, state_NDC, w_EDC, read_D, begin, end,
                 ConvExtents{T, D, C, E});
  });
}

void token_compress_bwd(float* dstate_NDC, Write dstate_mode, float* dw_EDC, float* dread_D,
                        const float* dx_NC, const float* state_NDC, const float* w_EDC, const float* read_D,
                        float* scratch, Index N, Index T, Index D, Index C, Index E, const Exec& ex) {
  const bool fresh = dstate_mode == Write::kOverwrite;
  const float* sums_EDC = sum_over_tokens(scratch, N, E * D * C, ex, [&](Index begin, Index end, float* row) {
    DDL_DISPATCH(TokenCompressBackwardRange, dstate_NDC, fresh, row, dx_NC, state_NDC, w_EDC, read_D, begin,
                 end, ConvExtents{T, D, C, E});
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
