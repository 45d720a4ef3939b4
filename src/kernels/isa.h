// The instruction set the kernels run with: chosen once at start, printed in headers, forceable through
// DDL_ISA.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// Names of the levels this machine can run, lowest first: "scalar", "avx2", "avx512" on x86.
std::vector<std::string> available_isas();

// The level in use. The first call (or use_isa) settles it: DDL_ISA where set, else the machine's best.
std::string current_isa();

// Forces a level for all kernels and the GEMM door. Throws UserError where the machine does not have it.
void use_isa(const std::string& name);

// Whether GEMMs with bf16 inputs run on bf16 instructions. Without them bf16 inputs are widened first: right,
// but slower than f32, so precision "auto" means f32 on such a machine.
bool has_fast_bf16();

}  // namespace ddl
