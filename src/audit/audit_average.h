// The audits of several models of one arm, averaged number by number: an audit again, which screens and reports show like
// that of one model.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace ddl {

// What several audits have in common: the mean where all have a number, their value where it is the same in all, parts
// that all have, and null elsewhere. "models" counts them. The standard errors of interventions ("se" of the
// intervention matrix) are those over models instead of over windows. One audit is its own average.
Json average_audits(const std::vector<Json>& audits);

// Models to be shown as one, under a name.
struct AuditGroup {
  std::string name;
  std::vector<Json> audits;
};

}  // namespace ddl
