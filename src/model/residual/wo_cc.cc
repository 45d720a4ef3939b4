// X <- X + beta k v^T: what is left of ddl-cc without the erase term, the control the paper says is missing.
// Same parameters, same starting values.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry wo_cc_rule() {
  return wired_rule("wo-cc", "write-only control of ddl-cc: no erase term",
                    {.expand = Expand::kConv, .read = Read::kChannel, .write = WriteRule::kWriteOnly},
                    std::nullopt);
}

}  // namespace ddl
