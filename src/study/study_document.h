// The report of a study: answers, forest plot, curves, sensitivity to the rate, scaling, costs, how to repeat it, and what
// it does not show. From the records alone, at any time.
#pragma once

#include <string>
#include <vector>

#include "report/document.h"
#include "study/records.h"
#include "study/study_file.h"
#include "study/study_run.h"

namespace ddl {

// `problems`: what was left out of the records, for the reader to know.
ReportDocument study_document(const Study& study, const Records& records,
                              const std::vector<std::string>& problems);

// The records of a study's folder; `problems` gets what was left out of them, and what its runs met.
Records read_records(const StudyFolder& folder, const Study& study, std::vector<std::string>& problems);

// Of a study's folder: its records, what was left out of them, and the audits that are kept with it.
bool is_study_folder(const std::string& path);
ReportDocument read_study_document(const std::string& path);

}  // namespace ddl
