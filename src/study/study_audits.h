// The audits of a study's models: made by ./ddl audit STUDY, kept in the study's folder, shown by arm.
#pragma once

#include <vector>

#include "audit/audit_average.h"
#include "audit/audit_model.h"
#include "core/exec.h"
#include "study/records.h"
#include "study/study_file.h"
#include "study/study_run.h"

namespace ddl {

// The audits in the folder. Those of one arm's confirmed models, which differ in their seeds alone, are a
// group; so are those of one arm and rate in the search for the rate; an audit of any other model is a group
// of its own.
std::vector<AuditGroup> read_study_audits(const StudyFolder& folder, const Study& study,
                                          const Records& records);

struct StudyAuditCounts {
  Index made = 0, there = 0;  // now, and before
  Index missing = 0;          // models whose runs are not in the folder: trained elsewhere, or removed
};
// Audits every confirmed model, at its largest budget, that has no audit yet. `request` says on what. Each audit is kept
// as it is finished, so a call that was interrupted can be repeated.
StudyAuditCounts audit_study(const StudyFolder& folder, const Study& study, const Records& records,
                             AuditRequest request, const Exec& ex);

}  // namespace ddl
