// A rule put together from three choices: how the embedding becomes the state, how a sublayer reads it, how
// its output is written back. All rules of the paper and their controls are such wirings of the same kernels.
#pragma once

#include "kernels/residual.h"
#include "model/residual/residual.h"

namespace ddl {

enum class Expand { kIdentity, kRepeat, kConv };
enum class Read { kIdentity, kChannel, kToken };

struct Wiring {
  Expand expand = Expand::kIdentity;
  Read read = Read::kIdentity;
  WriteRule write = WriteRule::kAdd;
};

ResidualEntry wired_rule(std::string name, std::string summary, Wiring wiring,
                         std::optional<PaperCost> paper);

}  // namespace ddl
