#include "kernels/gemm.h"

#include <array>
#include <dnnl.hpp>
#include <map>
#include <type_traits>
#include <vector>

#include "core/bf16.h"
#include "core/error.h"
#include "kernels/isa.h"

namespace ddl {
namespace {

// The same without a library: DDL_ISA=scalar runs the whole program on portable code.
template <class T, class Out>
void naive_gemm(Out* c, Index ldc, Write mode, Matrix<T> a, Matrix<T> b, Index M, Index N, Index K,
                const Exec& ex) {
  parallel_for(M, ex, [&](Index m) {
    for (Index n = 0; n < N; ++n) {
      float sum = 0;
      for (Index k = 0; k < K; ++k) {
        const T x = a.op == Op::kNone ? a.data[m * a.ld + k] : a.data[k * a.ld + m];
        const T y = b.op == Op::kNone ? b.data[k * b.ld + n] : b.data[n * b.ld + k];
        sum += to_float(x) * to_float(y);
      }
      Out& out = c[m * ldc + n];
      out = from_float<Out>(mode == Write::kAccumulate ? to_float(out) + sum : sum);
    }
  });
}

void check(dnnl_status_t status, Index M, Index N, Index K) {
  DDL_CHECK(status == dnnl_success, "oneDNN refused a GEMM of {} x {} x {} (status {})", M, N, K,
            int(status));
}

void f32_gemm(float* c, Index ldc, Write mode, Matrix<float> a, Matrix<float> b, Index M, Index N, Index K,
              const Exec& ex) {
  // Below a million operations a second thread costs more than it gives; one thread also makes small products
  // independent of the number of threads, which the library does not promise (docs/numerics.md).
  const bool small = 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) < 1e6;
  set_library_threads(small ? Exec{.threads = 1} : ex);
  const auto letter = [](Op op) { return op == Op::kNone ? 'N' : 'T'; };
  check(dnnl_sgemm(letter(a.op), letter(b.op), M, N, K, 1.0f, a.data, a.ld, b.data, b.ld,
                   mode == Write::kAccumulate ? 1.0f : 0.0f, c, ldc),
        M, N, K);
}

// bf16 on bf16 instructions: oneDNN's matmul primitive, made once per shape and thread, then reused.
using Shape = std::array<Index, 10>;  // M N K lda opa ldb opb ldc mode out_is_bf16

dnnl::matmul make_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                         const dnnl::memory::desc& c, const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine, a, b, c, attr));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attr, engine));
#endif
}

struct CachedMatmul {
  dnnl::memory a, b, c;
  dnnl::matmul primitive;

  // By the C interface: that of C++ makes a map and a list of the arguments for every product.
  dnnl_status_t execute(const dnnl::stream& stream) const {
    const std::array<dnnl_exec_arg_t, 3> arguments{
        {{DNNL_ARG_SRC, a.get()}, {DNNL_ARG_WEIGHTS, b.get()}, {DNNL_ARG_DST, c.get()}}};
    return dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()),
                                  arguments.data());
  }
};

CachedMatmul& cached_matmul(const Shape& s, const dnnl::engine& engine) {
  thread_local std::map<Shape, CachedMatmul> cache;  // per thread: memory handles are set before each call
  const auto found = cache.find(s);
  if (found != cache.end()) return found->second;
  using dt = dnnl::memory::data_type;
  const auto [M, N, K, lda, opa, ldb, opb, ldc, mode, out_is_bf16] = s;
  const auto strides = [](Index ld, Index op) {
    return op ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  };
  const dnnl::memory::desc a({M, K}, dt::bf16, strides(lda, opa));
  const dnnl::memory::desc b({K, N}, dt::bf16, strides(ldb, opb));
  const dnnl::memory::desc c({M, N}, out_is_bf16 ? dt::bf16 : dt::f32, strides(ldc, 0));
  dnnl::primitive_attr attr;
  if (mode) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  return cache
      .emplace(s, CachedMatmul{dnnl::memory(a, engine, nullptr), dnnl::memory(b, engine, nullptr),
                               dnnl::memory(c, engine, nullptr), make_matmul(engine, a, b, c, attr)})
      .first->second;
}

