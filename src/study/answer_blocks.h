// Answers as parts of a report: the same in the report of one study and in that of several.
#pragma once

#include <string>
#include <vector>

#include "report/document.h"
#include "study/answers.h"
#include "study/records.h"
#include "study/study_file.h"

namespace ddl {

// Of the metric's values and differences.
std::string unit_of(const Study& study);

// "This study is not finished: ..." where it is not, then the answers.
void add_answers(ReportDocument& document, const Study& study, const Records& records,
                 const std::vector<Answer>& answers);

// The row of an answer in a forest plot, "ddl-cc - baseline, equal FLOPs".
ForestBlock::Row forest_row(const Answer& answer);

// The section on what studies do not show.
void add_limits(ReportDocument& document);

}  // namespace ddl
