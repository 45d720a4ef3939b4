// The report of several studies: all differences in one picture, then the answers of each. What is behind them is in each
// study's own report (study_document.h).
#pragma once

#include <string>
#include <vector>

#include "report/document.h"

namespace ddl {

// Folders of studies, in the order in which they are shown.
ReportDocument read_studies_document(const std::vector<std::string>& folders);

}  // namespace ddl
