// Audits as sections of a report: models side by side over depth, then the heat maps of each.
#pragma once

#include <string>
#include <vector>

#include "audit/audit_average.h"
#include "core/json.h"
#include "report/document.h"

namespace ddl {

// Whether a text claims to be what `ddl audit --out` wrote.
bool is_audit(const std::string& text);
// Reads it. Throws UserError where it is no such file.
Json parse_audit(const std::string& text, const std::string& source_name);

// Audits, each as audit_model() made it or parse_audit() read it, as a group of their own with a name that tells them
// apart.
std::vector<AuditGroup> name_audits(const std::vector<Json>& audits);

// Adds sections for groups of audits, each shown by its average. Throws UserError where a part is not of the form that
// docs/audit.md describes.
void add_audits(ReportDocument& document, const std::vector<AuditGroup>& groups);

// A document of nothing else.
ReportDocument audits_document(const std::vector<Json>& audits);

}  // namespace ddl
