#include "kernels/packed_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/cache_line.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed_product.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

#ifndef DDL_KERNELS_PACKED_PRODUCT_ONCE_
#define DDL_KERNELS_PACKED_PRODUCT_ONCE_
namespace ddl {

// The activations of up to kTokensAtOnce tokens as the kernel reads them: block by block, so that those of a block lie
// together in the cache. Bf16 weights meet the numbers themselves.
struct PackedInputs {
  Index tokens = 0;                 // G
  const float* x = nullptr;         // [blocks][G][32], filled up with zeros
  std::int16_t* integer = nullptr;  // the same
  float* step = nullptr;            // [blocks][G]

  PackedInputs from(Index n) const {
    return {tokens, x + n * kBlockInputs, integer + n * kBlockInputs, step + n};
  }
};

// A few tokens: a thread computes several panels at once, far apart from each other, because memory is read fastest
// in several long streams, and because few sums would wait for each other.
constexpr Index packed_streams(Index tokens) { return tokens == 1 ? 3 : tokens <= 4 ? 2 : 1; }

// More: one stream, whose bytes are asked for when those so far in front of them are read.
constexpr Index kAhead = 4096;

// So many stay in the cache while panels pass by.
constexpr Index kTokensAtOnce = 48;

}  // namespace ddl
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

constexpr Index kLanes = HWY_LANES(float), kPanelVectors = kPanelRows / kLanes;
static_assert(kPanelVectors * kLanes == kPanelRows);

using Words = hn::ScalableTag<std::uint32_t>;
using Int32s = hn::ScalableTag<std::int32_t>;
using Int16s = hn::ScalableTag<std::int16_t>;
using Word = hn::Vec<Words>;

// What a format's numbers are in registers. A word has kPlanes planes, the codes of an input or a pair of inputs for a
// row in every lane; a block has kPlanes * bits of them. Weight and Input are multiplied and added to a Partial, which
// becomes part of a row's sum at the end of the block. kSums vectors of these fit into the registers of the smallest
// vector machines next to everything else.
template <WeightFormat kFormat>
struct Planes {  // those with scales: pairs of 16-bit integers, one in each half of a lane
  static constexpr Index kBits = info(kFormat).bits, kPlanes = 16 / kBits, kSums = 8;
  using Tag = Int32s;
  using Weight = hn::Vec<Int32s>;
  using Input = hn::Vec<Int32s>;
  struct Partial {
    hn::Vec<Int32s> even, odd;
  };

  // Up to the top of its half of the word, and down again with its sign.
  template <Index kPlane>
  static HWY_INLINE Weight Unpack(Word words) {
    constexpr int kUp = static_cast<int>(16 - (kPlane + 1) * kBits), kDown = static_cast<int>(16 - kBits);
#if HWY_TARGET == HWY_SCALAR  // whose vectors of 16-bit numbers have one of them, not two
    const Weight both = hn::BitCast(Int32s(), words);
    const Weight low = hn::ShiftRight<kDown + 16>(hn::ShiftLeft<kUp + 16>(both));
    const Weight high = hn::ShiftRight<kDown + 16>(hn::ShiftLeft<kUp>(both));
    return hn::Or(hn::And(low, hn::Set(Int32s(), 0xffff)), hn::ShiftLeft<16>(high));
#else
    hn::Vec<Int16s> codes = hn::BitCast(Int16s(), words);
    if constexpr (kUp > 0) codes = hn::ShiftLeft<kUp>(codes);
    return hn::BitCast(Int32s(), hn::ShiftRight<kDown>(codes));
#endif
  }
  static HWY_INLINE Input Get(const PackedInputs& in, Index g, Index block, Index plane) {
    std::int32_t pair;
    std::memcpy(&pair, in.integer + (block * in.tokens + g) * kBlockInputs + 2 * plane, sizeof pair);
    return hn::Set(Int32s(), pair);
  }
  static HWY_INLINE Partial Begin(Vec /*sum*/) { return {hn::Zero(Int32s()), hn::Zero(Int32s())}; }
  static HWY_INLINE void Add(Partial& partial, Weight w, Input x) {
#if HWY_TARGET == HWY_SCALAR
    const auto low = [](auto pair) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(pair)); };
    partial.even = hn::Add(partial.even, hn::Mul(low(w), low(x)));
    partial.odd = hn::Add(partial.odd, hn::Mul(hn::ShiftRight<16>(w), hn::ShiftRight<16>(x)));
