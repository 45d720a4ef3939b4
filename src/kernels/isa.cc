#include "kernels/isa.h"

#include <dnnl.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "core/error.h"

namespace ddl {
namespace {

struct Level {
  const char* name;
  std::int64_t targets;  // Highway targets that count as this level
  dnnl_cpu_isa_t onednn;
  bool vnni = false;  // with these instructions, too
};

// Lowest first. Highway always has a fallback without vector instructions, under one of two names.
constexpr Level kLevels[] = {
    {"scalar", HWY_SCALAR | HWY_EMU128, dnnl_cpu_isa_sse41},
#if HWY_ARCH_X86
    {"avx2", HWY_AVX2, dnnl_cpu_isa_avx2},
    {"avx512", HWY_AVX3, dnnl_cpu_isa_avx512_core},
    {"avx512vnni", HWY_AVX3, dnnl_cpu_isa_avx512_core_vnni, true},
#elif HWY_ARCH_ARM
    {"neon", HWY_NEON, dnnl_cpu_isa_t{}},
#endif
};

bool machine_has(const Level& level) {
  static const std::int64_t supported = hwy::SupportedTargets();  // as found, before anything is forced
#if HWY_ARCH_X86
  if (level.vnni && !__builtin_cpu_supports("avx512vnni")) return false;
#endif
  return &level == kLevels || (supported & level.targets) != 0;
}

std::atomic<const Level*> chosen = nullptr;
std::mutex choosing;  // held by whoever sets `chosen`

// Requires `choosing`.
void choose(const Level& level) {
  std::int64_t allowed = 0;
  for (const Level* l = kLevels; l <= &level; ++l) allowed |= l->targets;
  hwy::GetChosenTarget().Update(allowed);
  const bool is_best = &level == kLevels + std::size(kLevels) - 1 || !machine_has(*(&level + 1));
  // Refused once oneDNN has run (its generated code is fixed by then): our own kernels still follow.
  if (!is_best) dnnl_set_max_cpu_isa(level.onednn);
  chosen.store(&level, std::memory_order_release);
}

const Level& level_named(const std::string& name) {
  for (const Level& level : kLevels)
    if (name == level.name && machine_has(level)) return level;
  throw UserError("DDL_ISA: this machine has {}; found '{}'", fmt::join(available_isas(), ", "), name);
}

const Level& best_level() {
  const Level* best = kLevels;
  for (const Level& level : kLevels)
    if (machine_has(level)) best = &level;
  return *best;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Level& level : kLevels)
    if (machine_has(level)) names.emplace_back(level.name);
  return names;
}

void settle_isa() {
  if (chosen.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(choosing);
  if (chosen.load(std::memory_order_relaxed)) return;  // another thread was first
  const char* name = std::getenv("DDL_ISA");
  choose(name && *name ? level_named(name) : best_level());
}

std::string current_isa() {
  settle_isa();
  return chosen.load(std::memory_order_acquire)->name;
}

void use_isa(const std::string& name) {
  const Level& level = level_named(name);
  const std::lock_guard lock(choosing);
  choose(level);
}

bool has_vnni() {
  settle_isa();
  return chosen.load(std::memory_order_acquire)->vnni;
}

bool has_fast_bf16() {
  if (!current_isa().starts_with("avx512")) return false;
  return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_bf16;
}

}  // namespace ddl
