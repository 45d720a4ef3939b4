#include "kernels/attention_paths.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::attention_paths_test {
namespace {

struct Shape {
  Index T, H, K;
  Index C() const { return H * K; }
  Index roundings() const { return 2 * K + 2 * T + 16; }
};

// One sequence of T tokens: its queries in blocks, its keys in pieces that lie apart from one another in rows
// wider than C, so that a wrong stride or piece shows.
template <class Act>
struct Sequence {
  Shape s;
  Index ld_k, ld_v;
  Buffer<Act> q, k, v;

  explicit Sequence(const Shape& shape)
      : s(shape),
        ld_k(s.C() + 3),
        ld_v(s.C() + 5),
        q(normals<Act>(s.T * s.C(), 1)),
        k(widened(normals<Act>(s.T * s.C(), 2), ld_k)),
        v(widened(normals<Act>(s.T * s.C(), 3), ld_v)) {}

  std::vector<double> widened(const std::vector<double>& x, Index ld) const {
    std::vector<double> wide(s.T * ld, 1e6);
    for (Index t = 0; t < s.T; ++t)
      for (Index c = 0; c < s.C(); ++c) wide[t * ld + c] = x[t * s.C() + c];
    return wide;
  }

  // `blocks`: lengths of the query blocks; `cuts`: where pieces of keys end. shift moves every query's view.
  std::vector<double> run(const std::vector<Index>& blocks, const std::vector<Index>& cuts, int threads,
                          Index shift = 0) const {
    Buffer<Act> o(s.T * s.C());
    Buffer<float> scratch(attention_paths_scratch(s.T, s.K, threads));
    std::vector<std::vector<KeyRows<Act>>> keys(blocks.size());
    std::vector<PathQueries<Act>> queries;
    Index t = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Index end = t + blocks[b];
      Index begin = 0;
      for (Index cut : cuts)
        if (cut < end - shift && cut > begin) {
          keys[b].push_back({k.data() + begin * ld_k, v.data() + begin * ld_v, ld_k, ld_v, cut - begin});
          begin = cut;
        }
      keys[b].push_back(
          {k.data() + begin * ld_k, v.data() + begin * ld_v, ld_k, ld_v, end - shift * (end > 20) - begin});
      queries.push_back({o.data() + t * s.C(), q.data() + t * s.C(), s.C(), blocks[b], keys[b]});
      t = end;
    }
    attention_paths<Act>(scratch.data(), queries, s.T, s.H, s.K, Exec{.threads = threads});
    EXPECT_TRUE(o.intact() && scratch.intact());
    return o.values();
  }
};

template <class Act>
void check_paths(double storage_epsilon) {
  for (const Shape& shape : {Shape{37, 1, 2}, {37, 2, 4}, {37, 3, 10}, {70, 2, 16}, {70, 2, 40}}) {
    const Sequence<Act> x(shape);
    std::vector<double> k(shape.T * shape.C()), v(k.size());
    for (Index t = 0; t < shape.T; ++t)
      for (Index c = 0; c < shape.C(); ++c)
        k[t * shape.C() + c] = to_float(x.k[t * x.ld_k + c]),
                          v[t * shape.C() + c] = to_float(x.v[t * x.ld_v + c]);
    const auto expected = ref::attention(x.q.values(), k, v, 1, shape.T, shape.H, shape.K);
    const std::vector<Index> singles(shape.T, 1);
    const auto one_by_one = x.run(singles, {}, 1);
    EXPECT_LT(rounding_ratio(one_by_one, expected, shape.roundings(), storage_epsilon), 1) << shape.K;
    // Any blocks, any pieces, any threads: the same bits.
    std::vector<Index> blocks = {16, 3, 1, 2, 7, 5};
    for (Index left = shape.T - 34; left > 0; left -= 16) blocks.push_back(std::min<Index>(16, left));
    for (const std::vector<Index>& cuts : {std::vector<Index>{}, {1}, {5, 6, 30}, {16, 32}, {33, 34, 35}})
      for (int threads : {1, 3}) EXPECT_EQ(x.run(blocks, cuts, threads), one_by_one) << threads;
    // Mutant: later blocks that miss their last key, so that each query misses itself.
    EXPECT_GT(rounding_ratio(x.run(blocks, {}, 1, 1), expected, shape.roundings(), storage_epsilon), 1);
  }
}

TEST(AttentionPaths, F32) { check_paths<float>(0); }
TEST(AttentionPaths, Bf16) { check_paths<bf16>(kBf16Epsilon); }

}  // namespace
}  // namespace ddl::attention_paths_test
