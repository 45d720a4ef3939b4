// The answer to every question at every size, from the records there are.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/paired.h"
#include "study/records.h"
#include "study/sequential.h"
#include "study/study_file.h"

namespace ddl {

// The chance of any false answer to the primary questions of a size
inline constexpr double kFamilyLevel = 0.05;

struct Answer {
  std::string size;
  StudyQuestion question;
  std::vector<double> differences;  // a minus b, by seed from the first on; negative: a is better
  SequentialResult decision;        // by the looks that are complete
  PairedResult result;              // of the pairs that decided, or of all there are before the first look
  double overall_p = 1;             // of a primary question, over all looks
  double holm_p = 1;                // that, corrected over the primary questions of its size
  // The decision; a primary question needs holm_p <= kFamilyLevel, too
  Verdict verdict = Verdict::kUndecided;
  bool lost_by_holm = false;

  bool ended() const { return decision.look > 0 && decision.next_pairs == 0; }
  std::span<const double> counted() const {
    const std::span<const double> all(differences);
    return decision.look > 0 ? all.first(static_cast<std::size_t>(decision.pairs)) : all;
  }

  // "XS, ddl-cc - wo-cc: -0.0213 nats [-0.0301, -0.0125] (98.6%) after 8 pairs: better"
  std::string line(StudyMetric metric) const;
};

// In the order of sizes and questions.
std::vector<Answer> answer_questions(const Study& study, const Records& records);
// One of them, without correction and bootstrap, which take time: for the live line.
Answer answer_question(const Study& study, const Records& records, const StudySize& size,
                       const StudyQuestion& question);

Json answers_json(const std::vector<Answer>& answers);

}  // namespace ddl
