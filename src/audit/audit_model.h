// An audit of a trained model: what its residual stream does on real text. docs/audit.md says what each number means.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "audit/audit_average.h"
#include "audit/audit_text.h"
#include "core/exec.h"
#include "core/json.h"
#include "data/tokenizer.h"
#include "model/weights.h"

namespace ddl {

inline constexpr const char* kAuditFormat = "ddl-audit";
inline constexpr Index kAuditVersion = 1;

struct AuditSizes {
  Index batch_tokens = 2048;         // computed at a time
  Index lens_tokens = 8192;          // at most; the head at every depth is expensive
  Index intervention_tokens = 4096;  // at most; a pass for every sublayer and change
};

// One object, of the form that docs/audit.md describes. The tokenizer (for the starts of words) may be null, and
// so may `progress`.
Json audit_weights(const Weights& weights, const Tokenizer* tokenizer, const AuditText& text,
                   const AuditSizes& sizes, std::FILE* progress, const Exec& ex);

struct AuditRequest {
  std::string model;       // a run, a checkpoint, or a model's folder
  std::string data, text;  // at most one of them; none: the data that the run was trained on
  std::string tokenizer;   // "": the model's
  Index tokens = 65536;    // at most
  std::FILE* progress = nullptr;
};
Json audit_model(const AuditRequest& request, const Exec& ex);

// The most important numbers of each group's average in one screen, and what they mean.
std::string audit_screen(const std::vector<AuditGroup>& groups);

}  // namespace ddl
