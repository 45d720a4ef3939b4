#include "kernels/attention.h"

#include <cmath>
#include <type_traits>

#include "core/cache_line.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/exp2-inl.h"

// All work between the block products (kernels/gemm.h) is done here, row by row, while the block is in L1/L2.

#ifndef DDL_KERNELS_ATTENTION_ONCE_
#define DDL_KERNELS_ATTENTION_ONCE_
namespace ddl {
// A block of scores: queries down, keys across. Query row i sees its first seen + i keys (none where that is
// negative, all where it is larger); the rest are in its future. `scale` is 1 / sqrt(K).
struct ScoreBlock {
  Index queries, keys, ld, seen;
  float scale;
  Index visible(Index i) const { return seen + i < 0 ? 0 : seen + i < keys ? seen + i : keys; }
};
}  // namespace ddl
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

template <class Act>
HWY_INLINE void ZeroFrom(Act* row, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) row[i] = Act{};
}

// Online softmax. s_ij = q_i . k_j is not scaled yet. On entry, with sums over the keys of earlier blocks:
//   acc_i = sum_j e^{scale (s_ij - max_i)} v_j
//   sum_i = sum_j e^{scale (s_ij - max_i)}
// If the new block raises max_i, both are multiplied by e^{scale (old max_i - new max_i)}. Adds the new keys
// to sum_i and writes their weights; the caller then adds sum_j p_ij v_j to acc_i.
//   p_ij  = e^{scale (s_ij - max_i)}        (0 for keys in the future)
template <class Act>
HWY_INLINE void SoftmaxBlock(Act* p, float* acc_QK, float* max_Q, float* sum_Q, const float* s,
                             const ScoreBlock& block, bool first, Index K) {
  const float to_bits = block.scale * kLog2E;  // e^{scale x} = 2^{to_bits x}
  for (Index i = 0; i < block.queries; ++i) {
    const float* s_row = s + i * block.ld;
    Act* p_row = p + i * block.ld;
    const Index n = block.visible(i);
    const float before = first ? s_row[0] : max_Q[i];
    const float largest = Largest(n, before, [&](auto d, Index j) HWY_ATTR { return LoadF(d, s_row + j); });
    const float sum = Sum(n, [&](auto d, Index j) HWY_ATTR {
      const auto below = hn::Sub(LoadF(d, s_row + j), hn::Set(d, largest));
      const auto e = QuickExp2(d, hn::Mul(below, hn::Set(d, to_bits)));
      StoreF(e, d, p_row + j);
      return e;
    });
    ZeroFrom(p_row, n, block.keys);
    max_Q[i] = largest;
    if (first) {
      sum_Q[i] = sum;
    } else if (largest == before) {
      sum_Q[i] += sum;
    } else {
      const float shrink = hn::GetLane(QuickExp2(One(), hn::Set(One(), (before - largest) * to_bits)));
      sum_Q[i] = sum_Q[i] * shrink + sum;
      float* acc_K = acc_QK + i * K;
      ForEach(K, [&](auto d, Index k)
                     HWY_ATTR { StoreF(hn::Mul(LoadF(d, acc_K + k), hn::Set(d, shrink)), d, acc_K + k); });
    }
  }
}

// o_i   = acc_i / sum_i
// lse_i = scale max_i + log sum_i
template <class Act>
HWY_INLINE void FinishQueries(HeadRows<Act> o, float* lse, Index ld_lse, const float* acc_QK,
                              const float* max_Q, const float* sum_Q, float scale, Index Q, Index K) {
  for (Index i = 0; i < Q; ++i) {
    const float share = 1.0f / sum_Q[i];
    ForEach(K, [&](auto d, Index k) HWY_ATTR {
      StoreF(hn::Mul(LoadF(d, acc_QK + i * K + k), hn::Set(d, share)), d, o.data + i * o.ld + k);
    });
    lse[i * ld_lse] = scale * max_Q[i] + std::log(sum_Q[i]);
  }
}