template <class Out>
void native_bf16_gemm(Out* c, Index ldc, Write mode, Matrix<bf16> a, Matrix<bf16> b, Index M, Index N,
                      Index K, const Exec& ex) {
  set_library_threads(ex);
  thread_local dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  thread_local dnnl::stream stream(engine);
  try {
    CachedMatmul& m = cached_matmul({M, N, K, a.ld, a.op != Op::kNone, b.ld, b.op != Op::kNone, ldc,
                                     mode == Write::kAccumulate, std::is_same_v<Out, bf16>},
                                    engine);
    m.a.set_data_handle(const_cast<bf16*>(a.data));
    m.b.set_data_handle(const_cast<bf16*>(b.data));
    m.c.set_data_handle(c);
    check(m.execute(stream), M, N, K);
    stream.wait();
  } catch (const dnnl::error& error) {
    check(error.status, M, N, K);
  }
}

// bf16 without bf16 instructions: widen the inputs, multiply in f32, round where the output is bf16.
const float* widen(std::vector<float>& buffer, const bf16* data, Index rows, Index cols, Index ld) {
  if (std::ssize(buffer) < rows * cols) buffer.resize(rows * cols);
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < cols; ++c) buffer[r * cols + c] = to_float(data[r * ld + c]);
  return buffer.data();
}

template <class Out>
void widened_bf16_gemm(Out* c, Index ldc, Write mode, Matrix<bf16> a, Matrix<bf16> b, Index M, Index N,
                       Index K, const Exec& ex) {
  thread_local std::vector<float> wide_a, wide_b, wide_c;  // grow to the largest shape, then stay
  const auto widen_matrix = [](std::vector<float>& buffer, Matrix<bf16> m, Index rows, Index cols) {
    if (m.op == Op::kTranspose) std::swap(rows, cols);
    return Matrix<float>{widen(buffer, m.data, rows, cols, m.ld), cols, m.op};
  };
  const Matrix<float> fa = widen_matrix(wide_a, a, M, K), fb = widen_matrix(wide_b, b, K, N);
  if constexpr (std::is_same_v<Out, float>) {
    f32_gemm(c, ldc, mode, fa, fb, M, N, K, ex);
  } else {
    if (std::ssize(wide_c) < M * N) wide_c.resize(M * N);
    f32_gemm(wide_c.data(), N, Write::kOverwrite, fa, fb, M, N, K, ex);
    for (Index m = 0; m < M; ++m)
      for (Index n = 0; n < N; ++n) c[m * ldc + n] = to_bf16(wide_c[m * N + n]);
  }
}

}  // namespace

template <class T, class Out>
void gemm(Out* c, Index ldc, Write mode, Matrix<T> a, Matrix<T> b, Index M, Index N, Index K,
          const Exec& ex) {
  static_assert(std::is_same_v<Out, float> || std::is_same_v<T, bf16>, "f32 inputs give f32 outputs");
  DDL_CHECK((std::is_same_v<Out, float>) || mode == Write::kOverwrite, "sums are kept in f32");
  if (M == 0 || N == 0) return;
  if (K == 0 || current_isa() == "scalar") return naive_gemm<T, Out>(c, ldc, mode, a, b, M, N, K, ex);
  if constexpr (std::is_same_v<T, float>)
    f32_gemm(c, ldc, mode, a, b, M, N, K, ex);
  else if (has_fast_bf16())
    native_bf16_gemm<Out>(c, ldc, mode, a, b, M, N, K, ex);
  else
    widened_bf16_gemm<Out>(c, ldc, mode, a, b, M, N, K, ex);
}

template void gemm<float, float>(float*, Index, Write, Matrix<float>, Matrix<float>, Index, Index, Index,
                                 const Exec&);
template void gemm<bf16, float>(float*, Index, Write, Matrix<bf16>, Matrix<bf16>, Index, Index, Index,
                                const Exec&);
template void gemm<bf16, bf16>(bf16*, Index, Write, Matrix<bf16>, Matrix<bf16>, Index, Index, Index,
                               const Exec&);

}  // namespace ddl
