#include "study/answer_blocks.h"

#include <limits>

#include "core/error.h"
#include "study/agenda.h"

namespace ddl {

std::string unit_of(const Study& study) {
  return study.metric == StudyMetric::kLoss ? "nats" : "share of wrong answers";
}

void add_answers(ReportDocument& document, const Study& study, const Records& records,
                 const std::vector<Answer>& answers) {
  const Agenda agenda = make_agenda(study, records);
  if (agenda.least_left > 0)
    document.add(TextBlock{fmt::format("This study is not finished: {} to {} trials are left.",
                                       agenda.least_left, agenda.most_left)});
  AnswersBlock block;
  std::vector<std::string> without_pairs;
  for (const Answer& answer : answers) {
    const std::string question = fmt::format("{} ({}{})", answer.question.text, answer.size,
                                             answer.question.primary ? ", primary" : "");
    if (answer.differences.empty()) {
      without_pairs.push_back(question);
      continue;
    }
    std::string detail;
    if (answer.decision.look > 0) {
      detail = fmt::format("{} pairs, p = {:.2g}", answer.decision.pairs, answer.decision.p);
      if (answer.question.primary && answer.ended())
        detail += fmt::format(", {:.2g} over all looks, {:.2g} by Holm over the primary questions",
                              answer.overall_p, answer.holm_p);
      detail += fmt::format("; bootstrap {:+.4f} to {:+.4f}", answer.result.bootstrap.low,
                            answer.result.bootstrap.high);
    }
    block.rows.push_back({question, answer.line(study.metric), answer.verdict, detail});
  }
  if (!block.rows.empty()) document.add(block);
  if (!without_pairs.empty())
    document.add(TextBlock{fmt::format("{} question{} no pairs yet: {}.", without_pairs.size(),
                                       without_pairs.size() == 1 ? " has" : "s have",
                                       fmt::join(without_pairs, "; "))});
}

ForestBlock::Row forest_row(const Answer& answer) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const bool looked = answer.decision.look > 0;
  return {fmt::format("{} - {}{}", answer.question.a, answer.question.b,
                      answer.question.match == StudyQuestion::Match::kFlops ? ", equal FLOPs" : ""),
          looked ? answer.decision.mean : answer.result.mean,
          looked ? answer.decision.interval.low : kNan,
          looked ? answer.decision.interval.high : kNan,
          std::vector<double>(answer.counted().begin(), answer.counted().end()),
          answer.verdict};
}

void add_limits(ReportDocument& document) {
  document.section("limits", "What this does not show");
  document.add(
      ListBlock{{"Models of this size and data of this kind. What a rule does at a hundred times the size "
                 "is not known from here.",
                 "An answer is about the best rate found on this grid, for this schedule and optimizer.",
                 "Intervals are over seeds: starting values and the order of the data. Another text is "
                 "another question.",
                 "Only primary questions are corrected for being several."}});
}

}  // namespace ddl