#else
    partial.even = hn::ReorderWidenMulAccumulate(Int32s(), hn::BitCast(Int16s(), w), hn::BitCast(Int16s(), x),
                                                 partial.even, partial.odd);
#endif
  }
  static HWY_INLINE hn::Vec<Int32s> Total(const Partial& partial) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Add(partial.even, partial.odd);
#else
    return hn::RearrangeToOddPlusEven(partial.even, partial.odd);
#endif
  }
  static HWY_INLINE Vec Scale(const std::byte* w, Index v) {
    return LoadF(Full(), reinterpret_cast<const bf16*>(w + kBits * kPanelRows * 4) + v * kLanes);
  }
  static HWY_INLINE Vec End(const Partial& partial, Vec sum, Vec scale, const PackedInputs& in, Index g,
                            Index block) {
    const Full d;
    const Vec unit = hn::Mul(scale, hn::Set(d, in.step[block * in.tokens + g]));
    return hn::MulAdd(unit, hn::ConvertTo(d, Total(partial)), sum);
  }
};
template <>
struct Planes<WeightFormat::kBf16> {  // single inputs; the sums continue from block to block
  static constexpr Index kBits = 16, kPlanes = 2, kSums = 8;
  using Tag = Full;
  using Weight = Vec;
  using Input = Vec;
  using Partial = Vec;

  template <Index kPlane>
  static HWY_INLINE Weight Unpack(Word words) {
    if constexpr (kPlane == 0)
      return hn::BitCast(Full(), hn::ShiftLeft<16>(words));
    else
      return hn::BitCast(Full(), hn::And(words, hn::Set(Words(), 0xffff0000u)));
  }
  static HWY_INLINE Input Get(const PackedInputs& in, Index g, Index block, Index plane) {
    return hn::Set(Full(), in.x[(block * in.tokens + g) * kBlockInputs + plane]);
  }
  static HWY_INLINE Partial Begin(Vec sum) { return sum; }
  static HWY_INLINE void Add(Partial& partial, Weight w, Input x) { partial = hn::MulAdd(w, x, partial); }
  static HWY_INLINE Vec Scale(const std::byte*, Index) { return hn::Zero(Full()); }
  static HWY_INLINE Vec End(const Partial& partial, Vec, Vec, const PackedInputs&, Index, Index) {
    return partial;
  }
};

#if HWY_TARGET == HWY_AVX3
// The same as Planes for CPUs that multiply pairs and add both products to a sum in one step, the input straight from
// memory. Highway 1.0 has no name for it.
template <WeightFormat kFormat>
struct VnniPlanes : Planes<kFormat> {
  using typename Planes<kFormat>::Partial;
  using typename Planes<kFormat>::Weight;
  using Input = const std::int16_t*;

  static HWY_INLINE Input Get(const PackedInputs& in, Index g, Index block, Index plane) {
    return in.integer + (block * in.tokens + g) * kBlockInputs + 2 * plane;
  }
  static HWY_INLINE void Add(Partial& partial, Weight w, Input x) {
    using Pair = const std::int16_t[2];
    auto sum = partial.even.raw;  // named in the instruction itself, it would stay in memory
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w.raw), "m"(*reinterpret_cast<Pair*>(x)));
    partial.even.raw = sum;
  }
};
#endif

