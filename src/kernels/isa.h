// The instruction set that the kernels run with: DDL_ISA where it is set, else the machine's best. It is
// settled once, before the first kernel runs, and printed in the headers of runs and benchmarks.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// Names of the levels that this machine can run, lowest first: "scalar", "avx2", "avx512", "avx512vnni" on x86. The
// last is the one before it with products of pairs of small integers, for small weights (packed_product.h).
std::vector<std::string> available_isas();

// Settles the level where that has not happened yet. Cheap afterwards, and safe from any thread. Every kernel
// does this when it is called (DDL_DISPATCH in simd-inl.h); the program does it first of all, to report a
// wrong DDL_ISA early. Throws UserError where DDL_ISA names a level that the machine does not have.
void settle_isa();

// The name of the level in use.
std::string current_isa();

// Forces a level for all kernels and the GEMM wrapper, in place of DDL_ISA. Not while kernels run. Throws
// UserError where the machine does not have it.
void use_isa(const std::string& name);

// Whether the level in use has VNNI.
bool has_vnni();

// Whether GEMMs with bf16 inputs run on bf16 instructions. Without them bf16 inputs are widened first: right,
// but slower than f32, so precision "auto" means f32 on such a machine.
bool has_fast_bf16();

}  // namespace ddl
