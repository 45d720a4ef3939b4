// Everything the program does.
#pragma once

#include "ddl/bench.h"
#include "ddl/data.h"
#include "ddl/eval.h"
#include "ddl/generate.h"
#include "ddl/model.h"
#include "ddl/study.h"
#include "ddl/train.h"
