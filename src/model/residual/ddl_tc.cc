// X <- X + beta k (v^T - k^T X), read by a short convolution over tokens; X_0 from the embedding convolution.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry ddl_tc_rule() {
  return wired_rule("ddl-tc", "expanded state, token compressor, embedding convolution",
                    {.expand = Expand::kConv, .read = Read::kToken, .write = WriteRule::kDelta},
                    PaperCost{0.52, 0.47, 1.15});
}

}  // namespace ddl
