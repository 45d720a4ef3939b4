// ./ddl bench decode: prompts and single tokens through the decoder, per residual rule, compared with
// the machine's limits and with the baseline, all measured in turns.
#pragma once

#include <string>
#include <vector>

#include "core/exec.h"

namespace ddl {

struct DecodeBenchOptions {
  std::string preset = "small";
  std::vector<std::string> residuals = {"all"};
  std::vector<Index> batches = {1, 8};
  Index prompt = 512;  // tokens of the prompt that is timed, at most the context
  Index rounds = 5;
  std::string precision = "auto";
  std::vector<std::string> weights = {"f32"};  // formats (core/weight_format.h), or all
  bool json = false;
  bool profile = false;  // where the time of the last round went
};
void run_decode_bench(const DecodeBenchOptions& options, const Exec& ex);

}  // namespace ddl