// delta_i = dout_i . o_i
// lse2_i  = lse_i / log 2
template <class Act>
HWY_INLINE void PrepareQueries(float* delta_T, float* lse2_T, HeadRows<const Act> dout, HeadRows<const Act> o,
                               const float* lse, Index ld_lse, Index T, Index K) {
  for (Index i = 0; i < T; ++i) {
    delta_T[i] = Sum(K, [&](auto d, Index k) HWY_ATTR {
      return hn::Mul(LoadF(d, dout.data + i * dout.ld + k), LoadF(d, o.data + i * o.ld + k));
    });
    lse2_T[i] = lse[i * ld_lse] * kLog2E;
  }
}

// p_ij  = e^{scale s_ij - lse_i}
// ds_ij = scale p_ij (dp_ij - delta_i)
// Both are 0 for keys in the future. p may be s, ds may be dp.
template <class Act>
HWY_INLINE void GradBlock(Act* p, Act* ds, const float* s, const float* dp, const float* lse2_Q,
                          const float* delta_Q, const ScoreBlock& block) {
  for (Index i = 0; i < block.queries; ++i) {
    const Index row = i * block.ld, n = block.visible(i);
    ForEach(n, [&](auto d, Index j) HWY_ATTR {
      const auto to_bits = hn::Set(d, block.scale * kLog2E);
      const auto weight = QuickExp2(d, hn::MulSub(LoadF(d, s + row + j), to_bits, hn::Set(d, lse2_Q[i])));
      const auto above = hn::Sub(LoadF(d, dp + row + j), hn::Set(d, delta_Q[i]));
      StoreF(weight, d, p + row + j);
      StoreF(hn::Mul(hn::Mul(weight, hn::Set(d, block.scale)), above), d, ds + row + j);
    });
    ZeroFrom(p + row, n, block.keys);
    ZeroFrom(ds + row, n, block.keys);
  }
}

template <class Act>
HWY_INLINE void CopyRows(HeadRows<Act> to, const float* from_RK, Index R, Index K) {
  for (Index r = 0; r < R; ++r)
    ForEach(K, [&](auto d, Index k)
                   HWY_ATTR { StoreF(LoadF(d, from_RK + r * K + k), d, to.data + r * to.ld + k); });
}

void SoftmaxBlockF32(float* p, float* acc, float* max, float* sum, const float* s, const ScoreBlock& block,
                     bool first, Index K) {
  SoftmaxBlock(p, acc, max, sum, s, block, first, K);
}
void SoftmaxBlockBf16(bf16* p, float* acc, float* max, float* sum, const float* s, const ScoreBlock& block,
                      bool first, Index K) {
  SoftmaxBlock(p, acc, max, sum, s, block, first, K);
}
void FinishQueriesF32(HeadRows<float> o, float* lse, Index ld_lse, const float* acc, const float* max,
                      const float* sum, float scale, Index Q, Index K) {
  FinishQueries(o, lse, ld_lse, acc, max, sum, scale, Q, K);
}
void FinishQueriesBf16(HeadRows<bf16> o, float* lse, Index ld_lse, const float* acc, const float* max,
                       const float* sum, float scale, Index Q, Index K) {
  FinishQueries(o, lse, ld_lse, acc, max, sum, scale, Q, K);
}
void PrepareQueriesF32(float* delta, float* lse2, HeadRows<const float> dout, HeadRows<const float> o,
                       const float* lse, Index ld_lse, Index T, Index K) {
  PrepareQueries(delta, lse2, dout, o, lse, ld_lse, T, K);
}
void PrepareQueriesBf16(float* delta, float* lse2, HeadRows<const bf16> dout, HeadRows<const bf16> o,
                        const float* lse, Index ld_lse, Index T, Index K) {
  PrepareQueries(delta, lse2, dout, o, lse, ld_lse, T, K);
}
void GradBlockF32(float* p, float* ds, const float* s, const float* dp, const float* lse2, const float* delta,
                  const ScoreBlock& block) {
  GradBlock(p, ds, s, dp, lse2, delta, block);
}
void GradBlockBf16(bf16* p, bf16* ds, const float* s, const float* dp, const float* lse2, const float* delta,
                   const ScoreBlock& block) {
  GradBlock(p, ds, s, dp, lse2, delta, block);
}
void CopyRowsF32(HeadRows<float> to, const float* from, Index R, Index K) { CopyRows(to, from, R, K); }
void CopyRowsBf16(HeadRows<bf16> to, const float* from, Index R, Index K) { CopyRows(to, from, R, K); }

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>

