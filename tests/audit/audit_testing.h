// A tiny model of any rule and text for it: what tests of audits share.
#pragma once

#include "audit/audit_model.h"
#include "model/oracle_model.h"

namespace ddl {

inline constexpr Index kAuditContext = 4;

inline AuditText audit_text(Index windows) {
  const Index N = windows * kAuditContext;
  return {"a test", "text", kAuditContext, tokens(N, 1), tokens(N, 2)};
}

inline Json tiny_audit(const std::string& residual, Index windows, Index batch_tokens, int threads = 1) {
  const Weights weights = scrambled_weights(model_config({.residual = residual}));
  return audit_weights(weights, nullptr, audit_text(windows), {.batch_tokens = batch_tokens}, nullptr,
                       Exec{.threads = threads});
}

}  // namespace ddl
