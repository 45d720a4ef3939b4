// X <- X + beta k (v^T - k^T X), read by mixing the token's own channels; X_0 from the embedding convolution.
// The paper's default, "DDL" without a suffix.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry ddl_cc_rule() {
  return wired_rule("ddl-cc", "expanded state, channel compressor, embedding convolution: the paper's DDL",
                    {.expand = Expand::kConv, .read = Read::kChannel, .write = WriteRule::kDelta},
                    PaperCost{0.77, 0.67, 1.05});
}

}  // namespace ddl
