// The loader's batches as the model sees them.
#pragma once

#include "data/loader.h"
#include "model/model.h"

namespace ddl {

// Token ids are far below 2^31, and signed and unsigned of one size may look at the same memory.
inline BatchView view(const Batch& batch) {
  return {reinterpret_cast<const std::int32_t*>(batch.inputs_BT.data()),
          reinterpret_cast<const std::int32_t*>(batch.targets_BT.data())};
}

}  // namespace ddl
