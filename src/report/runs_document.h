// The report of runs: what they are, where they differ, their curves, how to repeat them, and what they do not show.
#pragma once

#include <string>
#include <vector>

#include "report/document.h"
#include "report/run_records.h"

namespace ddl {

// `title`: "" for one made from the runs. Throws UserError where no run has a record.
ReportDocument runs_document(const std::vector<RunRecords>& runs, const std::string& title = "");

}  // namespace ddl
