// The engine that runs the oracle: every formula as plain scalar code in double precision, gradients by tape,
// no caches, no threads. Thousands of times slower than the native one, and easy to believe.
#pragma once

#include "model/engine.h"

namespace ddl {

const Engine& reference_engine();

}  // namespace ddl
