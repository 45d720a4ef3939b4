// What there is to know of a model, and the demonstration.
//   describe_model, model_screen
//   run_demo
#pragma once

#include "study/demo.h"
#include "study/describe.h"
