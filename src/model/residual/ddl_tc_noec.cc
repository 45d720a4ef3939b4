// X <- X + beta k (v^T - k^T X), read by a short convolution over tokens; X_0 = x 1^T.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry ddl_tc_noec_rule() {
  return wired_rule("ddl-tc-noec", "expanded state, token compressor, embedding repeated over channels",
                    {.expand = Expand::kRepeat, .read = Read::kToken, .write = WriteRule::kDelta},
                    PaperCost{0.45, 0.38, 1.31});
}

}  // namespace ddl
