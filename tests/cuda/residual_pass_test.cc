// The CUDA text of the residual pass against the native pass: forward, backward, every gradient, in both orders of
// threads; and every barrier is needed.
#include "kernels/residual_pass.h"

#include <functional>
#include <map>
#include <string>

#include "cuda/cuda_test.h"
#include "model/residual/delta_coefficients.h"
#include "torch/cuda/residual_pass.cuh"

namespace ddl::cuda_test {
namespace {

struct Case {
  Index N = 5, D = 4, C = 96;
  bool adds = false, erases = true;  // which write; adds: the plain addition, one channel
  bool writes = true, reads = true;
  bool steers = true;  // the read gives numbers: a gate of the context and D values of the unnormed row
  bool fresh = false;  // dstate is overwritten
  Index values = 0;    // how many targets the read makes; 0: D
  Index numbers() const { return adds || !reads || !steers ? 0 : 1 + (values > 0 ? values : D); }
  Index stride() const { return adds ? 0 : 1 + std::max(D, values); }
  std::string name() const {
    return fmt::format("N {} D {} C {} adds {} erases {} writes {} reads {} numbers {} fresh {}", N, D, C,
                       adds, erases, writes, reads, numbers(), fresh);
  }
};

// Everything a pass reads and writes. Both sides begin with equal tensors.
template <class T>
struct Tensors {
  std::vector<float> state, steer, saved, mix, norm, rstd, next_steer, gate_w, gate_b, value_w, value_b;
  std::vector<T> h, context, dh;
  std::vector<float> dstate, dcontext, dsteer, dmix, dnorm, dgate_w, dgate_b, dvalue_w, dvalue_b;

