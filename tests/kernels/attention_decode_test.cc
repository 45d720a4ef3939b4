#include "kernels/attention_decode.h"

#include "kernels/attention.h"
#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::attention_decode_test {
namespace {

struct Shape {
  Index T, H, K;
  Index C() const { return H * K; }
  Index roundings() const { return 2 * K + 2 * T + 16; }
};

// Keys and values of two sequences, rows wider than C so that a wrong stride shows.
template <class Act>
void check_decode(double storage_epsilon) {
  for (const Shape& s : {Shape{1, 1, 2}, {5, 2, 4}, {9, 3, 10}, {70, 2, 16}}) {
    const Index n = s.T * s.C(), ld = s.C() + 3;
    const auto q = normals<Act>(n, 1), k = normals<Act>(n, 2), v = normals<Act>(n, 3);
    const auto expected = ref::attention(q, k, v, 1, s.T, s.H, s.K);
    std::vector<double> k_wide(s.T * ld), v_wide(s.T * ld);
    for (Index t = 0; t < s.T; ++t)
      for (Index c = 0; c < s.C(); ++c)
        k_wide[t * ld + c] = k[t * s.C() + c], v_wide[t * ld + c] = v[t * s.C() + c];
    const Buffer<Act> qb(q), kb(k_wide), vb(v_wide);
    std::vector<double> one_thread;
    for (int threads : {1, 3}) {
      Buffer<Act> o(n);
      Buffer<float> scratch(attention_decode_scratch(s.T, s.T, s.H, s.K));
      std::vector<CachedQuery<Act>> queries;  // every position at once: sequences of different lengths
      for (Index t = 0; t < s.T; ++t)
        queries.push_back({o.data() + t * s.C(), qb.data() + t * s.C(), kb.data(), vb.data(), ld, t + 1});
      attention_decode<Act>(scratch.data(), queries.data(), s.T, s.H, s.K, Exec{.threads = threads});
      EXPECT_LT(rounding_ratio(o.values(), expected, s.roundings(), storage_epsilon), 1) << s.T;
      EXPECT_TRUE(o.intact() && scratch.intact());
      if (threads == 1) one_thread = o.values();
      EXPECT_EQ(o.values(), one_thread);
      if (s.T < 2) continue;
      // Mutant: a query that misses itself.
      for (Index t = 1; t < s.T; ++t) queries[t].keys = t;
      attention_decode<Act>(scratch.data(), queries.data(), s.T, s.H, s.K, Exec{});
      EXPECT_GT(rounding_ratio(o.values(), expected, s.roundings(), storage_epsilon), 1);
    }
  }
}

TEST(AttentionDecode, F32) { check_decode<float>(0); }
TEST(AttentionDecode, Bf16) { check_decode<bf16>(kBf16Epsilon); }

// The blocked kernel with a past, at and off the boundaries of its blocks of 64 queries and 256 keys.
TEST(AttentionExtend, AnyPastGivesTheSameAsTheWholeSequence) {
  const Shape s{330, 2, 8};
  const Index C = s.C(), n = s.T * C;
  const auto q = normals(n, 1), k = normals(n, 2), v = normals(n, 3);
  const auto whole = ref::attention(q, k, v, 1, s.T, s.H, s.K);
  const Buffer<float> qb(q), kb(k), vb(v);
  for (Index past : {0, 1, 10, 63, 64, 200, 255, 256, 257, 320, 329})
    for (int threads : {1, 2}) {
      const Index T = s.T - past;
      const std::vector<double> expected(whole.begin() + past * C, whole.end());
      Buffer<float> o(T * C), lse(T * s.H);
      std::vector<std::byte> bytes(attention_scratch_bytes(T, s.K, threads) + 64);
      std::byte* scratch = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<Index>(bytes.data()), 64));
      attention_extend<float>({o.data(), C}, lse.data(), scratch, {qb.data() + past * C, C}, {kb.data(), C},
                              {vb.data(), C}, past, T, s.H, s.K, Exec{.threads = threads});
      EXPECT_LT(rounding_ratio(o.values(), expected, s.roundings()), 1) << past;
      EXPECT_TRUE(o.intact() && lse.intact());
      if (past == 0) continue;
      attention_extend<float>({o.data(), C}, lse.data(), scratch, {qb.data() + past * C, C}, {kb.data(), C},
                              {vb.data(), C}, past - 1, T, s.H, s.K, Exec{.threads = threads});
      EXPECT_GT(rounding_ratio(o.values(), expected, s.roundings()), 1) << "one key too few";
    }
}

}  // namespace
}  // namespace ddl::attention_decode_test