#include "kernels/gemm.h"

namespace ddl {

HWY_EXPORT(SoftmaxBlockF32);
HWY_EXPORT(SoftmaxBlockBf16);
HWY_EXPORT(FinishQueriesF32);
HWY_EXPORT(FinishQueriesBf16);
HWY_EXPORT(PrepareQueriesF32);
HWY_EXPORT(PrepareQueriesBf16);
HWY_EXPORT(GradBlockF32);
HWY_EXPORT(GradBlockBf16);
HWY_EXPORT(CopyRowsF32);
HWY_EXPORT(CopyRowsBf16);

// Calls the exported kernel for this function's Act.
#define DDL_FOR_ACT(kernel, ...)               \
  do {                                         \
    if constexpr (std::is_same_v<Act, float>)  \
      DDL_DISPATCH(kernel##F32, __VA_ARGS__);  \
    else                                       \
      DDL_DISPATCH(kernel##Bf16, __VA_ARGS__); \
  } while (false)

namespace {

// Measured: short query blocks waste little on the diagonal, where half a block is in the future; key blocks
// are long enough for the products to run near their peak, short enough to stay in L2.
constexpr Index kFwdQueries = 64, kFwdKeys = 256;
constexpr Index kBwdQueries = 64, kBwdKeys = 128;
// Every query row of a block sees at least the first key of each key block it meets.
static_assert(kFwdKeys % kFwdQueries == 0 && kBwdKeys % kBwdQueries == 0);

// Hands out aligned slices; on a null base it only counts.
struct Slices {
  std::byte* base;
  std::size_t used = 0;
  template <class X>
  X* take(Index count) {
    std::byte* at = base ? base + used : nullptr;
    used += static_cast<std::size_t>(round_up(count * static_cast<Index>(sizeof(X)), kCacheLineBytes));
    return reinterpret_cast<X*>(at);
  }
};

// One worker's scratch. With bf16 the weights have their own storage; with f32 they overwrite the scores.
template <class Act>
struct FwdScratch {
  float *s, *acc_QK, *max_Q, *sum_Q;
  Act* p;
  FwdScratch(Slices slices, Index K, std::size_t* bytes) {
    s = slices.take<float>(kFwdQueries * kFwdKeys);
    acc_QK = slices.take<float>(kFwdQueries * K);
    max_Q = slices.take<float>(kFwdQueries);
    sum_Q = slices.take<float>(kFwdQueries);
    if constexpr (std::is_same_v<Act, float>)
      p = s;
    else
      p = slices.take<Act>(kFwdQueries * kFwdKeys);
    if (bytes) *bytes = slices.used;
  }
};

template <class Act>
struct BwdScratch {
  float *s, *dp, *dk_SK, *dv_SK, *dq_TK, *delta_T, *lse2_T;
  Act *p, *ds;
  BwdScratch(Slices slices, Index T, Index K, std::size_t* bytes) {
    s = slices.take<float>(kBwdQueries * kBwdKeys);
    dp = slices.take<float>(kBwdQueries * kBwdKeys);
    dk_SK = slices.take<float>(kBwdKeys * K);
    dv_SK = slices.take<float>(kBwdKeys * K);
    dq_TK = slices.take<float>(T * K);
    delta_T = slices.take<float>(T);
    lse2_T = slices.take<float>(T);
    if constexpr (std::is_same_v<Act, float>) {
      p = s;
      ds = dp;
    } else {
      p = slices.take<Act>(kBwdQueries * kBwdKeys);
      ds = slices.take<Act>(kBwdQueries * kBwdKeys);
    }
    if (bytes) *bytes = slices.used;
  }
};

std::size_t worker_bytes(Index T, Index K) {
  std::size_t forward = 0, backward = 0;
  FwdScratch<bf16>(Slices{nullptr}, K, &forward);
  BwdScratch<bf16>(Slices{nullptr}, T, K, &backward);
  return std::max(forward, backward);
}

// body(scratch of this worker, i) for i in [0, items), claimed one by one in order.
template <class Body>
void for_each_claimed(Index items, std::byte* scratch, std::size_t bytes, const Exec& ex, const Body& body) {
  std::atomic<Index> next = 0;
  parallel_for(std::min<Index>(items, ex.threads), ex, [&](Index worker) {
    for (Index i; (i = next.fetch_add(1)) < items;)
      body(Slices{scratch + static_cast<std::size_t>(worker) * bytes}, i);
  });
}

template <class Act>
HeadRows<Act> from_row(HeadRows<Act> x, Index n, Index h, Index K) {
  return {x.data + n * x.ld + h * K, x.ld};
}
template <class Act>
Matrix<std::remove_const_t<Act>> matrix(HeadRows<Act> x, Index row = 0, Op op = Op::kNone) {
  return {x.data + row * x.ld, x.ld, op};
}

constexpr Exec kAlone{};  // block products run on the thread that asks for them

}  // namespace

std::size_t attention_scratch_bytes(Index T, Index K, int threads) {
  return worker_bytes(T, K) * static_cast<std::size_t>(threads);
}

template <class Act>
void attention_fwd(HeadRows<Act> o, float* lse_NH, std::byte* scratch, HeadRows<const Act> q,
                   HeadRows<const Act> k, HeadRows<const Act> v, Index B, Index T, Index H, Index K,
                   const Exec& ex) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  const Index blocks = ceil_div(T, kFwdQueries);
  for_each_claimed(B * H * blocks, scratch, worker_bytes(T, K), ex, [&](Slices slices, Index item) {
    const FwdScratch<Act> w(slices, K, nullptr);
    const Index b = item / (H * blocks), h = item / blocks % H;
    const Index begin = (blocks - 1 - item % blocks) * kFwdQueries;  // the longest first
    const Index end = std::min(T, begin + kFwdQueries), queries = end - begin;
    const auto q_h = from_row(q, b * T + begin, h, K);
    const auto k_h = from_row(k, b * T, h, K), v_h = from_row(v, b * T, h, K);
    for (Index key = 0; key < end; key += kFwdKeys) {
      const Index keys = std::min(kFwdKeys, end - key);
      const ScoreBlock block{queries, keys, kFwdKeys, begin + 1 - key, scale};
      gemm<Act, float>(w.s, kFwdKeys, Write::kOverwrite, matrix(q_h), matrix(k_h, key, Op::kTranspose),
                       queries, keys, K, kAlone);
      DDL_FOR_ACT(SoftmaxBlock, w.p, w.acc_QK, w.max_Q, w.sum_Q, w.s, block, key == 0, K);
      gemm<Act, float>(w.acc_QK, K, key == 0 ? Write::kOverwrite : Write::kAccumulate, {w.p, kFwdKeys},
                       matrix(v_h, key), queries, K, keys, kAlone);
    }
    DDL_FOR_ACT(FinishQueries, from_row(o, b * T + begin, h, K), lse_NH + (b * T + begin) * H + h, H,
                w.acc_QK, w.max_Q, w.sum_Q, scale, queries, K);
  });
}

// With g = dout:
//   dp_ij   = g_i . v_j
//   delta_i = sum_j p_ij dp_ij = g_i . o_i
//   ds_ij   = scale p_ij (dp_ij - delta_i)
//   dv_j    = sum_i p_ij g_i
//   dq_i    = sum_j ds_ij k_j
//   dk_j    = sum_i ds_ij q_i
// A work item is one head. Each block of keys is combined with all blocks of queries that see it; then its dk
// and dv are complete. dq is complete after the last block of keys.
template <class Act>
void attention_bwd(HeadRows<Act> dq, HeadRows<Act> dk, HeadRows<Act> dv, std::byte* scratch,
                   HeadRows<const Act> dout, HeadRows<const Act> o, const float* lse_NH,
                   HeadRows<const Act> q, HeadRows<const Act> k, HeadRows<const Act> v, Index B, Index T,
                   Index H, Index K, const Exec& ex) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  for_each_claimed(B * H, scratch, worker_bytes(T, K), ex, [&](Slices slices, Index item) {
    const BwdScratch<Act> w(slices, T, K, nullptr);
    const Index n0 = item / H * T, h = item % H;
    const auto q_h = from_row(q, n0, h, K), k_h = from_row(k, n0, h, K), v_h = from_row(v, n0, h, K);
    const auto dout_h = from_row(dout, n0, h, K);
    DDL_FOR_ACT(PrepareQueries, w.delta_T, w.lse2_T, dout_h, from_row(o, n0, h, K), lse_NH + n0 * H + h, H, T,
                K);
    std::fill_n(w.dq_TK, T * K, 0.0f);
    for (Index key = 0; key < T; key += kBwdKeys) {
      const Index all_keys = std::min(kBwdKeys, T - key);
      std::fill_n(w.dk_SK, all_keys * K, 0.0f);
      std::fill_n(w.dv_SK, all_keys * K, 0.0f);
      for (Index begin = key; begin < T; begin += kBwdQueries) {
        const Index end = std::min(T, begin + kBwdQueries), queries = end - begin;
        const Index keys = std::min(all_keys, end - key);  // on the diagonal: only keys that some query sees
        const ScoreBlock block{queries, keys, kBwdKeys, begin + 1 - key, scale};
        gemm<Act, float>(w.s, kBwdKeys, Write::kOverwrite, matrix(q_h, begin),
                         matrix(k_h, key, Op::kTranspose), queries, keys, K, kAlone);
        gemm<Act, float>(w.dp, kBwdKeys, Write::kOverwrite, matrix(dout_h, begin),
                         matrix(v_h, key, Op::kTranspose), queries, keys, K, kAlone);
        DDL_FOR_ACT(GradBlock, w.p, w.ds, w.s, w.dp, w.lse2_T + begin, w.delta_T + begin, block);
        gemm<Act, float>(w.dv_SK, K, Write::kAccumulate, {w.p, kBwdKeys, Op::kTranspose},
                         matrix(dout_h, begin), keys, K, queries, kAlone);
        gemm<Act, float>(w.dk_SK, K, Write::kAccumulate, {w.ds, kBwdKeys, Op::kTranspose}, matrix(q_h, begin),
                         keys, K, queries, kAlone);
        gemm<Act, float>(w.dq_TK + begin * K, K, Write::kAccumulate, {w.ds, kBwdKeys}, matrix(k_h, key),
                         queries, K, keys, kAlone);
      }
      DDL_FOR_ACT(CopyRows, from_row(dk, n0 + key, h, K), w.dk_SK, all_keys, K);
      DDL_FOR_ACT(CopyRows, from_row(dv, n0 + key, h, K), w.dv_SK, all_keys, K);
    }
    DDL_FOR_ACT(CopyRows, from_row(dq, n0, h, K), w.dq_TK, T, K);
  });
}

#undef DDL_FOR_ACT

#define DDL_INSTANTIATE(Act)                                                                                \
  template void attention_fwd(HeadRows<Act>, float*, std::byte*, HeadRows<const Act>, HeadRows<const Act>,  \
                              HeadRows<const Act>, Index, Index, Index, Index, const Exec&);                \
  template void attention_bwd(HeadRows<Act>, HeadRows<Act>, HeadRows<Act>, std::byte*, HeadRows<const Act>, \
                              HeadRows<const Act>, const float*, HeadRows<const Act>, HeadRows<const Act>,  \
                              HeadRows<const Act>, Index, Index, Index, Index, const Exec&);
DDL_INSTANTIATE(float)
DDL_INSTANTIATE(bf16)
#undef DDL_INSTANTIATE

}  // namespace ddl
#endif
