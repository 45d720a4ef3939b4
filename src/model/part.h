// What every part of a network (attention, MLP, head, residual rule) is given: room, and its numbers.
#pragma once

#include "core/index.h"

namespace ddl {

// What the parts of a network must have room for.
struct Room {
  Index tokens = 1;       // of a pass, at most
  Index positions = 1;    // of a sequence, at most
  bool training = false;  // backward passes follow forward passes
  Index slots = 0;        // sequences whose past is remembered; 0: whole sequences only
  int threads = 1;
};

// Where a part finds its numbers. params_T is the copy GEMMs read: params itself for float, the bf16 copy for
// bf16. grads is null without training.
template <class T>
struct Numbers {
  const float* params = nullptr;
  const T* params_T = nullptr;
  float* grads = nullptr;
};

}  // namespace ddl
