#include "kernels/read_words.h"

#include <atomic>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/read_words.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

#ifndef DDL_KERNELS_READ_WORDS_ONCE_
#define DDL_KERNELS_READ_WORDS_ONCE_
namespace ddl {
constexpr Index kReadStreams = 6;  // that a thread reads at once
}  // namespace ddl
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

std::uint32_t ReadWords(const std::uint32_t* HWY_RESTRICT x, Index n) {
  const hn::ScalableTag<std::uint32_t> d;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), per_stream = n / kReadStreams;
  hn::Vec<decltype(d)> all[kReadStreams];
  for (Index s = 0; s < kReadStreams; ++s) all[s] = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= per_stream; i += lanes)
    for (Index s = 0; s < kReadStreams; ++s) all[s] = hn::Xor(all[s], hn::LoadU(d, x + s * per_stream + i));
  std::uint32_t result = 0;
  for (Index s = 0; s < kReadStreams; ++s) {
    HWY_ALIGN std::uint32_t word[HWY_MAX_BYTES / sizeof(std::uint32_t)];
    hn::Store(all[s], d, word);
    for (Index l = 0; l < lanes; ++l) result ^= word[l];
    for (Index t = i; t < per_stream; ++t) result ^= x[s * per_stream + t];
  }
  for (Index t = kReadStreams * per_stream; t < n; ++t) result ^= x[t];
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(ReadWords);

std::uint32_t read_words(const std::uint32_t* x_n, Index n, const Exec& ex) {
  // 281 KiB; streams a power of two apart would share their cache sets
  constexpr Index kClaim = kReadStreams * 12000;
  std::atomic<std::uint32_t> result = 0;
  parallel_chunks(n, kClaim, ex, [&](Index begin, Index end) {
    result ^= DDL_DISPATCH(ReadWords, x_n + begin, end - begin);
  });
  return result;
}

}  // namespace ddl
#endif
