// X <- X + beta k v^T: what is left of ddl-tc without the erase term. Same parameters, same starting values.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry wo_tc_rule() {
  return wired_rule("wo-tc", "write-only control of ddl-tc: no erase term",
                    {.expand = Expand::kConv, .read = Read::kToken, .write = WriteRule::kWriteOnly},
                    std::nullopt);
}

}  // namespace ddl
