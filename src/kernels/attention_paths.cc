#include "kernels/attention_paths.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>

#include "core/cache_line.h"
#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_paths.cc"
#include <hwy/foreach_target.h>

#include "kernels/dot_tile-inl.h"
#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// A tile has kGroup queries and twelve sums at most: the smallest vector machines have sixteen registers. One query
// needs several sums to hide the latency of an addition.
constexpr Index TileKeys(Index queries) { return queries == 1 ? 8 : 3; }
constexpr Index TileVectors(Index queries) { return queries == 1 ? 8 : 2; }
constexpr Index kKeysAtOnce = 32;  // the values of this many keys stay in L1 for all queries of a block

// s[g][j] = q_g . k_j   for G queries and all keys
template <Index G, class Act>
HWY_INLINE void DotsOfGroup(float* s, Index ld_s, const Act* q, Index ld_q, const KeyRows<Act>& keys, Index h,
                            Index K) {
  const Act* k = keys.k + h * K;
  Index j = 0;
  constexpr Index kKeys = TileKeys(G);
  const auto store = [&](Index g, Index r, float dot) { s[g * ld_s + j + r] = dot; };
  for (; j + kKeys <= keys.count; j += kKeys)
    DotTile<G, kKeys>(q, ld_q, k + j * keys.ld_k, keys.ld_k, K, store);
  for (; j < keys.count; ++j) DotTile<G, 1>(q, ld_q, k + j * keys.ld_k, keys.ld_k, K, store);
}

// acc[g] += sum_j p[g][j] v_j   for G queries over n keys, in the order of j
template <Index G, class Act>
HWY_INLINE void AddValues(float* acc, const float* p, Index ld_p, const Act* HWY_RESTRICT v, Index ld_v,
                          Index n, Index K) {
  const auto columns = [&](auto d, auto vectors, Index i) HWY_ATTR {
    constexpr Index kVectors = decltype(vectors)::value;
    const Index lanes = static_cast<Index>(hn::Lanes(d));
    hn::Vec<decltype(d)> sum[G][kVectors];
    for (Index g = 0; g < G; ++g)
      for (Index x = 0; x < kVectors; ++x) sum[g][x] = hn::LoadU(d, acc + g * K + i + x * lanes);
    for (Index j = 0; j < n; ++j) {
      hn::Vec<decltype(d)> value[kVectors];
      for (Index x = 0; x < kVectors; ++x) value[x] = LoadF(d, v + j * ld_v + i + x * lanes);
      for (Index g = 0; g < G; ++g) {
        const auto weight = hn::Set(d, p[g * ld_p + j]);
        for (Index x = 0; x < kVectors; ++x) sum[g][x] = hn::MulAdd(weight, value[x], sum[g][x]);
      }
    }
    for (Index g = 0; g < G; ++g)
      for (Index x = 0; x < kVectors; ++x) hn::StoreU(sum[g][x], d, acc + g * K + i + x * lanes);
  };
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  constexpr Index kVectors = TileVectors(G);
  for (; i + kVectors * lanes <= K; i += kVectors * lanes)
    columns(d, std::integral_constant<Index, kVectors>(), i);
  for (; i + lanes <= K; i += lanes) columns(d, std::integral_constant<Index, 1>(), i);
  for (; i < K; ++i) columns(One(), std::integral_constant<Index, 1>(), i);
}

