#include "study/answers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/error.h"
#include "study/holm.h"
#include "study/tuning.h"

namespace ddl {
namespace {

// The metric at a given compute between the budgets: the parabola in the logarithm of the compute through the three
// endpoints nearest to it (a line where there are two). A line alone would be too high, since losses fall ever more slowly.
double metric_at_flops(const TrialRecord& record, double flops, StudyMetric metric) {
  const std::vector<Endpoint>& ends = record.endpoints;
  if (flops < ends.front().flops || flops > ends.back().flops)
    return std::numeric_limits<double>::quiet_NaN();
  const auto above =
      std::find_if(ends.begin(), ends.end(), [&](const Endpoint& end) { return end.flops >= flops; });
  const auto last = std::max<Index>(above - ends.begin(), std::min<Index>(2, std::ssize(ends) - 1));
  const auto first = std::max<Index>(0, last - 2);
  double value = 0;  // Lagrange's form
  for (Index i = first; i <= last; ++i) {
    double weight = 1;
    for (Index j = first; j <= last; ++j)
      if (j != i) weight *= std::log(flops / ends[j].flops) / std::log(ends[i].flops / ends[j].flops);
    value += weight * ends[i].metric(metric);
  }
  return value;
}

// a minus b: at the largest budget of tokens, or at the compute that both have reached.
double difference(const TrialRecord& a, const TrialRecord& b, const StudyQuestion& question,
                  StudyMetric metric) {
  if (question.match == StudyQuestion::Match::kTokens || a.diverged || b.diverged || a.endpoints.empty() ||
      b.endpoints.empty())
    return a.result(metric) - b.result(metric);
  const double flops = std::min(a.endpoints.back().flops, b.endpoints.back().flops);
  return metric_at_flops(a, flops, metric) - metric_at_flops(b, flops, metric);
}

std::vector<double> paired_differences(const Study& study, const Records& records, const StudySize& size,
                                       const StudyQuestion& question) {
  const Tuning a = tune(study, size, study.arm(question.a), records);
  const Tuning b = tune(study, size, study.arm(question.b), records);
  std::vector<double> differences;
  if (!a.settled || !b.settled) return differences;
  for (Index i = 0; i < study.most_pairs(); ++i) {
    const Index seed = study.first_seed + i;
    const TrialRecord* of_a = records.find({size.name, question.a, Stage::kConfirm, a.rate, a.scale, seed});
    const TrialRecord* of_b = records.find({size.name, question.b, Stage::kConfirm, b.rate, b.scale, seed});
    if (!of_a || !of_b) break;
    differences.push_back(difference(*of_a, *of_b, question, study.metric));
  }
  return differences;
}

}  // namespace

Answer answer_question(const Study& study, const Records& records, const StudySize& size,
                       const StudyQuestion& question) {
  Answer answer;
  answer.size = size.name, answer.question = question;
  answer.differences = paired_differences(study, records, size, question);
  answer.decision = decide(answer.differences, study.looks, study.margin);
  answer.verdict = answer.decision.verdict;
  answer.result = paired_t(answer.counted());
  return answer;
}

std::vector<Answer> answer_questions(const Study& study, const Records& records) {
  std::vector<Answer> answers;
  for (const StudySize& size : study.sizes) {
    std::vector<std::size_t> primary;
    std::vector<double> p;
    for (const StudyQuestion& question : study.questions) {
      if (!is_asked(question, size)) continue;
      Answer answer = answer_question(study, records, size, question);
      answer.result = paired_result(answer.counted());
      if (question.primary) {
        // While a question is open, no p-value holds over its looks.
        if (answer.ended()) answer.overall_p = overall_p(answer.decision, study.looks);
        primary.push_back(answers.size()), p.push_back(answer.overall_p);
      }
      answers.push_back(std::move(answer));
    }
    const std::vector<double> adjusted = holm_adjusted(p);
    for (std::size_t i = 0; i < primary.size(); ++i) {
      Answer& answer = answers[primary[i]];
      answer.holm_p = adjusted[i];
      const bool differs = answer.verdict == Verdict::kBetter || answer.verdict == Verdict::kWorse;
      if (differs && answer.holm_p > kFamilyLevel)
        answer.verdict = Verdict::kUndecided, answer.lost_by_holm = true;
    }
  }
  return answers;
}

std::string Answer::line(StudyMetric metric) const {
  const std::string pair =
      fmt::format("{}, {} - {}{}", size, question.a, question.b,
                  question.match == StudyQuestion::Match::kFlops ? " at equal FLOPs" : "");
  const Index pairs = std::ssize(differences);
  if (pairs < 2) return fmt::format("{}: {} pair{} so far", pair, pairs, pairs == 1 ? "" : "s");
  const char* unit = metric == StudyMetric::kLoss ? " nats" : "";
  if (decision.look == 0)
    return fmt::format("{}: {:+.4f}{} after {} pairs, first look at {}", pair, result.mean, unit, pairs,
                       decision.next_pairs);
  if (result.non_finite > 0)
    return fmt::format("{}: undecided, since in {} of {} pairs a run diverged", pair, result.non_finite,
                       result.n);
  return fmt::format(
      "{}: {:+.4f}{} [{:+.4f}, {:+.4f}] ({:.6g}%) after {} pairs: {}{}", pair, decision.mean, unit,
      decision.interval.low, decision.interval.high, 100 * decision.level, decision.pairs,
      verdict_name(verdict),
      lost_by_holm ? fmt::format(" ({} before Holm's correction)", verdict_name(decision.verdict)) : "");
}

Json answers_json(const std::vector<Answer>& answers) {
  Json all = Json::array();
  for (const Answer& answer : answers) {
    Json json{{"size", answer.size}, {"question", answer.question.text}};
    json["arm"] = answer.question.a, json["against"] = answer.question.b;
    json["match"] = answer.question.match == StudyQuestion::Match::kFlops ? "flops" : "tokens";
    json["primary"] = answer.question.primary;
    json["verdict"] = verdict_name(answer.verdict);
    json["pairs"] = answer.differences.size();
    json["pairs_decided_on"] = answer.decision.pairs;
    json["mean"] = answer.decision.look > 0 ? answer.decision.mean : answer.result.mean;
    json["interval"] = Json::array({answer.decision.interval.low, answer.decision.interval.high});
    json["level"] = answer.decision.look > 0 ? Json(answer.decision.level) : Json(nullptr);
    json["equivalence_interval"] =
        Json::array({answer.decision.equivalence.low, answer.decision.equivalence.high});
    json["p"] = answer.decision.p;
    if (answer.question.primary) json["overall_p"] = answer.overall_p, json["holm_p"] = answer.holm_p;
    json["diverged"] = answer.result.non_finite;
    json["sd_of_differences"] = answer.result.sd;
    json["t_95"] = Json::array({answer.result.t.low, answer.result.t.high});
    json["bootstrap_95"] = Json::array({answer.result.bootstrap.low, answer.result.bootstrap.high});
    json["differences"] = answer.differences;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace ddl
