// The built-in rules, one per file.
#pragma once

#include "model/residual/residual.h"

namespace ddl {

ResidualEntry baseline_rule();
ResidualEntry ddl_dv1_rule();
ResidualEntry ddl_tc_noec_rule();
ResidualEntry ddl_cc_noec_rule();
ResidualEntry ddl_tc_rule();
ResidualEntry ddl_cc_rule();
ResidualEntry wo_dv1_rule();
ResidualEntry wo_tc_rule();
ResidualEntry wo_cc_rule();

}  // namespace ddl
