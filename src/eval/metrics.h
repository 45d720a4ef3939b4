// What the scores of a question are worth, and means over questions with their standard errors.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/exec.h"
#include "eval/question.h"
#include "eval/task.h"

namespace ddl {

// The first of the largest; a value that is no number counts as largest, as in NumPy.
Index first_maximum(std::span<const double> values);

// One question's value. With several choices:
//   acc      = [argmax_i ll_i == gold]
//   acc_norm = [argmax_i ll_i / characters_i == gold]
// With one continuation: acc = [every token was the most likely one], perplexity = ll.
double question_value(Metric metric, TaskKind kind, const Question& question, std::span<const Score> scores);

// Over all questions: the mean, or exp(-mean) of the log-likelihoods.
double aggregate(Metric metric, std::span<const double> values);

// The sample standard deviation / sqrt(N); of a perplexity by bootstrap, with the harness's draws.
// None where N < 2.
std::optional<double> standard_error(Metric metric, std::span<const double> values, const Exec& ex);

}  // namespace ddl
