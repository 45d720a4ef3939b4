// A study is one TOML file that says, before the first run, what is asked and how it will be answered. Its hash is
// in every record. docs/study.md describes every key.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/index.h"
#include "core/named_enum.h"
#include "study/sequential.h"

namespace ddl {

// In nats; the share of answers that are not exact.
enum class StudyMetric { kLoss, kWrongAnswers };
constexpr auto names_of(StudyMetric) { return std::array{"loss", "wrong_answers"}; }

// What is compared: a residual rule, or a rule with settings of its own.
struct Arm {
  std::string name;
  std::vector<std::string> settings;  // "model.residual=ddl-cc", ...
  std::optional<double> rate;         // fixed by the study; none: tuned
};

struct StudySize {
  std::string name;
  std::vector<std::string> settings;
  std::vector<Index> tokens;      // budgets, ascending: one confirmation gives a model for each
  std::vector<std::string> arms;  // by name, in the order in which they run
  std::vector<double> rates;      // to begin with, ascending, each the same factor above the one before
};

// "Is the loss of `a` lower than that of `b`?"
struct StudyQuestion {
  enum class Match { kTokens, kFlops };
  std::string text, a, b;
  bool primary = false;  // corrected for with the others of its size (Holm)
  Match match = Match::kTokens;
};

// Whether a size has both arms of the question.
bool is_asked(const StudyQuestion& question, const StudySize& size);

struct Study {
  std::string path, text, hash;  // of the file; the hash is of the text
  std::string title;
  std::string data;  // a dataset's folder
  StudyMetric metric = StudyMetric::kLoss;
  double margin = 0;  // a difference below it does not matter
  std::vector<std::string> settings;
  std::vector<double>
      scales;  // of the output projections' starting values, tuned at the first size; one is 1
  std::vector<Index> tuning_seeds;
  Index first_seed = 0;  // of the confirmation: first_seed, first_seed + 1, ...
  std::vector<Look> looks;
  std::vector<Arm> arms;
  std::vector<StudySize> sizes;
  std::vector<StudyQuestion> questions;

  const Arm& arm(const std::string& name) const;
  const StudySize& size(const std::string& name) const;
  Index most_pairs() const { return looks.back().pairs; }
};

// Throws UserError naming the file, the key, what was expected and what was found.
Study read_study(const std::string& path);

// Throws UserError, with the lines that differ, where `stored` is not the text of this study.
void check_same_study(const Study& study, const std::string& stored, const std::string& folder);

}  // namespace ddl
