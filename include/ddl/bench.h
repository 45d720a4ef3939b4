// Speed beside the machine's limits, measured in the same run.
#pragma once

#include "bench/decode_bench.h"
#include "bench/eval_bench.h"
#include "bench/kernels_bench.h"
#include "bench/loader_bench.h"
#include "bench/measure.h"
#include "bench/step_bench.h"
#include "bench/tokenizer_bench.h"