HWY_INLINE Word LoadWord(const std::byte* block, Index word, Index v) {
  return hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(block) + word * kPanelRows + v * kLanes);
}

// body(integral_constant plane) for every plane of a word
template <class P, class Body>
HWY_INLINE void ForPlanes(const Body& body) {
  body(std::integral_constant<Index, 0>());
  body(std::integral_constant<Index, 1>());
  if constexpr (P::kPlanes == 4) {
    body(std::integral_constant<Index, 2>());
    body(std::integral_constant<Index, 3>());
  }
}

// body(integral_constant n) for n = 1 .. kMost
template <Index kMost, class Body>
HWY_INLINE void WithCount(Index n, const Body& body) {
  if constexpr (kMost > 1)
    if (n < kMost) return WithCount<kMost - 1>(n, body);
  body(std::integral_constant<Index, kMost>());
}

// body(first, integral_constant count) for groups of up to kMost tokens, of nearly the same size: in a group of one,
// sums would wait for each other.
template <Index kMost, class Body>
HWY_INLINE void InGroups(Index tokens, const Body& body) {
  const Index groups = ceil_div(tokens, kMost);
  for (Index group = 0, first = 0, next; group < groups; ++group, first = next) {
    next = tokens * (group + 1) / groups;
    WithCount<kMost>(next - first, [&](auto G) HWY_ATTR { body(first, G); });
  }
}

HWY_INLINE void StoreRows(float* y, const Vec (&sum)[kPanelVectors], Index rows) {
  if (rows == kPanelRows) {
    for (Index v = 0; v < kPanelVectors; ++v) hn::StoreU(sum[v], Full(), y + v * kLanes);
  } else {
    HWY_ALIGN float all[kPanelRows];
    for (Index v = 0; v < kPanelVectors; ++v) hn::Store(sum[v], Full(), all + v * kLanes);
    std::copy_n(all, rows, y);
  }
}

// G tokens, the first of `in`; S panels, `apart` panels from each other, the first is panel p.
template <class P, Index S, Index G>
HWY_NOINLINE void Streams(float* y, Index p, Index apart, const PackedMatrix& w, const PackedInputs& in) {
  Vec sum[S][G][kPanelVectors];
  const std::byte* at[S];
  for (Index s = 0; s < S; ++s) {
    at[s] = w.data + (p + s * apart) * w.shape.panel_bytes();
    for (Index g = 0; g < G; ++g)
      for (Index v = 0; v < kPanelVectors; ++v) sum[s][g][v] = hn::Zero(Full());
  }
  for (Index block = 0; block < w.shape.blocks(); ++block) {
    typename P::Partial partial[S][G][kPanelVectors];
    for (Index s = 0; s < S; ++s)
      for (Index g = 0; g < G; ++g)
        for (Index v = 0; v < kPanelVectors; ++v) partial[s][g][v] = P::Begin(sum[s][g][v]);
    if constexpr (S == 1 && G > 4)  // slow enough that the next panel must be asked for
      for (Index byte = 0; byte < w.shape.block_bytes(); byte += kCacheLineBytes)
        hwy::Prefetch(at[0] + kAhead + byte);
    for (Index word = 0; word < P::kBits; ++word)
      ForPlanes<P>([&](auto plane) HWY_ATTR {
        typename P::Input x[G];
        for (Index g = 0; g < G; ++g) x[g] = P::Get(in, g, block, word * P::kPlanes + plane);
        for (Index s = 0; s < S; ++s)
          for (Index v = 0; v < kPanelVectors; ++v) {
            const auto codes = P::template Unpack<plane>(LoadWord(at[s], word, v));
            for (Index g = 0; g < G; ++g) P::Add(partial[s][g][v], codes, x[g]);
          }
      });
    for (Index s = 0; s < S; ++s) {
      for (Index v = 0; v < kPanelVectors; ++v) {
        const Vec scale = P::Scale(at[s], v);
        for (Index g = 0; g < G; ++g)
          sum[s][g][v] = P::End(partial[s][g][v], sum[s][g][v], scale, in, g, block);
      }
      at[s] += w.shape.block_bytes();
    }
  }
  const Index O = w.shape.O;
  for (Index s = 0; s < S; ++s) {
    const Index o = (p + s * apart) * kPanelRows;
    for (Index g = 0; g < G; ++g) StoreRows(y + g * O + o, sum[s][g], std::min(kPanelRows, O - o));
  }
}

