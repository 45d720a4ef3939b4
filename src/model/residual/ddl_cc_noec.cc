// X <- X + beta k (v^T - k^T X), read by mixing the token's own channels; X_0 = x 1^T.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry ddl_cc_noec_rule() {
  return wired_rule("ddl-cc-noec", "expanded state, channel compressor, embedding repeated over channels",
                    {.expand = Expand::kRepeat, .read = Read::kChannel, .write = WriteRule::kDelta},
                    PaperCost{0.68, 0.57, 1.18});
}

}  // namespace ddl
