// x <- x + h
#include "model/residual/rules.h"
#include "model/residual/wired_rule.h"

namespace ddl {

ResidualEntry baseline_rule() {
  return wired_rule("baseline", "additive residual, the ordinary Transformer",
                    {.expand = Expand::kIdentity, .read = Read::kIdentity, .write = WriteRule::kAdd},
                    PaperCost{1, 1, 1});
}

}  // namespace ddl
