#include "study/agenda.h"

#include <algorithm>
#include <utility>

#include "study/answers.h"
#include "study/tuning.h"

namespace ddl {
namespace {

struct Seeds {
  Index now = 0, most = 0;  // that an arm is to have now, and that it may come to have
};

// An arm that is in no question has one look's worth.
Seeds seeds_wanted(const Study& study, const Records& records, const StudySize& size,
                   const std::string& arm) {
  Seeds seeds;
  bool asked = false;
  for (const StudyQuestion& question : study.questions) {
    if (!is_asked(question, size) || (question.a != arm && question.b != arm)) continue;
    const SequentialResult result = answer_question(study, records, size, question).decision;
    const bool open = result.next_pairs > 0;
    seeds.now = std::max(seeds.now, open ? result.next_pairs : result.pairs);
    seeds.most = std::max(seeds.most, open ? study.most_pairs() : result.pairs);
    asked = true;
  }
  const Index first = study.looks.front().pairs;
  return asked ? seeds : Seeds{first, first};
}

}  // namespace

ArmAgenda arm_agenda(const Study& study, const Records& records, const StudySize& size,
                     const std::string& arm) {
  const Tuning tuning = tune(study, size, study.arm(arm), records);
  const Seeds seeds = seeds_wanted(study, records, size, arm);
  ArmAgenda agenda;
  agenda.trials = tuning.missing;
  agenda.tuning_left = std::ssize(tuning.missing);
  if (!tuning.settled && tuning.missing.empty())  // waits for the first size
    agenda.tuning_left = std::ssize(size.rates) * std::ssize(study.tuning_seeds);
  for (Index i = 0; i < seeds.most; ++i) {
    const Trial trial{size.name, arm, Stage::kConfirm, tuning.rate, tuning.scale, study.first_seed + i};
    if (tuning.settled && records.find(trial)) continue;
    ++agenda.confirm_most;
    if (i >= seeds.now) continue;
    ++agenda.confirm_now;
    if (tuning.settled) agenda.trials.push_back(trial);
  }
  return agenda;
}

Agenda make_agenda(const Study& study, const Records& records) {
  Agenda agenda;
  // Questions are answered one after the other, in the order of the file: an arm's turn is that of the first question
  // it is in.
  const auto turn = [&](const std::string& arm) {
    return std::find_if(
               study.questions.begin(), study.questions.end(),
               [&](const StudyQuestion& question) { return question.a == arm || question.b == arm; }) -
           study.questions.begin();
  };
  for (const StudySize& size : study.sizes) {
    const auto from = std::ssize(agenda.trials);
    for (const std::string& arm : size.arms) {
      const ArmAgenda need = arm_agenda(study, records, size, arm);
      agenda.trials.insert(agenda.trials.end(), need.trials.begin(), need.trials.end());
      agenda.least_left += need.tuning_left + need.confirm_now;
      agenda.most_left += need.tuning_left + need.confirm_most;
    }
    // Of one turn, first what tunes; then seed by seed, so that pairs are complete early.
    const auto rank = [&](const Trial& trial) {
      return std::pair(turn(trial.arm), trial.stage == Stage::kTune ? Index{-1} : trial.seed);
    };
    std::stable_sort(agenda.trials.begin() + from, agenda.trials.end(),
                     [&](const Trial& a, const Trial& b) { return rank(a) < rank(b); });
  }
  return agenda;
}

}  // namespace ddl
