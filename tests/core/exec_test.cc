// Loops over threads.
#include "core/exec.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "core/error.h"

namespace ddl {
namespace {

TEST(Parallel, VisitsEachIndexOnceForAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    std::vector<std::atomic<int>> hits(1000);
    parallel_chunks(1000, 7, Exec{.threads = threads}, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) ++hits[i];
    });
    for (auto& h : hits) ASSERT_EQ(h, 1);
  }
  parallel_for(0, Exec{.threads = 4}, [](Index) { FAIL(); });
}

TEST(Parallel, ExceptionsReachTheCaller) {
  EXPECT_THROW(parallel_for(100, Exec{.threads = 4},
                            [](Index i) {
                              if (i == 50) throw UserError("stop");
                            }),
               UserError);
}

}  // namespace
}  // namespace ddl