// One block of a panel for G tokens, its planes unpacked one after another at `planes`.
template <class P, Index G>
HWY_INLINE void AddBlock(float* sums, const std::uint32_t* planes, const std::byte* w, const PackedInputs& in,
                         Index block) {
  typename P::Partial partial[G][kPanelVectors];
  for (Index g = 0; g < G; ++g)
    for (Index v = 0; v < kPanelVectors; ++v)
      partial[g][v] = P::Begin(hn::Load(Full(), sums + g * kPanelRows + v * kLanes));
      // Unrolled whole, gcc would order the additions anew and run out of registers.
#pragma GCC unroll 4
  for (Index plane = 0; plane < P::kBits * P::kPlanes; ++plane) {
    typename P::Weight weight[kPanelVectors];
    for (Index v = 0; v < kPanelVectors; ++v)
      weight[v] = hn::BitCast(typename P::Tag(), hn::Load(Words(), planes + plane * kPanelRows + v * kLanes));
    for (Index g = 0; g < G; ++g) {
      const auto x = P::Get(in, g, block, plane);
      for (Index v = 0; v < kPanelVectors; ++v) P::Add(partial[g][v], weight[v], x);
    }
  }
  for (Index v = 0; v < kPanelVectors; ++v) {
    const Vec scale = P::Scale(w, v);
    for (Index g = 0; g < G; ++g) {
      float* at = sums + g * kPanelRows + v * kLanes;
      hn::Store(P::End(partial[g][v], hn::Load(Full(), at), scale, in, g, block), Full(), at);
    }
  }
}

// Up to kTokensAtOnce tokens: every block of a panel is unpacked once for all of them.
template <class P>
HWY_INLINE void Panel(float* y, Index p, const PackedMatrix& w, const PackedInputs& in) {
  const Index tokens = in.tokens;
  HWY_ALIGN float sums[kTokensAtOnce * kPanelRows];
  HWY_ALIGN std::uint32_t planes[P::kBits * P::kPlanes * kPanelRows];
  std::fill_n(sums, tokens * kPanelRows, 0.0f);
  const std::byte* at = w.data + p * w.shape.panel_bytes();
  for (Index block = 0; block < w.shape.blocks(); ++block, at += w.shape.block_bytes()) {
    for (Index word = 0; word < P::kBits; ++word)
      for (Index v = 0; v < kPanelVectors; ++v) {
        const Word both = LoadWord(at, word, v);
        ForPlanes<P>([&](auto plane) HWY_ATTR {
          hn::Store(hn::BitCast(Words(), P::template Unpack<plane>(both)), Words(),
                    planes + (word * P::kPlanes + plane) * kPanelRows + v * kLanes);
        });
      }
    constexpr Index kTogether = std::max<Index>(1, P::kSums / kPanelVectors);
    const auto add = [&](Index n, auto G)
                         HWY_ATTR { AddBlock<P, G>(sums + n * kPanelRows, planes, at, in.from(n), block); };
    Index n = 0;
    for (; n + kTogether <= tokens && n + kTogether + 1 != tokens; n += kTogether)  // one alone would be slow
      add(n, std::integral_constant<Index, kTogether>());
    for (; n + 2 <= tokens; n += 2) add(n, std::integral_constant<Index, 2>());
    if (n < tokens) add(n, std::integral_constant<Index, 1>());
  }
  const Index O = w.shape.O, o = p * kPanelRows;
  for (Index n = 0; n < tokens; ++n)
    std::copy_n(sums + n * kPanelRows, std::min(kPanelRows, O - o), y + n * O + o);
}

