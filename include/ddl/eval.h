// How good a model is: log-likelihoods of continuations, tasks made of them, and loss on text.
//   Scorer            scores of many requests at once
//   find_tasks, run_tasks, report_table, report_json
//   evaluate_language loss, perplexity and bits per byte of text, and the loss of token shards
#pragma once

#include "eval/language.h"
#include "eval/model_hash.h"
#include "eval/report.h"
#include "eval/run.h"
#include "eval/scorer.h"
