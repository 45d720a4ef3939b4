// x <- x + beta (v - k.x) k, with k = h / |h|: the rewrite alone, on the ordinary stream.
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry ddl_dv1_rule() {
  return wired_rule("ddl-dv1", "delta rewrite of the ordinary stream (d_v = 1)",
                    {.expand = Expand::kIdentity, .read = Read::kIdentity, .write = WriteRule::kDelta},
                    PaperCost{0.88, 0.88, 1.00});
}

}  // namespace ddl