// Panels begin .. end for the tokens of `in`.
template <class P>
HWY_INLINE void Product(float* y, const PackedMatrix& w, const PackedInputs& in, Index begin, Index end) {
  const auto few = [&](auto tokens) HWY_ATTR {
    constexpr Index kStreams = packed_streams(tokens);
    const Index apart = (end - begin) / kStreams;
    for (Index p = begin; p < begin + apart; ++p) Streams<P, kStreams, tokens>(y, p, apart, w, in);
    for (Index p = begin + kStreams * apart; p < end; ++p) Streams<P, 1, tokens>(y, p, 1, w, in);
  };
  // With 32 registers weights are unpacked in them, for eight tokens at once.
  if constexpr (kPanelVectors == 1) {
    if (in.tokens <= P::kSums) return WithCount<P::kSums>(in.tokens, few);
    for (Index p = begin; p < end; ++p)
      InGroups<P::kSums>(in.tokens, [&](Index n, auto G) HWY_ATTR {
        Streams<P, 1, G>(y + n * w.shape.O, p, 1, w, in.from(n));
      });
  } else {
    if (in.tokens <= 2) return WithCount<2>(in.tokens, few);
    for (Index p = begin; p < end; ++p) Panel<P>(y, p, w, in);
  }
}

// One token's activations as integers: step = max |x| / 32767. What is not finite makes its step NaN. `in` begins with
// the token.
void QuantiseInputs(const PackedInputs& in, const float* x_I, Index I) {
  const Full d;
  const hn::Rebind<std::int16_t, Full> d16;
  const auto quantise = [&](Index block, const float* x) HWY_ATTR {
    Vec most = hn::Zero(d), bad = hn::Zero(d);
    for (Index i = 0; i < kBlockInputs; i += kLanes) {
      const Vec v = hn::LoadU(d, x + i);
      most = hn::Max(most, hn::Abs(v));
      bad = hn::MulAdd(v, hn::Zero(d), bad);  // 0, or NaN
    }
    const Vec largest = hn::Add(hn::MaxOfLanes(d, most), hn::SumOfLanes(d, bad));
    const Vec inverse = hn::Div(hn::Set(d, 32767.0f), hn::Max(largest, hn::Set(d, 1e-30f)));
    in.step[block * in.tokens] = hn::GetLane(hn::Mul(largest, hn::Set(d, 1.0f / 32767)));
    for (Index i = 0; i < kBlockInputs; i += kLanes)
      hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse))), d16,
                 in.integer + block * in.tokens * kBlockInputs + i);
  };
  const Index whole = I / kBlockInputs, rest = I % kBlockInputs;
  for (Index block = 0; block < whole; ++block) quantise(block, x_I + block * kBlockInputs);
  if (rest == 0) return;
  HWY_ALIGN float last[kBlockInputs] = {};
  std::copy_n(x_I + whole * kBlockInputs, rest, last);
  quantise(whole, last);
}

