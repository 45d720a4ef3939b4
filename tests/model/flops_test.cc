// FLOPs against a count by hand.
#include <gtest/gtest.h>

#include <set>

#include "model/oracle_model.h"
#include "model/plan.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

const std::vector<std::string> kCountedRules = rule_names();  // before a test registers another

// Width C = 8, D = 4 channels (D C = 32), kernels of 4 taps, one block (2 sublayers, 3 reads).
ModelConfig counted(const std::string& residual) {
  ModelConfig m;
  m.layers = 1, m.width = 8, m.heads = 2, m.mlp = 7, m.vocab = 11, m.context = 3,
  m.precision = Precision::kF32;
  m.use_residual(residual);
  for (const char* key : {"model.channels", "model.state_kernel", "model.embed_kernel"})
    set_if_known(m, key, "4");
  return m;
}

TEST(Flops, OfProductsFollowFromTheWeights) {
  const ModelPlan plan = plan_model(counted("baseline"), {1, 3});
  double weights = 0;
  for (const Param& p : plan.table.list())
    if (p.hidden_matrix) weights += static_cast<double>(p.count);
  EXPECT_EQ(plan.forward.linear, 2 * weights);       // a multiply-add per weight and token
  EXPECT_EQ(plan.backward.linear, 2 * 2 * weights);  // for the input and for the weight
  EXPECT_EQ(plan.forward.head, 2 * 11 * 8);
  EXPECT_EQ(plan.backward.head, 2 * 2 * 11 * 8);
  // Three tokens see 1 + 2 + 3 pairs, two per token; a pair costs a product of 8 features for the score and one
  // for the output; backward has five such products.
  EXPECT_EQ(plan.forward.attention, 2 * (2 * 8 + 2 * 8));
  EXPECT_EQ(plan.backward.attention, 2 * 5 * 2 * 8);
}

