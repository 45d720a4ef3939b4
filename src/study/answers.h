// The answer to every question at every size, from the records there are.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "study/paired.h"
#include "study/records.h"
#include "study/sequential.h"
#include "study/study_file.h"

namespace ddl {

struct Answer {
  std::string size;
  Question question;
  std::vector<double> differences;  // a minus b, by seed from the first on; negative: a is better
  SequentialResult decision;        // by the looks that are complete
  PairedResult result;              // of all pairs there are, bootstrap included
  double overall_p = 1;             // of a primary question, over all looks
  double holm_p = 1;                // that, corrected over the primary questions of its size

  // "ddl-cc - wo-cc: -0.0213 nats [-0.0301, -0.0125], 8 pairs: better"
  std::string line(const std::string& metric) const;
};

// The sizes at which a question is asked: those with both its arms.
bool is_asked(const Question& question, const StudySize& size);

// In the order of sizes and questions.
std::vector<Answer> answer_questions(const Study& study, const Records& records);
// One of them, without correction and bootstrap, which take time: for the live line.
Answer answer_question(const Study& study, const Records& records, const StudySize& size,
                       const Question& question);

Json answers_json(const std::vector<Answer>& answers);

}  // namespace ddl
