#include "kernels/read_words.h"

#include "core/rng.h"
#include "kernels/kernel_test.h"

namespace ddl::read_words_test {
namespace {

TEST(ReadWords, ReadsEveryWordOnce) {
  const Random random(1, "words");
  for (Index n : {0, 1, 5, 6, 7, 47, 48, 97, 300, 72000, 72001, 150000}) {
    std::vector<std::uint32_t> x(static_cast<std::size_t>(n));
    std::uint32_t expected = 0;
    for (Index i = 0; i < n; ++i)
      expected ^= x[i] = static_cast<std::uint32_t>(random.bits(static_cast<std::uint64_t>(i)));
    for (int threads : {1, 3}) EXPECT_EQ(read_words(x.data(), n, Exec{.threads = threads}), expected) << n;
    if (n == 0) continue;
    x[n - 1] ^= 1;  // also the last
    EXPECT_NE(read_words(x.data(), n, Exec{}), expected) << n;
  }
}

}  // namespace
}  // namespace ddl::read_words_test
