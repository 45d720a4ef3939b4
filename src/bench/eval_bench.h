// ./ddl bench eval: scoring of multiple-choice questions compared with the prompt throughput of the decoder.
// The two take turns on one model, so that both are measured under the same conditions.
#pragma once

#include <string>
#include <vector>

#include "core/exec.h"
#include "model/config.h"

namespace ddl {

struct EvalBenchOptions {
  std::string preset = "small";
  std::vector<std::string> residuals = {kBaselineRule, "ddl-cc"};
  Index questions = 400;  // of the task; without one, drawn with the lengths of ARC-Easy, zero-shot
  std::string task, data, tokenizer;
  Index shots = 0;
  Index batch_tokens = 0;  // 0: the scorer's own choice
  Index prompt = 512;      // tokens of the prompt it is compared with
  Index rounds = 4;        // the questions are scored in this many parts
  std::string precision = "auto";
  bool json = false;
  bool profile = false;  // where the time of scoring went
};
void run_eval_bench(const EvalBenchOptions& options, const Exec& ex);

}  // namespace ddl
