// Results for people and for programs.
#pragma once

#include <string>

#include "core/index.h"
#include "core/record.h"
#include "eval/run_tasks.h"

namespace ddl {

// One line per task; with the paper's eight among them also their unweighted mean. Below them what was left out,
// and why.
std::string report_table(const EvalReport& report);

// The harness's keys: results[task]["acc,none"], versions, n-shot, n-samples, higher_is_better. Also
// data_hash and left_out, which are ours.
Json report_json(const EvalReport& report);

// The paper's rows for the same number of shots, next to ours, in percent. Throws UserError where
// it has none.
std::string paper_table(const EvalReport& report, const std::string& our_name);
Json paper_json(Index shots);
void check_paper_shots(Index shots);  // throws UserError where the paper has no table

}  // namespace ddl
