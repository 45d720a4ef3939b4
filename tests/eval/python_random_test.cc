// Values printed by CPython (random.Random(seed)), and the harness's one-shot draws for all nine tasks.
#include "eval/python_random.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

using Indices = std::vector<Index>;

TEST(PythonRandom, FirstWordsOfSeed1234) {
  PythonRandom random(1234);
  for (const std::uint32_t expected : {4150886329u, 3342196574u, 1892932127u, 501869158u, 32175636u})
    EXPECT_EQ(random.bits32(), expected);
}

TEST(PythonRandom, FirstUniformOfSeed1234) { EXPECT_EQ(PythonRandom(1234).uniform(), 0.9664535356921388); }

// Far enough to refill the state several times; sizes on both sides of where sample() changes its method.
TEST(PythonRandom, LongStreamsOfOtherSeeds) {
  PythonRandom random(0);
  for (const std::uint32_t expected : {3626764237u, 1654615998u, 3255389356u})
    EXPECT_EQ(random.bits32(), expected);
  for (int i = 0; i < 2000; ++i) random.bits32();
  EXPECT_EQ(random.bits32(), 2846861434u);
  EXPECT_EQ(random.uniform(), 0.7786177341461099);
  EXPECT_EQ(random.sample(1000, 4), (Indices{765, 626, 192, 71}));
  EXPECT_EQ(random.sample(21, 5), (Indices{17, 13, 8, 5, 16}));
  EXPECT_EQ(random.sample(22, 5), (Indices{5, 2, 21, 20, 18}));
  EXPECT_EQ(random.sample(85, 6), (Indices{14, 64, 80, 69, 77, 49}));
  EXPECT_EQ(random.sample(86, 6), (Indices{55, 34, 39, 36, 1, 54}));
  EXPECT_EQ(random.sample(3, 3), (Indices{2, 1, 0}));
  EXPECT_EQ(random.sample(200, 21), (Indices{137, 134, 141, 81,  87,  48, 180, 110, 36, 1,  192,
                                             130, 39,  169, 179, 144, 98, 92,  118, 9,  143}));
  EXPECT_EQ(random.sample(300, 22), (Indices{210, 116, 8,   185, 270, 81, 99,  181, 254, 9,   127,
                                             292, 123, 140, 94,  215, 39, 293, 229, 121, 230, 260}));
  EXPECT_EQ(random.sample(7, 0), Indices{});
}

struct Draws {
  const char* task;
  Index pool, drawn, documents;
  Indices first, last;
  Index weighted_sum;  // of (document + 1) times the first index drawn for it
};

TEST(PythonRandom, OneShotDrawsOfTheNineTasks) {
  const std::vector<Draws> tasks = {
      {"arc_challenge", 1119, 1, 1172, {902, 239, 15, 185, 71, 171, 201, 726}, {483, 51, 261}, 395795771},
      {"arc_easy", 2251, 1, 2376, {1805, 478, 30, 371, 143, 343, 403, 1452}, {302, 87, 672}, 3212448491},
      {"hellaswag",
       39905,
       2,
       10042,
       {28883, 490, 38156, 5500, 23241, 1142, 1038, 31735},
       {1467, 4741, 4156},
       1005074726274},
      {"openbookqa", 4957, 1, 500, {3610, 957, 61, 742, 4769, 286, 687, 806}, {1291, 282, 1905}, 335033985},
      {"piqa",
       16113,
       2,
       1838,
       {15834, 7220, 122, 14925, 15388, 9539, 11002, 1375},
       {11581, 7315, 8915},
       13767135384},
      {"sciq",
       11679,
       1,
       1000,
       {7220, 1914, 122, 1485, 9539, 572, 11002, 11355},
       {5973, 6997, 4857},
       3090506941},
      {"social_iqa",
       33410,
       2,
       1954,
       {28883, 490, 2288, 6450, 15519, 2019, 22681, 30379},
       {26470, 22610, 16988},
       31879049416},
      {"winogrande",
       40398,
       2,
       1267,
       {28883, 490, 38156, 5500, 23241, 1142, 1038, 31735},
       {5178, 6038, 10217},
       16435068628},
      {"lambada_openai",
       5153,
       1,
       5153,
       {3610, 957, 61, 742, 4769, 286, 687, 806},
       {422, 500, 1390},
       34258700133},
  };
  for (const Draws& task : tasks) {
    SCOPED_TRACE(task.task);
    PythonRandom random(1234);
    Indices firsts;
    Index sum = 0;
    for (Index document = 0; document < task.documents; ++document) {
      firsts.push_back(random.sample(task.pool, task.drawn).front());
      sum += (document + 1) * firsts.back();
    }
    EXPECT_EQ(Indices(firsts.begin(), firsts.begin() + 8), task.first);
    EXPECT_EQ(Indices(firsts.end() - 3, firsts.end()), task.last);
    EXPECT_EQ(sum, task.weighted_sum);
  }
}

}  // namespace
}  // namespace ddl
