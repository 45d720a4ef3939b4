#include "study/costs.h"

#include <algorithm>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "model/plan.h"
#include "study/trial.h"
#include "study/tuning.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace ddl {
namespace {

Trial example(const Study& study, const StudySize& size, const std::string& arm, Stage stage) {
  const std::optional<double> rate = study.arm(arm).rate;
  return {size.name, arm, stage, rate ? *rate : size.rates.front(), 1, study.tuning_seeds.front()};
}

}  // namespace

StudyCosts::StudyCosts(const Study& study, const Dataset& data, const Exec& ex) {
  if (study.metric == StudyMetric::kWrongAnswers && !data.val().has_answers())
    throw UserError("{}: metric = \"wrong_answers\", but the validation split of {} knows no answers",
                    study.path, data.folder());
  for (const StudySize& size : study.sizes)
    for (const std::string& arm : size.arms)
      for (const Stage stage : {Stage::kTune, Stage::kConfirm}) {
        const Trial trial = example(study, size, arm, stage);
        TrialCost cost;
        Index shared = 0;   // steps of the budget before, up to its cool-down
        Index reached = 0;  // tokens of the budget before
        for (const Index tokens : budgets(study, trial)) {
          const RunConfig config = run_config(study, trial, tokens, data, ex);
          const TrainConfig& train = config.train;
          if (data.val().tokens() <= config.context())
            throw UserError(
                "{}: {} has no validation split of {} tokens or more; prepare it with --val or "
                "--val-fraction",
                study.path, data.folder(), config.context() + 1);
          if (train.steps * config.tokens_per_step() <= reached)
            throw UserError(
                "{}: size {}: budgets of {} tokens and the one before are the same number of steps",
                study.path, size.name, tokens);
          reached = train.steps * config.tokens_per_step();
          if (stage == Stage::kConfirm && size.tokens.size() > 1 && cooldown_start(train) < 0)
            throw UserError(
                "{}: size {} has {} budgets, which share their steps only with train.schedule = cooldown; {} "
                "has {}",
                study.path, size.name, size.tokens.size(), arm, name_of(train.schedule));
          if (train.warmup >= train.steps)
            throw UserError("{}: {} at size {}: {} tokens are {} steps, but the warm-up alone takes {}",
                            study.path, arm, size.name, tokens, train.steps, train.warmup);
          const ModelPlan plan = plan_model(config.model, {train.batch, config.context()});
          cost.parameters = plan.table.parameter_count();
          const Index trained = (train.steps - shared) * config.tokens_per_step();
          cost.tokens += trained;
          const double per_token = plan.forward.total() + plan.backward.total();
          if (cost.first_end == 0) cost.first_end = static_cast<double>(reached) * per_token;
          cost.last_end = static_cast<double>(reached) * per_token;
          cost.flops += static_cast<double>(trained) * per_token;
          shared = std::max<Index>(0, cooldown_start(train));
        }
        costs_[{size.name, arm, stage}] = cost;
      }
  for (const StudyQuestion& question : study.questions)
    for (const StudySize& size : study.sizes) {
      if (question.match != StudyQuestion::Match::kFlops || !is_asked(question, size)) continue;
      const TrialCost &a = of(size.name, question.a, Stage::kConfirm),
                      &b = of(size.name, question.b, Stage::kConfirm);
      if (std::max(a.first_end, b.first_end) > std::min(a.last_end, b.last_end))
        throw UserError(
            "{}: '{}' compares at equal FLOPs, but at size {} the budgets of {} and {} do not overlap in "
            "FLOPs; give the "
            "size a smaller budget as well",
            study.path, question.text, size.name, question.a, question.b);
    }
}

const TrialCost& StudyCosts::of(const std::string& size, const std::string& arm, Stage stage) const {
  return costs_.at({size, arm, stage});
}

double recorded_speed(const Records& records) {
  std::vector<double> speeds;
  for (const auto& [name, record] : records.all())
    if (!record.endpoints.empty() && record.endpoints.back().seconds > 0)
      speeds.push_back(record.endpoints.back().flops / record.endpoints.back().seconds);
  if (speeds.empty()) return 0;
  const auto middle = speeds.begin() + std::ssize(speeds) / 2;
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle;
}

double measured_speed(const Study& study, const StudySize& size, const Dataset& data, const Exec& ex) {
  constexpr int kSteps = 3;
  const Trial trial = example(study, size, size.arms.front(), Stage::kTune);
  const RunConfig config = run_config(study, trial, size.tokens.back(), data, ex);
  Trainer trainer(config, data, ex);
  trainer.step();  // the first one touches all memory
  const double before = trainer.progress().flops, start = now();
  for (int i = 0; i < kSteps; ++i) trainer.step();
  return (trainer.progress().flops - before) / (now() - start);
}

Left flops_left(const Study& study, const Records& records, const StudyCosts& costs) {
  Left left;
  for (const StudySize& size : study.sizes) {
    for (const std::string& arm : size.arms) {
      const ArmAgenda need = arm_agenda(study, records, size, arm);
      const double tune = costs.of(size.name, arm, Stage::kTune).flops;
      const double confirm = costs.of(size.name, arm, Stage::kConfirm).flops;
      left.least +=
          static_cast<double>(need.tuning_left) * tune + static_cast<double>(need.confirm_now) * confirm;
      left.most +=
          static_cast<double>(need.tuning_left) * tune + static_cast<double>(need.confirm_most) * confirm;
    }
  }
  return left;
}

}  // namespace ddl
