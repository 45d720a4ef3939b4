// What a report is made of, small: an audit, and the text of a study.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/audit_model.h"
#include "serve/serve_testing.h"
#include "study/study_testing.h"

namespace ddl {

inline std::string small_audit() {
  std::vector<std::int32_t> tokens, targets;
  for (std::int32_t i = 0; i < 16; ++i) tokens.push_back(i), targets.push_back(i + 1);
  const AuditText text{"a test", "text", 8, tokens, targets};
  return to_line(audit_weights(small_weights(), nullptr, text, {.batch_tokens = 8}, nullptr, Exec{}));
}

}  // namespace ddl