// One head. score holds x.count rows of ld_s floats, acc x.count rows of K.
template <class Act>
HWY_INLINE void Paths(float* score, Index ld_s, float* acc, const PathQueries<Act>& x, Index h, Index K) {
  const Act* q = x.q + h * K;
  Index total = 0;
  for (const KeyRows<Act>& keys : x.keys) {
    ForGroups(x.count, [&](Index i, auto G) HWY_ATTR {
      DotsOfGroup<G>(score + i * ld_s + total, ld_s, q + i * x.ld, x.ld, keys, h, K);
    });
    total += keys.count;
  }

  const float to_bits = kLog2E / std::sqrt(static_cast<float>(K));
  float share[kPathQueries];
  for (Index i = 0; i < x.count; ++i) {
    float* s = score + i * ld_s;
    const Index n = total - (x.count - 1 - i);  // the last queries are still in this one's future
    const float largest = Largest(n, s[0], [&](auto d, Index j) HWY_ATTR { return LoadF(d, s + j); });
    share[i] = 1.0f / Sum(n, [&](auto d, Index j) HWY_ATTR {
                 const auto below = hn::Sub(LoadF(d, s + j), hn::Set(d, largest));
                 const auto e = QuickExp2(d, hn::Mul(below, hn::Set(d, to_bits)));
                 StoreF(e, d, s + j);
                 return e;
               });
    // A weight of zero leaves a sum as it is, to the bit.
    for (Index j = n; j < total; ++j) s[j] = 0;
  }

  std::fill_n(acc, x.count * K, 0.0f);
  total = 0;
  for (const KeyRows<Act>& keys : x.keys) {
    for (Index begin = 0; begin < keys.count; begin += kKeysAtOnce) {
      const Index n = std::min(kKeysAtOnce, keys.count - begin);
      ForGroups(x.count, [&](Index i, auto G) HWY_ATTR {
        AddValues<G>(acc + i * K, score + i * ld_s + total + begin, ld_s, keys.v + begin * keys.ld_v + h * K,
                     keys.ld_v, n, K);
      });
    }
    total += keys.count;
  }
  for (Index i = 0; i < x.count; ++i)
    ForEach(K, [&](auto d, Index c) HWY_ATTR {
      StoreF(hn::Mul(LoadF(d, acc + i * K + c), hn::Set(d, share[i])), d, x.o + i * x.ld + h * K + c);
    });
}

void PathsF32(float* score, Index ld_s, float* acc, const PathQueries<float>& x, Index h, Index K) {
  Paths(score, ld_s, acc, x, h, K);
}
void PathsBf16(float* score, Index ld_s, float* acc, const PathQueries<bf16>& x, Index h, Index K) {
  Paths(score, ld_s, acc, x, h, K);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(PathsF32);
HWY_EXPORT(PathsBf16);

namespace {
// Rows of scores and the scratch of each worker are whole cache lines.
Index score_floats(Index longest) { return round_up(longest, kCacheLineFloats); }
Index worker_floats(Index longest, Index K) {
  return kPathQueries * (score_floats(longest) + round_up(K, kCacheLineFloats));
}
}  // namespace

Index attention_paths_scratch(Index longest, Index K, int threads) {
  return threads * worker_floats(longest, K);
}

template <class Act>
void attention_paths(float* scratch, std::span<const PathQueries<Act>> blocks, Index longest, Index H,
                     Index K, const Exec& ex) {
  for (const PathQueries<Act>& x : blocks) {
    Index keys = 0;
    for (const KeyRows<Act>& rows : x.keys) keys += rows.count;
    DDL_CHECK(x.count > 0 && x.count <= kPathQueries && x.count <= keys && keys <= longest,
              "{} queries over {} keys, of at most {}", x.count, keys, longest);
  }
  const Index items = std::ssize(blocks) * H;
  std::atomic<Index> next = 0;
  parallel_for(std::min<Index>(items, ex.threads), ex, [&](Index worker) {
    float* score = scratch + worker * worker_floats(longest, K);
    float* acc = score + kPathQueries * score_floats(longest);
    for (Index item; (item = next.fetch_add(1)) < items;) {
      const PathQueries<Act>& x = blocks[item / H];
      if constexpr (std::is_same_v<Act, float>)
        DDL_DISPATCH(PathsF32, score, score_floats(longest), acc, x, item % H, K);
      else
        DDL_DISPATCH(PathsBf16, score, score_floats(longest), acc, x, item % H, K);
    }
  });
}

template void attention_paths(float*, std::span<const PathQueries<float>>, Index, Index, Index, const Exec&);
template void attention_paths(float*, std::span<const PathQueries<bf16>>, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
