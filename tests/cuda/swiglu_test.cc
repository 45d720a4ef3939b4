#include "kernels/swiglu.h"

#include "cuda/cuda_test.h"
#include "torch/cuda/swiglu.cuh"

namespace ddl::cuda_test {
namespace {

template <class T>
void check_swiglu(Index N, Index F) {
  SCOPED_TRACE(fmt::format("N {} F {}", N, F));
  const auto gate_up = normals<T>(N * 2 * F, 1, 2), dhidden = normals<T>(N * F, 2);
  std::vector<T> hidden(static_cast<std::size_t>(N * F)), text_hidden = hidden;
  std::vector<T> dgate_up(gate_up.size()), text_dgate_up = dgate_up;
  const Exec ex{.threads = 1};
  swiglu_fwd<T>(hidden.data(), gate_up.data(), N, F, ex);
  swiglu_bwd<T>(dgate_up.data(), static_cast<T*>(nullptr), dhidden.data(), gate_up.data(), N, F, ex);
  cuda::SwigluArgs<TextOf<T>> a;
  a.N = static_cast<int>(N), a.F = static_cast<int>(F);
  a.gate_up_N2F = as_text(gate_up.data()), a.hidden_NF = as_text(text_hidden.data());
  a.dhidden_NF = as_text(dhidden.data()), a.dgate_up_N2F = as_text(text_dgate_up.data());
  cuda::swiglu(a, false, cuda_on_cpu::Launch{});
  cuda::swiglu(a, true, cuda_on_cpu::Launch{});
  const double stored = std::is_same_v<T, bf16> ? kBf16Step : kTolerance;
  EXPECT_LT(difference(text_hidden, hidden), stored);
  EXPECT_LT(difference(text_dgate_up, dgate_up), stored);
}

TEST(CudaSwiglu, F32) {
  check_swiglu<float>(3, 64);
  check_swiglu<float>(2, 341);
  check_swiglu<float>(1, 1100);
}
TEST(CudaSwiglu, Bf16) {
  check_swiglu<bf16>(3, 64);
  check_swiglu<bf16>(2, 33);
}

}  // namespace
}  // namespace ddl::cuda_test
