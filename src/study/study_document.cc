#include "study/study_document.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "audit/audit_document.h"
#include "core/error.h"
#include "io/file.h"
#include "model/config.h"
#include "report/spread.h"
#include "study/answer_blocks.h"
#include "study/answers.h"
#include "study/best_of_n.h"
#include "study/compute_gain.h"
#include "study/scaling_fit.h"
#include "study/study_audits.h"
#include "study/study_run.h"
#include "study/tuning.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class StudyReport {
 public:
  StudyReport(const Study& study, const Records& records, const std::vector<std::string>& problems)
      : study_(study),
        records_(records),
        problems_(problems),
        answers_(answer_questions(study, records)),
        document_(study.title,
                  fmt::format("{} trials; study {}", records.all().size(), study.hash.substr(0, 12))) {}

  ReportDocument make() {
    questions();
    for (const StudySize& size : study_.sizes) curves(size);
    for (const StudySize& size : study_.sizes) rates(size);
    scaling();
    costs();
    repeat();
    add_limits(document_);
    return document_;
  }

 private:
  std::vector<const TrialRecord*> confirmations(const StudySize& size, const std::string& arm) const {
    const Tuning tuning = tune(study_, size, study_.arm(arm), records_);
    std::vector<const TrialRecord*> found;
    for (Index i = 0; tuning.settled && i < study_.most_pairs(); ++i)
      if (const TrialRecord* record = records_.find(
              {size.name, arm, Stage::kConfirm, tuning.rate, tuning.scale, study_.first_seed + i}))
        if (!record->diverged) found.push_back(record);
    return found;
  }

  // Seeds of the confirmation whose run diverged: curves and means are of the others.
  Index diverged(const StudySize& size, const std::string& arm) const {
    Index count = 0;
    for (const auto& [name, record] : records_.all())
      count += record.trial.size == size.name && record.trial.arm == arm &&
               record.trial.stage == Stage::kConfirm && record.diverged;
    return count;
  }

  void questions() {
    document_.section("answers", "Answers");
    add_answers(document_, study_, records_, answers_);
    for (const StudySize& size : study_.sizes) {
      ForestBlock forest;
      forest.title = fmt::format("Paired differences at {}", size.name);
      forest.note =
          "Negative: the first arm is better. Each point is a seed; the interval holds over all looks.";
      forest.unit = unit_of(study_);
      forest.margin = study_.margin;
      for (const Answer& answer : answers_) {
        if (answer.size != size.name || answer.differences.empty()) continue;
        forest.rows.push_back(forest_row(answer));
      }
      if (!forest.rows.empty()) document_.add(forest);
    }
  }

  // What every arm reached at each budget, over tokens, FLOPs and seconds.
  void curves(const StudySize& size) {
    document_.section(address("curves", size),
                      fmt::format("{}: loss by tokens, FLOPs and seconds", size.name));
    LinesBlock ends;
    ends.title = fmt::format("{} at the end of each budget",
                             study_.metric == StudyMetric::kLoss ? "Validation loss" : "Wrong answers");
    ends.note =
        "Means over the seeds of the confirmation; bands from the lowest to the highest. Seconds depend on "
        "what "
        "else ran on the machine.";
    ends.axes = {{"tokens", "tokens", AxisScale::kLog},
                 {"flops", "FLOPs", AxisScale::kLog},
                 {"seconds", "seconds of one worker", AxisScale::kLog}};
    ends.y_label = unit_of(study_);
    LinesBlock curve;
    curve.title = "Validation loss while training the longest budget";
    curve.note = "Means over seeds.";
    curve.axes = {{"tokens", "tokens", AxisScale::kLinear}, {"flops", "FLOPs", AxisScale::kLinear}};
    curve.y_label = "nats";
    for (const std::string& arm : size.arms) {
      const auto found = confirmations(size, arm);
      if (found.empty()) continue;
      LinesBlock::Series series{.name = arm, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
      for (std::size_t b = 0; b < size.tokens.size(); ++b) {
        std::vector<double> values, flops, seconds;
        for (const TrialRecord* record : found) {
          values.push_back(record->endpoints[b].metric(study_.metric));
          flops.push_back(record->endpoints[b].flops), seconds.push_back(record->endpoints[b].seconds);
        }
        const Spread at = Spread(values);
        series.x["tokens"].push_back(static_cast<double>(found.front()->endpoints[b].tokens));
        series.x["flops"].push_back(Spread(flops).mean), series.x["seconds"].push_back(Spread(seconds).mean);
        series.y.push_back(at.mean), series.lo.push_back(at.low), series.hi.push_back(at.high);
      }
      ends.series.push_back(series);
      LinesBlock::Series while_training{.name = arm, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
      for (std::size_t i = 0; i < found.front()->validation.size(); ++i) {
        std::vector<double> values;
        for (const TrialRecord* record : found)
          if (i < record->validation.size()) values.push_back(record->validation[i].loss);
        const auto tokens = static_cast<double>(found.front()->validation[i].tokens);
        while_training.x["tokens"].push_back(tokens);
        while_training.x["flops"].push_back(tokens * found.front()->flops_per_token);
        while_training.y.push_back(Spread(values).mean);
      }
      if (!while_training.y.empty()) curve.series.push_back(while_training);
    }
    if (ends.series.empty()) return;
    document_.add(ends);
    if (!curve.series.empty()) document_.add(curve);
  }

  void rates(const StudySize& size) {
    document_.section(address("rates", size), fmt::format("{}: sensitivity to the learning rate", size.name));
    LinesBlock lines;
    lines.title = "Validation loss by learning rate, at each arm's best starting scale";
    lines.note =
        "Means over the tuning seeds; bands from the lowest to the highest. A rate at which a run diverged "
        "has no point.";
    lines.axes = {{"rate", "learning rate", AxisScale::kLog}};
    lines.y_label = "nats";
    LinesBlock best;
    best.title = "Expected best of n tuning trials";
    best.note =
        "What an arm reaches with n trials drawn from those made: how much it depends on being tuned.";
    best.axes = {{"trials", "trials", AxisScale::kLinear}};
    best.y_label = "nats";
    TableBlock table;
    table.caption = "What tuning found";
    table.columns = {{"arm"},
                     {"rate", TableBlock::Align::kRight},
                     {"starting scale", TableBlock::Align::kRight},
                     {"cells", TableBlock::Align::kRight},
                     {"diverged", TableBlock::Align::kRight},
                     {"loss at the best", TableBlock::Align::kRight, 4},
                     {"remark"}};
    for (const std::string& arm : size.arms) {
      const Tuning tuning = tune(study_, size, study_.arm(arm), records_);
      if (tuning.cells.empty()) continue;
      const auto lowest =
          std::min_element(tuning.cells.begin(), tuning.cells.end(),
                           [](const TuningCell& a, const TuningCell& b) { return a.mean < b.mean; });
      std::map<double, const TuningCell*> by_rate;
      std::vector<double> losses;
      Index diverged = 0;
      for (const TuningCell& cell : tuning.cells) {
        if (cell.scale == lowest->scale) by_rate[cell.rate] = &cell;
        for (const double loss : cell.losses) losses.push_back(loss), diverged += !std::isfinite(loss);
      }
      LinesBlock::Series series{.name = arm, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
      for (const auto& [rate, cell] : by_rate) {
        if (!std::isfinite(cell->mean)) continue;
        const Spread at = Spread(cell->losses);
        series.x["rate"].push_back(rate);
        series.y.push_back(at.mean), series.lo.push_back(at.low), series.hi.push_back(at.high);
      }
      if (!series.y.empty()) lines.series.push_back(series);
      LinesBlock::Series expected{.name = arm, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
      Index n = 0;
      for (const double value : expected_best(losses)) {
        ++n;
        if (!std::isfinite(value)) continue;
        expected.x["trials"].push_back(static_cast<double>(n)), expected.y.push_back(value);
      }
      if (!expected.y.empty()) best.series.push_back(expected);
      table.rows.push_back({arm, tuning.settled ? Json(tuning.rate) : Json(nullptr), lowest->scale,
                            tuning.cells.size(), diverged, lowest->mean,
                            !tuning.settled   ? "still searching"
                            : tuning.at_limit ? "the best lies at the end of the grid"
                                              : ""});
    }
    if (table.rows.empty()) return;
    document_.add(table);
    if (!lines.series.empty()) document_.add(lines);
    if (!best.series.empty()) document_.add(best);
  }

  // The joint fit, where there are enough sizes.
  void scaling() {
    std::vector<ScalingPoint> points;
    std::vector<std::string> arms;
    for (const Arm& arm : study_.arms) {
      std::set<std::string> sizes;
      std::vector<ScalingPoint> of_arm;
      for (const StudySize& size : study_.sizes) {
        if (std::find(size.arms.begin(), size.arms.end(), arm.name) == size.arms.end()) continue;
        for (const TrialRecord* record : confirmations(size, arm.name)) {
          sizes.insert(size.name);
          for (const Endpoint& end : record->endpoints)
            of_arm.push_back({std::ssize(arms), &size - study_.sizes.data(),
                              static_cast<double>(record->parameters), static_cast<double>(end.tokens),
                              record->trial.seed, end.loss});
        }
      }
      if (sizes.size() < 2) continue;
      points.insert(points.end(), of_arm.begin(), of_arm.end());
      arms.push_back(arm.name);
    }
    if (arms.empty()) return;
    document_.section("scaling", "Scaling");
    try {
      constexpr Index kResamples = 200;
      const ScalingBootstrap fit = bootstrap_scaling(points, std::ssize(arms), kResamples, 1);
      document_.add(TextBlock{
          fmt::format("L = E + A N^-{:.3f} + B D^-{:.3f} with E = {:.3f}, fitted jointly; N counts all "
                      "parameters, D tokens.",
                      fit.fit.alpha, fit.fit.beta, fit.fit.floor)});
      TableBlock table;
      table.caption =
          "Fitted coefficients, and the predicted difference from the first arm at twice the largest size "
          "and budget";
      table.columns = {{"arm"},
                       {"A", TableBlock::Align::kRight, 2},
                       {"B", TableBlock::Align::kRight, 1},
                       {"difference", TableBlock::Align::kRight, 4},
                       {"90% band", TableBlock::Align::kRight}};
      double largest = 0, longest = 0;
      for (const ScalingPoint& point : points)
        largest = std::max(largest, point.parameters), longest = std::max(longest, point.tokens);
      for (Index rule = 0; rule < std::ssize(arms); ++rule) {
        const auto r = static_cast<std::size_t>(rule);
        const double difference =
            fit.fit.predict(rule, 2 * largest, 2 * longest) - fit.fit.predict(0, 2 * largest, 2 * longest);
        const Interval band = fit.difference_band(rule, 0, 2 * largest, 2 * longest, 0.9);
        table.rows.push_back({arms[r], fit.fit.a[r], fit.fit.b[r], difference,
                              rule == 0 ? "" : fmt::format("{:+.4f} to {:+.4f}", band.low, band.high)});
      }
      document_.add(table);
    } catch (const UserError& error) {
      document_.add(TextBlock{std::string("No fit yet: ") + error.what()});
    }
  }

  void costs() {
    document_.section("costs", "Costs and noise");
    for (const StudySize& size : study_.sizes) {
      const auto reference = confirmations(size, reference_arm(size));
      TableBlock table;
      table.caption = fmt::format(
          "{0}: FLOPs relative to {1}. What a rule costs in time is measured by ddl bench step, since trials "
          "share their machine with other work. Compute-equivalent gain: how many times the arm's FLOPs the "
          "reference, {1}, needs to reach the arm's loss, by its curve over the budgets. Beyond the curve: "
          "lower than all of it; short of it: higher.",
          size.name, reference_arm(size));
      table.columns = {{"arm"},
                       {"parameters", TableBlock::Align::kRight},
                       {"FLOPs per token", TableBlock::Align::kRight, 2},
                       {fmt::format("{}, mean", unit_of(study_)), TableBlock::Align::kRight, 4},
                       {"sd over seeds", TableBlock::Align::kRight, 4},
                       {"seeds", TableBlock::Align::kRight},
                       {"diverged", TableBlock::Align::kRight},
                       {"compute-equivalent gain", TableBlock::Align::kRight},
                       {"loss spikes per run", TableBlock::Align::kRight, 2}};
      std::vector<ComputeLoss> curve;
      for (std::size_t b = 0; !reference.empty() && b < size.tokens.size(); ++b)
        curve.push_back(mean_end(reference, b));
      for (const std::string& arm : size.arms) {
        const auto found = confirmations(size, arm);
        if (found.empty()) continue;
        std::vector<double> values, spikes;
        for (const TrialRecord* record : found) {
          values.push_back(record->result(study_.metric)),
              spikes.push_back(static_cast<double>(record->spikes));
        }
        const Spread at = Spread(values);
        table.rows.push_back(
            {arm, found.front()->parameters,
             reference.empty() ? kNan : found.front()->flops_per_token / reference.front()->flops_per_token,
             at.mean, at.sd, at.count, diverged(size, arm),
             gain_text(compute_gain(curve, mean_end(found, size.tokens.size() - 1))), Spread(spikes).mean});
        for (Json& cell : table.rows.back())
          if (cell.is_number_float()) cell = finite_or_null(cell.get<double>());
      }
      if (!table.rows.empty()) document_.add(table);
    }
    TableBlock noise;
    noise.caption = "What pairing is worth: the spread of differences with and without the same seed";
    noise.columns = {{"size"},
                     {"question"},
                     {"sd of paired differences", TableBlock::Align::kRight, 4},
                     {"sd unpaired", TableBlock::Align::kRight, 4}};
    for (const Answer& answer : answers_) {
      if (answer.differences.size() < 2) continue;
      const StudySize& size = study_.size(answer.size);
      const auto sd_of = [&](const std::string& arm) {
        std::vector<double> values;
        for (const TrialRecord* record : confirmations(size, arm))
          values.push_back(record->result(study_.metric));
        return Spread(values).sd;
      };
      noise.rows.push_back({answer.size, fmt::format("{} - {}", answer.question.a, answer.question.b),
                            finite_or_null(answer.result.sd),
                            finite_or_null(std::hypot(sd_of(answer.question.a), sd_of(answer.question.b)))});
    }
    if (!noise.rows.empty()) document_.add(noise);
  }

  void repeat() {
    document_.section("repeat", "Repeat it");
    document_.add(CodeBlock{fmt::format("./ddl study {0} --out {1} --dry-run\n./ddl study {0} --out {1}",
                                        study_.path, parent_folder(study_.path))});
    std::map<std::string, Index> programs;
    std::set<std::string> data;
    for (const auto& [name, record] : records_.all()) ++programs[record.program], data.insert(record.data);
    std::vector<std::string> items = {fmt::format("study file: SHA-256 {}", study_.hash)};
    for (const std::string& fingerprint : data) items.push_back("data: " + fingerprint);
    for (const auto& [program, count] : programs)
      items.push_back(fmt::format("program: ddl {}, {} trials", program, count));
    document_.add(ListBlock{items});
    if (programs.size() > 1)
      document_.add(ListBlock{
          {"The trials were made by different versions of the program. Look at what changed between them "
           "before you trust a close comparison."},
          true});
    if (!problems_.empty()) document_.add(ListBlock{problems_, true});
    document_.add(CodeBlock{study_.text});
  }

  static std::string address(const std::string& what, const StudySize& size) {
    std::string id = what + "-" + size.name;
    std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return std::tolower(c); });
    return id;
  }
  // The first arm with the additive rule, otherwise the first of all.
  std::string reference_arm(const StudySize& size) const {
    const auto found = std::find_if(size.arms.begin(), size.arms.end(), [&](const std::string& arm) {
      return residual_rule(study_, size, arm) == kBaselineRule;
    });
    return found == size.arms.end() ? size.arms.front() : *found;
  }
  ComputeLoss mean_end(const std::vector<const TrialRecord*>& found, std::size_t budget) const {
    std::vector<double> flops, values;
    for (const TrialRecord* record : found) {
      flops.push_back(record->endpoints[budget].flops);
      values.push_back(record->endpoints[budget].metric(study_.metric));
    }
    return {Spread(flops).mean, Spread(values).mean};
  }
  // A lower bound that is not above 1, or an upper one that is not below it, would be read as a result.
  static std::string gain_text(const ComputeGain& gain) {
    constexpr double kShown = 0.005;  // of two digits
    switch (gain.bound) {
      case GainBound::kExact:
        return fmt::format("{:.2f}", gain.gain);
      case GainBound::kAtLeast:
        return gain.gain < 1 + kShown ? "beyond the reference's curve"
                                      : fmt::format("at least {:.2f}", gain.gain);
      case GainBound::kAtMost:
        return gain.gain > 1 - kShown ? "short of the reference's curve"
                                      : fmt::format("at most {:.2f}", gain.gain);
      case GainBound::kUnknown:
        break;
    }
    return "";
  }

  const Study& study_;
  const Records& records_;
  const std::vector<std::string>& problems_;
  std::vector<Answer> answers_;
  ReportDocument document_;
};

}  // namespace

ReportDocument study_document(const Study& study, const Records& records,
                              const std::vector<std::string>& problems) {
  return StudyReport(study, records, problems).make();
}

bool is_study_folder(const std::string& path) { return fs::is_regular_file(StudyFolder{path}.study()); }

Records read_records(const StudyFolder& folder, const Study& study, std::vector<std::string>& problems) {
  const Records records = Records::read(folder.records(), study, &problems);
  if (fs::exists(folder.problems())) {
    std::istringstream lines(read_file(folder.problems()));
    for (std::string line; std::getline(lines, line);) problems.push_back(line);
  }
  return records;
}

ReportDocument read_study_document(const std::string& path) {
  const StudyFolder folder{path};
  const Study study = read_study(folder.study());
  std::vector<std::string> problems;
  const Records records = read_records(folder, study, problems);
  ReportDocument document = study_document(study, records, problems);
  add_audits(document, read_study_audits(folder, study, records));
  return document;
}

}  // namespace ddl
