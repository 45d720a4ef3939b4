// A training step takes no memory once the first has been: every buffer is planned. What oneDNN takes for a product with
// bf16 inputs is its own.
#include "core/sanitizer.h"

#ifndef DDL_ADDRESS_SANITIZER  // it has an operator new of its own
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/isa.h"
#include "model/oracle_model.h"

// The compiler does not see that the two below belong together.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
std::atomic<long> allocations{0};
std::atomic<bool> counting{false};

bool is_in_onednn(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libdnnl");
}

void* counted(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (counting && !is_in_onednn(caller)) ++allocations;
  void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace ddl {
namespace {

const std::vector<std::string> kRules = rule_names();  // before other tests add theirs

TEST(Allocation, NoneAfterTheFirstStep) {
  for (const std::string& name : kRules)
    for (const Precision precision : {Precision::kF32, Precision::kBf16})
      for (const char* gate : {"linear", "two-layer"}) {
        // Where bf16 is emulated, each thread widens into buffers of its own, taken at its first product.
        if (precision == Precision::kBf16 && !has_fast_bf16()) continue;
        ModelConfig m = model_config({.residual = name, .gate = gate});
        m.precision = precision, m.recompute = Recompute::kBlock;
        const Exec ex{.threads = 2};
        counting = true;
        allocations = 0;
        const auto model = trainable(m, {2, 4}, 1, ex);
        EXPECT_GT(allocations, 0);  // the counter counts
        const auto x = tokens(8, 1), y = tokens(8, 2);
        model->loss_and_grad({x.data(), y.data()}, 1, ex);
        // A thread keeps products of bf16 from its first one of a shape, and on a busy machine it may get none in the
        // first step: then a later step must be the first without.
        int tries = precision == Precision::kBf16 ? 100 : 1;
        do {
          allocations = 0;
          model->loss_and_grad({x.data(), y.data()}, 1, ex);
          model->loss({x.data(), y.data()}, {}, ex);
        } while (allocations > 0 && --tries > 0);
        counting = false;
        EXPECT_EQ(allocations, 0) << name << " " << name_of(precision) << " " << gate;
      }
}

}  // namespace
}  // namespace ddl
#endif