void ProductBf16(float* y, const PackedMatrix& w, const PackedInputs& in, Index begin, Index end) {
  Product<Planes<WeightFormat::kBf16>>(y, w, in, begin, end);
}
template <WeightFormat kFormat>
HWY_INLINE void ProductOfCodes(float* y, const PackedMatrix& w, const PackedInputs& in, Index begin,
                               Index end) {
#if HWY_TARGET == HWY_AVX3
  if (has_vnni()) return Product<VnniPlanes<kFormat>>(y, w, in, begin, end);
#endif
  Product<Planes<kFormat>>(y, w, in, begin, end);
}
void ProductQ8(float* y, const PackedMatrix& w, const PackedInputs& in, Index begin, Index end) {
  ProductOfCodes<WeightFormat::kQ8>(y, w, in, begin, end);
}
void ProductQ4(float* y, const PackedMatrix& w, const PackedInputs& in, Index begin, Index end) {
  ProductOfCodes<WeightFormat::kQ4>(y, w, in, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(ProductBf16);
HWY_EXPORT(ProductQ8);
HWY_EXPORT(ProductQ4);
HWY_EXPORT(QuantiseInputs);

namespace {

// Numbers, or integers with their steps: neither takes more than this for a block of one token.
constexpr Index kGroupsAtOnce = 16;  // of tokens; the weights are read once for all of them
constexpr Index kInputBytes = kBlockInputs * Index{sizeof(float)};

// The inputs of `tokens` tokens from x_nI on, at `scratch` unless they can stay where they are.
PackedInputs prepare_inputs(std::byte* scratch, const float* x_nI, const PackedShape& shape, Index tokens) {
  const Index I = shape.I, blocks = shape.blocks();
  PackedInputs in{.tokens = tokens, .x = x_nI};
  if (info(shape.format).has_scales) {
    in.step = reinterpret_cast<float*>(scratch);
    in.integer = reinterpret_cast<std::int16_t*>(in.step + tokens * blocks);
    for (Index n = 0; n < tokens; ++n) DDL_DISPATCH(QuantiseInputs, in.from(n), x_nI + n * I, I);
  } else if (tokens > 1 || I % kBlockInputs != 0) {
    float* x = reinterpret_cast<float*>(scratch);
    for (Index block = 0; block < blocks; ++block)
      for (Index n = 0; n < tokens; ++n, x += kBlockInputs) {
        const Index count = std::min(kBlockInputs, I - block * kBlockInputs);
        std::copy_n(x_nI + n * I + block * kBlockInputs, count, x);
        std::fill_n(x + count, kBlockInputs - count, 0.0f);
      }
    in.x = reinterpret_cast<float*>(scratch);
  }
  return in;
}

}  // namespace

Index packed_product_scratch(Index N, Index I) { return N * ceil_div(I, kBlockInputs) * kInputBytes; }

void packed_product(float* y_NO, std::byte* scratch, const float* x_NI, const PackedMatrix& w, Index N,
                    const Exec& ex) {
  if (N == 0) return;
  const Index O = w.shape.O, I = w.shape.I, groups = ceil_div(N, kTokensAtOnce);
  const auto tokens = [&](Index group) { return std::min(kTokensAtOnce, N - group * kTokensAtOnce); };
  std::array<PackedInputs, kGroupsAtOnce> inputs;
  for (Index first = 0; first < groups; first += kGroupsAtOnce) {
    const Index last = std::min(groups, first + kGroupsAtOnce);
    parallel_for(last - first, ex, [&](Index i) {
      const Index n = (first + i) * kTokensAtOnce;
      inputs[i] = prepare_inputs(scratch + n * w.shape.blocks() * kInputBytes, x_NI + n * I, w.shape,
                                 tokens(first + i));
    });
    // Chunks of a size that stays in the second-level cache, the same number for every thread.
    constexpr Index kClaim = 256 << 10;
    const Index claims = std::max<Index>(1, round_up(ceil_div(w.shape.bytes(), kClaim), ex.threads));
    parallel_chunks(w.shape.panels(), ceil_div(w.shape.panels(), claims), ex, [&](Index begin, Index end) {
      for (Index i = 0; i < last - first; ++i) {
        float* y = y_NO + (first + i) * kTokensAtOnce * O;
        if (w.shape.format == WeightFormat::kBf16)
          DDL_DISPATCH(ProductBf16, y, w, inputs[i], begin, end);
        else if (w.shape.format == WeightFormat::kQ8)
          DDL_DISPATCH(ProductQ8, y, w, inputs[i], begin, end);
        else
          DDL_DISPATCH(ProductQ4, y, w, inputs[i], begin, end);
      }
    });
  }
}

}  // namespace ddl
#endif