// Forward. A norm: square, sum, scale, weight = 4 C. A read: one multiply-add per element of the state (CC);
// per tap and once more for the channels (TC). A write: |h|^2 (2 C), the readout and the update (2 D C each;
// the readout is the delta rule's alone). The gate 2 C, the values 2 D C. EC: 4 taps over D C. Backward. Norm
// 9 C. CC: x_in again, dX, dw = 6 D C. TC: each tap three times, the channels twice. A delta write: walk
// back, k.g, two terms of dk, dX = 10 D C; write-only without two of them. Branches: twice forward.
//
// decay-x0: two multiply-adds; backward da, db, dx0 (2 C each) and a g. highway: c 2, u 2, sigmoid, h - x, the
// update 2, the mean gate; backward c, u, gate 5, g (h - x) 2, du 3, dw 2, db, dc, dh, (1 - gate) g 2, a norm of its
// own 10. attnres: rho of a new source 2 C; two reads, of 2 and 3 sources (2 and 2 in one block), each source scored
// and mixed (4 C); backward x_in again, two products, dV, dq = 14 C a source; a block's second output is added and
// taken out.
// Mixed streams: a read 2 D C; a write 2 (D + 1) D C; a look 2 C per stream and row, and the squares 2 D C; hc has 6
// rows, mhc 32. Backward: x_in again and dX 4 D C, the read's numbers 2 D C (not of the readout), a write's dX, dmix,
// dh and dwrite twice forward, a look's dX and dw twice its dots and the squares' path 2 D C; the repetition D C.
TEST(Flops, OfEveryRuleAreAsCountedByHand) {
  struct Row {
    const char* residual;
    double forward, backward;
  };
  std::set<std::string> uncounted(kCountedRules.begin(), kCountedRules.end());
  for (const Row& row :
       {Row{"baseline", 3 * 32 + 2 * 8, 3 * (8 + 72) + 2 * 8},
        {"ddl-dv1", 3 * 32 + 2 * (48 + 32), 3 * (8 + 72) + 2 * (96 + 64)},
        {"wo-dv1", 3 * 32 + 2 * (32 + 32), 3 * (8 + 72) + 2 * (64 + 64)},
        {"ddl-cc-noec", 3 * (64 + 32) + 2 * (144 + 80), 32 + 3 * (192 + 72) + 2 * (336 + 160)},
        {"ddl-cc", 256 + 3 * (64 + 32) + 2 * (144 + 80), 512 + 3 * (192 + 72) + 2 * (336 + 160)},
        {"wo-cc", 256 + 3 * (64 + 32) + 2 * (80 + 80), 512 + 3 * (192 + 72) + 2 * (208 + 160)},
        {"ddl-tc-noec", 3 * (320 + 32) + 2 * (144 + 80), 32 + 3 * (896 + 72) + 2 * (336 + 160)},
        {"ddl-tc", 256 + 3 * (320 + 32) + 2 * (144 + 80), 512 + 3 * (896 + 72) + 2 * (336 + 160)},
        {"wo-tc", 256 + 3 * (320 + 32) + 2 * (80 + 80), 512 + 3 * (896 + 72) + 2 * (208 + 160)},
        // A second gate: 2 C forward, 4 C backward.
        {"ddl-ew-dv1", 3 * 32 + 2 * (48 + 48), 3 * (8 + 72) + 2 * (96 + 96)},
        {"ddl-ew-cc", 256 + 3 * (64 + 32) + 2 * (144 + 96), 512 + 3 * (192 + 72) + 2 * (336 + 192)},
        // |h|^2 and the update; nothing is steered by the token.
        {"norm-write", 3 * 32 + 2 * 32, 3 * (8 + 72) + 2 * 64},
        // The update alone, and D rows of tanh.
        {"ihc", 256 + 3 * (64 + 32) + 2 * (64 + 64), 512 + 3 * (192 + 72) + 2 * (192 + 128)},
        {"decay-x0", 3 * 32 + 2 * 32, 3 * (8 + 72) + 2 * 56},
        {"highway", 3 * 32 + 2 * 72, 3 * (8 + 72) + 2 * (17 * 8 + 80)},
        {"attnres", 3 * (32 + 16) + 5 * 32, 3 * 72 + 8 + 5 * 112},
        {"attnres-block", 3 * (32 + 16) + 4 * 32 + 8, 3 * 72 + 8 + 4 * 112 + 8},
        {"hc-static", 3 * (64 + 32) + 2 * 320, 32 + 3 * (128 + 72) + 2 * (64 + 640)},
        {"hc", 3 * (64 + 32) + 2 * (320 + 384 + 64), 32 + 3 * (128 + 72) + 2 * (64 + 640 + 768 + 64)},
        {"mhc", 3 * (64 + 32) + 2 * (320 + 2048 + 64), 32 + 3 * (128 + 72) + 2 * (64 + 640 + 4096 + 64)}}) {
    const ModelPlan plan = plan_model(counted(row.residual), {1, 3});
    EXPECT_EQ(plan.forward.residual, row.forward) << row.residual;
    EXPECT_EQ(plan.backward.residual, row.backward) << row.residual;
    uncounted.erase(row.residual);
  }
  EXPECT_TRUE(uncounted.empty()) << "add a row with your count for "
                                 << fmt::format("{}", fmt::join(uncounted, ", "));
}

TEST(Flops, OfRecomputationStandApart) {
  ModelConfig m = counted("ddl-cc");
  const double none = plan_model(m, {1, 3}).backward.total();
  const double gate_up = 2 * 2 * 7 * 8, qkv = 2 * 3 * 8 * 8;
  for (const auto& [recompute, again] : {std::pair{Recompute::kNone, 0.0},
                                         {Recompute::kMlp, gate_up},
                                         {Recompute::kBlock, gate_up + qkv + 64}}) {
    m.recompute = recompute;
    const ModelPlan plan = plan_model(m, {1, 3});
    EXPECT_EQ(plan.recomputed, again) << name_of(recompute);
    EXPECT_EQ(plan.backward.total(), none) << name_of(recompute);
  }
}

}  // namespace
}  // namespace ddl
