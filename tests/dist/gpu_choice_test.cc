#include "dist/gpu_choice.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ddl {
namespace {

const std::string kFirst = "0000:17:00.0", kSecond = "0000:65:00.0";

std::string refused(const std::vector<RankPlace>& places) {
  try {
    choose_backend(places);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(GpuChoice, NcclWhereEveryRankHasAGpuOfItsOwn) {
  EXPECT_EQ(choose_backend({{"a", kFirst}, {"a", kSecond}}), Backend::kNccl);
  // Machines of one kind have their GPUs at the same addresses.
  EXPECT_EQ(choose_backend({{"a", kFirst}, {"a", kSecond}, {"b", kFirst}, {"b", kSecond}}), Backend::kNccl);
}

TEST(GpuChoice, GlooWhereNoneHasOne) {
  EXPECT_EQ(choose_backend({{"a", ""}, {"a", ""}, {"b", ""}}), Backend::kGloo);
}

TEST(GpuChoice, MixedRanksAreRefusedByNumber) {
  EXPECT_EQ(refused({{"a", kFirst}, {"a", ""}}),
            "rank 1 computes on the CPU, the others on GPUs: all must do the same (--device)");
  EXPECT_EQ(refused({{"a", ""}, {"a", kFirst}, {"b", ""}}),
            "ranks 0, 2 compute on the CPU, the others on GPUs: all must do the same (--device)");
}

TEST(GpuChoice, RanksThatShareAGpuAreRefused) {
  const std::string message = refused({{"a", kFirst}, {"a", kSecond}, {"b", kFirst}, {"a", kSecond}});
  EXPECT_EQ(message.find("ranks 1 and 3 have the same GPU (" + kSecond + " of a)"), 0u) << message;
}

TEST(GpuChoice, RanksTakeTheGpusInOrder) {
  EXPECT_EQ(gpu_of_rank(0, 4), 0);
  EXPECT_EQ(gpu_of_rank(3, 4), 3);
  EXPECT_EQ(gpu_of_rank(3, 1), 0);  // each sees its own alone
}

}  // namespace
}  // namespace ddl
