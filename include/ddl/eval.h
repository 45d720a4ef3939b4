// How good a model is: log-likelihoods of continuations, and tasks made of them.
//   Scorer            scores of many requests at once
//   find_tasks, run_tasks, report_table, report_json
#pragma once

#include "eval/report.h"
#include "eval/run.h"
#include "eval/scorer.h"