  explicit Tensors(const Case& c) {
    const Index R = std::max<Index>(c.stride(), 1), V = std::max<Index>(c.numbers() - 1, 1);
    const auto zeros = [](Index n) { return std::vector<float>(static_cast<std::size_t>(n)); };
    state = normals(c.N * c.D * c.C, 1), steer = normals(c.N * R, 2);
    h = normals<T>(c.N * c.C, 3);
    mix = normals(c.D * c.C, 4), norm = normals(c.C, 5);
    gate_w = normals(c.C, 6, 0.1), gate_b = normals(1, 7);
    value_w = normals(V * c.C, 8, 0.1), value_b = normals(V, 9);
    saved = zeros(c.N * (1 + c.D)), rstd = zeros(c.N), next_steer = zeros(c.N * R);
    context.resize(static_cast<std::size_t>(c.N * c.C)), dh = context;
    dstate = normals(c.N * c.D * c.C, 10), dcontext = normals(c.N * c.C, 11);
    dsteer = normals(c.N * R, 12);
    // Gradients of weights are added to what is there.
    dmix = normals(c.D * c.C, 13), dnorm = normals(c.C, 14), dgate_w = normals(c.C, 15);
    dgate_b = normals(1, 16), dvalue_w = normals(V * c.C, 17), dvalue_b = normals(V, 18);
  }
  // visit(name, tensor of this, tensor of the other, whether it is rounded to T)
  template <class Visit>
  void with(Tensors& o, const Visit& visit) {
    visit("state", state, o.state), visit("saved", saved, o.saved), visit("rstd", rstd, o.rstd);
    visit("next steer", next_steer, o.next_steer), visit("context", context, o.context),
        visit("dh", dh, o.dh);
    visit("dstate", dstate, o.dstate), visit("dsteer", dsteer, o.dsteer), visit("dmix", dmix, o.dmix);
    visit("dnorm", dnorm, o.dnorm), visit("dgate_w", dgate_w, o.dgate_w),
        visit("dgate_b", dgate_b, o.dgate_b);
    visit("dvalue_w", dvalue_w, o.dvalue_w), visit("dvalue_b", dvalue_b, o.dvalue_b);
  }
};

template <class T>
void run_native(const Case& c, Tensors<T>& t, bool backward) {
  const DeltaCoefficients delta(c.erases ? DeltaCoefficients::Erase::kYes : DeltaCoefficients::Erase::kNo);
  const Coefficients* coefficients = c.adds ? nullptr : &delta;
  std::vector<Branch> branches;
  if (c.numbers() > 0)
    branches = {{.first = 0,
                 .rows = 1,
                 .activation = Activation::kSigmoid,
                 .scale = 2,
                 .w_RC = t.gate_w.data(),
                 .b_R = t.gate_b.data(),
                 .dw_RC = t.dgate_w.data(),
                 .db_R = t.dgate_b.data()},
                {.first = 1,
                 .rows = c.numbers() - 1,
                 .input = BranchInput::kUnnormed,
                 .activation = Activation::kSigmoid,
                 .scale = 4,
                 .w_RC = t.value_w.data(),
                 .b_R = t.value_b.data(),
                 .dw_RC = t.dvalue_w.data(),
                 .db_R = t.dvalue_b.data()}};
  const float* mix = c.D > 1 ? t.mix.data() : nullptr;
  const Exec ex{.threads = 1};
  if (!backward) {
    const WriteFwd<T> write{coefficients, t.h.data(), t.steer.data(), c.stride(), t.saved.data()};
    const ReadFwd<T> read{mix,      t.norm.data(),       1e-5f,     t.context.data(), t.rstd.data(),
                          branches, t.next_steer.data(), c.stride()};
    residual_fwd<T>(t.state.data(), c.writes ? &write : nullptr, c.reads ? &read : nullptr, c.N, c.D, c.C,
                    ex);
    return;
  }
  const ReadBwd<T> read{.mix_DC = mix,
                        .norm_C = t.norm.data(),
                        .rstd_N = t.rstd.data(),
                        .dcontext_NC = t.dcontext.data(),
                        .branches = branches,
                        .steer_NR = t.next_steer.data(),
                        .dsteer_NR = t.dsteer.data(),
                        .steer_stride = c.stride(),
                        .dstate_mode = c.fresh ? Write::kOverwrite : Write::kAccumulate,
                        .dmix_DC = t.dmix.data(),
                        .dnorm_C = t.dnorm.data()};
  const WriteBwd<T> write{.coefficients = coefficients,
                          .h_NC = t.h.data(),
                          .steer_NR = t.steer.data(),
                          .steer_stride = c.stride(),
                          .saved_NQ = t.saved.data(),
                          .dh_NC = t.dh.data(),
                          .dsteer_NR = t.dsteer.data()};
  std::vector<float> scratch(static_cast<std::size_t>(residual_bwd_scratch(c.D, c.C, c.numbers())));
  residual_bwd<T>(t.state.data(), t.dstate.data(), c.reads ? &read : nullptr, c.writes ? &write : nullptr,
                  scratch.data(), c.N, c.D, c.C, ex);
}

template <class T>
cuda::ResidualArgs<TextOf<T>> arguments(const Case& c, Tensors<T>& t) {
  cuda::ResidualArgs<TextOf<T>> a;
  a.N = static_cast<int>(c.N), a.D = static_cast<int>(c.D), a.C = static_cast<int>(c.C);
  a.state_NDC = t.state.data();
  a.steer_stride = static_cast<int>(c.stride()), a.saved_stride = static_cast<int>(c.erases ? 1 + c.D : 1);
  a.erase = c.erases ? 1 : 0;
  if (c.writes) {
    a.h_NC = as_text(t.h.data()), a.steer_NR = t.steer.data(), a.saved_NQ = t.saved.data();
    a.dh_NC = as_text(t.dh.data()), a.dsteer_NR = t.dsteer.data();
  }
  a.dstate_NDC = t.dstate.data();
  if (!c.reads) return a;
  a.mix_DC = c.D > 1 ? t.mix.data() : nullptr;
  a.norm_C = t.norm.data(), a.rstd_N = t.rstd.data(), a.next_steer_NR = t.next_steer.data();
  a.context_NC = as_text(t.context.data());
  a.fresh_dstate = c.fresh, a.dcontext_NC = t.dcontext.data(), a.dnext_steer_NR = t.dsteer.data();
  a.dmix_DC = c.D > 1 ? t.dmix.data() : nullptr, a.dnorm_C = t.dnorm.data();
  a.numbers = static_cast<int>(c.numbers());
  for (int r = 0; r < a.numbers; ++r) {
    const Index v = r - 1;
    a.number[r] =
        r == 0 ? cuda::Number{cuda::Input::kContext,
                              cuda::Activation::kSigmoid,
                              2,
                              t.gate_w.data(),
                              t.gate_b.data(),
                              t.dgate_w.data(),
                              t.dgate_b.data()}
               : cuda::Number{
                     cuda::Input::kUnnormed,     cuda::Activation::kSigmoid, 4,
                     t.value_w.data() + v * c.C, t.value_b.data() + v,       t.dvalue_w.data() + v * c.C,
                     t.dvalue_b.data() + v};
  }
  return a;
}

template <class T>
void run_text(const Case& c, Tensors<T>& t, bool backward, Order order) {
  cuda::ResidualArgs<TextOf<T>> a = arguments(c, t);
  std::vector<float> part(static_cast<std::size_t>(cuda::residual_scratch_floats(a.N, a.D, a.C, a.numbers)),
                          std::numeric_limits<float>::quiet_NaN());
  a.part = part.data();
  if (backward)
    cuda::residual_backward(a, cuda_on_cpu::Launch{order});
  else
    cuda::residual_forward(a, cuda_on_cpu::Launch{order});
}

// dh = sum_d (coef_d g_d - erase_d x_d) - along h, term by term: how large the numbers are that dh is the sum of. From
// what the backward pass leaves: x_d is the state, g_d = dstate_d + erase_d h, and dsteer has the gradient of v_d.
std::vector<double> dh_terms(const Case& c, const Tensors<float>& t) {
  std::vector<double> terms(t.dh.size());
  const Index R = c.stride();
  for (Index n = 0; n < c.N; ++n) {
    const float *steer = &t.steer[n * R], *dsteer = &t.dsteer[n * R], *saved = &t.saved[n * (1 + c.D)];
    const double beta = steer[0], scale = saved[0];
    double along = 0;
    for (Index d = 0; d < c.D; ++d)
      along +=
          std::abs(scale * scale * dsteer[1 + d] * (std::abs(steer[1 + d]) + 2 * std::abs(saved[1 + d])));
    for (Index i = 0; i < c.C; ++i) {
      const double h = t.h[n * c.C + i];
      terms[n * c.C + i] = along * std::abs(h);
      for (Index d = 0; d < c.D; ++d) {
        const Index at = (n * c.D + d) * c.C + i;
        const double erase = dsteer[1 + d] * scale, g = t.dstate[at] + erase * h;
        const double coef = std::abs(beta * scale) * (std::abs(steer[1 + d]) + std::abs(saved[1 + d]));
        terms[n * c.C + i] += coef * std::abs(g) + std::abs(erase * t.state[at]);
      }
    }
  }
  return terms;
}

// Both passes one after the other. Backward begins from the native forward's tensors on both sides, so that a
// rounding of the forward pass is not counted twice.
template <class T>
void check(const Case& c) {
  SCOPED_TRACE(c.name());
  const auto compare = [&](Tensors<T>& text, Tensors<T>& native, Tensors<T>& reversed) {
    text.with(native, [&](const char* name, const auto& a, const auto& b) {
      if (c.C == 1 && name == std::string("dh")) return;  // AWidthOfOne
      using Element = typename std::decay_t<decltype(a)>::value_type;
      EXPECT_LT(difference(a, b), (std::is_same_v<Element, bf16> ? kBf16Step : kTolerance)) << name;
    });
    text.with(reversed, [&](const char* name, const auto& a, const auto& b) {
      EXPECT_TRUE(same_bits(a, b)) << name << " depends on the order of threads";
    });
  };
  Tensors<T> native(c), text(c), reversed(c);
  run_native(c, native, false);
  run_text(c, text, false, Order::kFirstToLast);
  run_text(c, reversed, false, Order::kLastToFirst);
  compare(text, native, reversed);
  text = reversed = native;
  run_native(c, native, true);
  run_text(c, text, true, Order::kFirstToLast);
  run_text(c, reversed, true, Order::kLastToFirst);
  compare(text, native, reversed);
}

TEST(CudaResidualPass, FourChannels) { check<float>({.C = 192}); }
TEST(CudaResidualPass, FourChannelsAtTheTop) {
  check<float>({.C = 96, .steers = false});
  check<float>({.C = 96, .steers = false, .fresh = true});
}
TEST(CudaResidualPass, FourChannelsInBf16) { check<bf16>({.C = 192}); }
TEST(CudaResidualPass, TheWidthOfThePaper) { check<float>({.N = 2, .C = 768}); }
TEST(CudaResidualPass, WriteOnly) { check<float>({.erases = false}); }
TEST(CudaResidualPass, OneChannel) {
  check<float>({.D = 1});
  check<bf16>({.D = 1});
  check<float>({.D = 1, .erases = false});
}
TEST(CudaResidualPass, EveryNumberOfChannels) {
  for (Index D = 1; D <= cuda::kMaxChannels; ++D) check<float>({.N = 2, .D = D, .C = 40});
}
TEST(CudaResidualPass, PlainAddition) {
  check<float>({.D = 1, .adds = true});
  check<bf16>({.D = 1, .adds = true, .fresh = true});
  check<float>({.D = 1, .C = 37, .adds = true});
}
TEST(CudaResidualPass, WidthsThatAreNoMultipleOfFour) {
  for (Index C : {7, 31, 33}) check<float>({.N = 2, .C = C});
  check<bf16>({.N = 2, .C = 33});
}
// With one feature k is 1 or -1 whatever h is: dh vanishes, and what is left of it is the rounding of its terms.
TEST(CudaResidualPass, AWidthOfOne) {
  const Case c{.N = 20, .C = 1};
  check<float>(c);
  Tensors<float> native(c), text(c);
  run_native(c, native, false);
  text = native;
  run_native(c, native, true);
  run_text(c, text, true, Order::kFirstToLast);
  const std::vector<double> terms = dh_terms(c, native);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    EXPECT_LT(std::abs(text.dh[i]), kTolerance * terms[i]) << i;
    EXPECT_LT(std::abs(native.dh[i]), kTolerance * terms[i]) << i;
  }
}
TEST(CudaResidualPass, RowsWiderThanABlockHolds) {
  check<float>({.N = 2, .C = 1028});
  check<float>({.N = 1, .D = 1, .C = 2052, .adds = true});
}
// The token compressor stands between write and read: each is a pass of its own, the read over one channel.
TEST(CudaResidualPass, WriteAlone) {
  check<float>({.reads = false});
  check<float>({.D = 3, .reads = false});
}
TEST(CudaResidualPass, ReadAlone) {
  check<float>({.writes = false, .fresh = true});
  check<float>({.D = 1, .writes = false, .fresh = true, .values = 4});
  check<bf16>({.D = 1, .writes = false});
}
// Blocks take several tokens each, and partial gradients of several blocks are joined.
TEST(CudaResidualPass, MoreTokensThanBlocks) {
  check<float>({.N = cuda::kMaxPassBlocks + 3, .D = 1, .C = 8});
}

// Leaves out one barrier after the other: without any of them some order of threads gives other results.
TEST(CudaResidualPass, EveryBarrierIsNeeded) {
  const Case c{.N = 2, .C = 192};
  for (const bool backward : {false, true}) {
    Tensors<float> begin(c);
    if (backward) run_native(c, begin, false);
    Tensors<float> right = begin;
    // A block has one token of the forward pass, two of the backward pass where there is one block.
    run_text(c, right, backward, Order::kFirstToLast);
    const int barriers = 4;                                        // of a token: two sums over the block
    for (int left_out = 0; left_out < barriers - 1; ++left_out) {  // the last one is followed by no sum
      bool differs = false;
      for (const Order order : {Order::kFirstToLast, Order::kLastToFirst}) {
        Tensors<float> without = begin;
        cuda_on_cpu::left_out = left_out;
        run_text(c, without, backward, order);
        cuda_on_cpu::left_out = -1;
        without.with(
            right, [&](const char*, const auto& a, const auto& b) { differs = differs || !same_bits(a, b); });
      }
      EXPECT_TRUE(differs) << "barrier " << left_out << (backward ? " of backward" : " of forward");
    }
  }
}

// The comparison sees a small mistake: a gate off by a hundred-thousandth.
TEST(CudaResidualPass, AWrongGateIsSeen) {
  const Case c{};
  Tensors<float> native(c), text(c);
  for (float& x : text.steer) x *= 1 + 2e-5f;
  run_native(c, native, false);
  run_text(c, text, false, Order::kFirstToLast);
  EXPECT_GT(difference(text.state, native.state), kTolerance);
}

}  // namespace
}  // namespace ddl::cuda_test
