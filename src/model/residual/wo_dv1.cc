// x <- x + beta v k: what is left of ddl-dv1 without the erase term. Same parameters, same starting values.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry wo_dv1_rule() {
  return wired_rule("wo-dv1", "write-only control of ddl-dv1: no erase term",
                    {.expand = Expand::kIdentity, .read = Read::kIdentity, .write = WriteRule::kWriteOnly},
                    std::nullopt);
}

}  // namespace ddl
