#include "kernels/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/cache_line.h"
#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_decode.cc"
#include <hwy/foreach_target.h>

#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// So many rows of v are added to the sum at a time, which is then loaded and stored once for all of them.
constexpr Index kValueRows = 4;

// One head. score holds x.keys floats, sum holds K.
template <class Act>
HWY_INLINE void Decode(float* score, float* sum, const CachedQuery<Act>& x, Index h, Index K) {
  const Act* q = x.q_C + h * K;
  const Act* k = x.k + h * K;
  const Act* v = x.v + h * K;
  const auto dot = [&](Index j) HWY_ATTR {
    return Sum(
        K, [&](auto d, Index i) HWY_ATTR { return hn::Mul(LoadF(d, q + i), LoadF(d, k + j * x.ld + i)); });
  };
  for (Index j = 0; j < x.keys; ++j) score[j] = dot(j);

  const float to_bits = kLog2E / std::sqrt(static_cast<float>(K));
  const float largest =
      Largest(x.keys, score[0], [&](auto d, Index j) HWY_ATTR { return LoadF(d, score + j); });
  const float total = Sum(x.keys, [&](auto d, Index j) HWY_ATTR {
    const auto below = hn::Sub(LoadF(d, score + j), hn::Set(d, largest));
    const auto e = QuickExp2(d, hn::Mul(below, hn::Set(d, to_bits)));
    StoreF(e, d, score + j);
    return e;
  });

  ForEach(K, [&](auto d, Index i) HWY_ATTR { StoreF(hn::Zero(d), d, sum + i); });
  Index j = 0;
  for (; j + kValueRows <= x.keys; j += kValueRows) {
    const Act* row = v + j * x.ld;
    ForEach(K, [&](auto d, Index i) HWY_ATTR {
      auto s = LoadF(d, sum + i);
      for (Index g = 0; g < kValueRows; ++g)
        s = hn::MulAdd(hn::Set(d, score[j + g]), LoadF(d, row + g * x.ld + i), s);
      StoreF(s, d, sum + i);
    });
  }
  for (; j < x.keys; ++j)
    ForEach(K, [&](auto d, Index i) HWY_ATTR {
      StoreF(hn::MulAdd(hn::Set(d, score[j]), LoadF(d, v + j * x.ld + i), LoadF(d, sum + i)), d, sum + i);
    });
  const float share = 1.0f / total;
  ForEach(K, [&](auto d, Index i)
                 HWY_ATTR { StoreF(hn::Mul(LoadF(d, sum + i), hn::Set(d, share)), d, x.o_C + h * K + i); });
}

void DecodeF32(float* score, float* sum, const CachedQuery<float>& x, Index h, Index K) {
  Decode(score, sum, x, h, K);
}
void DecodeBf16(float* score, float* sum, const CachedQuery<bf16>& x, Index h, Index K) {
  Decode(score, sum, x, h, K);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(DecodeF32);
HWY_EXPORT(DecodeBf16);

namespace {
// Rounded up to cache lines, so that no two threads write to the same line.
Index item_floats(Index keys, Index K) {
  return round_up(keys, kCacheLineFloats) + round_up(K, kCacheLineFloats);
}
}  // namespace

Index attention_decode_scratch(Index queries, Index longest, Index H, Index K) {
  return queries * H * item_floats(longest, K);
}

template <class Act>
void attention_decode(float* scratch, const CachedQuery<Act>* queries, Index count, Index H, Index K,
                      const Exec& ex) {
  Index longest = 0;
  for (Index n = 0; n < count; ++n) longest = std::max(longest, queries[n].keys);
  parallel_for(count * H, ex, [&](Index item) {
    const CachedQuery<Act>& x = queries[item / H];
    DDL_DCHECK(x.keys > 0, "query {} sees no key", item / H);
    float* score = scratch + item * item_floats(longest, K);
    float* sum = score + round_up(longest, kCacheLineFloats);
    if constexpr (std::is_same_v<Act, float>)
      DDL_DISPATCH(DecodeF32, score, sum, x, item % H, K);
    else
      DDL_DISPATCH(DecodeBf16, score, sum, x, item % H, K);
  });
}

template void attention_decode(float*, const CachedQuery<float>*, Index, Index, Index, const Exec&);
template void attention_decode(float*, const CachedQuery<bf16>*, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
