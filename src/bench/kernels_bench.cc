#include "bench/kernels_bench.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <dnnl.hpp>
#include <type_traits>
#include <vector>

#include "bench/measure.h"
#include "core/arena.h"
#include "core/bf16.h"
#include "core/error.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "core/record.h"
#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/depth_attention.h"
#include "kernels/elementwise_residual.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/hyper_connections.h"
#include "kernels/isa.h"
#include "kernels/residual_pass.h"
#include "kernels/rope_qknorm.h"
#include "kernels/short_conv.h"
#include "kernels/softmax_xent.h"
#include "kernels/swiglu.h"
#include "kernels/two_layer_gate.h"
#include "model/residual/delta_coefficients.h"
#include "model/residual/hyper_mixer.h"
#include "model/residual/permutation_mixer.h"

namespace ddl {
namespace {

struct Shape {
  const char* name;
  Index C, D, H, K, F, V, B, T, E;
  Index N() const { return B * T; }
};
// The paper's small model with enough tokens that its data is out of cache, and one that fits.
constexpr Shape kSmall{"small", 768, 4, 6, 128, 2048, 50304, 16, 1024, 4};
constexpr Shape kTiny{"tiny", 128, 4, 4, 32, 341, 1024, 16, 128, 4};

template <class T = float>
std::vector<T> random_floats(Index n, float scale = 1) {
  std::vector<T> x(n);
  const Random random(1, "bench");
  for (Index i = 0; i < n; ++i)
    x[i] = from_float<T>(scale * static_cast<float>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5));
  return x;
}

class KernelsBench {
 public:
  KernelsBench(const KernelsBenchOptions& options, const Exec& ex) : options_(options), ex_(ex) {}

  void run() {
    limits_ = measure_limits(ex_);
    print_limits(limits_, ex_, options_.json);
    for (const Shape& s : {kSmall, kTiny}) {
      if (!options_.json)
        fmt::print(
            "\n{}: width {}, channels {}, heads {} x {}, MLP {}, vocabulary {}, {} x {} tokens\n"
            "{:<34} {:>10} {:>12} {:>10} {:>8}\n",
            s.name, s.C, s.D, s.H, s.K, s.F, s.V, s.B, s.T, "kernel", "time", "GFLOP/s", "GB/s", "share");
      gemm_door(s);
      attention<float>(s, "");
      if (has_fast_bf16()) attention<bf16>(s, ", bf16");
      streaming(s);
      residual(s);
      elementwise_residual(s);
      depth_attention(s);
      mixed_streams(s, "static hyper-connections", StaticHyperMixer(s.D));
      mixed_streams(s, "hyper-connections", HyperMixer(s.D));
      mixed_streams(s, "permuted streams", PermutationMixer());
      two_layer_gate(s);
      short_convolutions(s);
    }
    if (!any_wanted_)
      throw UserError("--only {}: no kernel has this in its name; without --only all are listed",
                      options_.only);
  }

 private:
  bool wanted(const std::string& name) {
    const bool yes = options_.only.empty() || name.find(options_.only) != std::string::npos;
    any_wanted_ |= yes;
    return yes;
  }

  void report(const Shape& s, const std::string& name, const Timing& t, double flops, double bytes,
              double share, const char* share_of) {
    if (options_.json) {
      Json r = make_record("kernel");
      r["shape"] = s.name;
      r["kernel"] = name;
      r["best_s"] = t.best_s;
      r["median_s"] = t.median_s;
      r["runs"] = t.runs;
      if (flops > 0) r["gflops"] = flops / t.best_s / 1e9;
      if (bytes > 0) r["gbps"] = bytes / t.best_s / 1e9;
      r["share"] = share;
      r["share_of"] = share_of;
      std::puts(to_line(r).c_str());
    } else {
      const std::string rate = flops > 0 ? fmt::format("{:.1f}", flops / t.best_s / 1e9) : "";
      const std::string bandwidth = bytes > 0 ? fmt::format("{:.1f}", bytes / t.best_s / 1e9) : "";
      fmt::print("{:<34} {:>7.3f} ms {:>12} {:>10} {:>7.0f}% of {}\n", name, t.best_s * 1e3, rate, bandwidth,
                 100 * share, share_of);
    }
    std::fflush(stdout);
  }

  // A kernel whose limit is memory. Bytes that must move: inputs once, outputs that are also inputs twice,
  // and outputs that are not twice as well, because the machine fetches a line before it is overwritten.
  void stream(const Shape& s, const std::string& name, double bytes, FunctionRef<void()> body) {
    if (!wanted(name)) return;
    const Timing t = time_it(body);
    report(s, name, t, 0, bytes, bytes / t.best_s / 1e9 / limits_.stream_gbps, "streaming");
  }

  // A kernel whose limit is arithmetic on inputs of type T.
  template <class T>
  void compute(const Shape& s, const std::string& name, double flops, FunctionRef<void()> body) {
    if (!wanted(name)) return;
    const Timing t = time_it(body);
    const bool in_bf16 = std::is_same_v<T, bf16>;
    const double peak = in_bf16 ? limits_.bf16_gflops : limits_.f32_gflops;
    report(s, name, t, flops, 0, flops / t.best_s / 1e9 / peak, in_bf16 ? "bf16 GEMM" : "f32 GEMM");
  }

  // The GEMM wrapper compared with direct calls of the library on the same data.
  void gemm_door(const Shape& s) {
    const Index N = s.N() / 4;  // 4096 tokens: the batch of a training step
    struct Product {
      const char* name;
      Op a, b;
      Index M, N, K;
    };
    const Product products[] = {
        {"gemm qkv      y = x W^T", Op::kNone, Op::kTranspose, N, 3 * s.C, s.C},
        {"gemm MLP in   y = x W^T", Op::kNone, Op::kTranspose, N, 2 * s.F, s.C},
        {"gemm MLP out  y = x W^T", Op::kNone, Op::kTranspose, N, s.C, s.F},
        {"gemm MLP in   dx = dy W", Op::kNone, Op::kNone, N, s.C, 2 * s.F},
        {"gemm MLP in   dW += dy^T x", Op::kTranspose, Op::kNone, 2 * s.F, s.C, N},
        {"gemm head     y = x W^T", Op::kNone, Op::kTranspose, N / 8, s.V, s.C},
    };
    for (const Product& p : products) {
      if (!wanted(p.name)) continue;
      const auto a = random_floats(p.M * p.K), b = random_floats(p.K * p.N);
      std::vector<float> c(p.M * p.N);
      const Matrix<float> am{a.data(), p.a == Op::kNone ? p.K : p.M, p.a};
      const Matrix<float> bm{b.data(), p.b == Op::kNone ? p.N : p.K, p.b};
      const double flops =
          2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
      const auto wrapper = [&] {
        gemm<float, float>(c.data(), p.N, Write::kOverwrite, am, bm, p.M, p.N, p.K, ex_);
      };
      const auto direct = [&] {
        dnnl_sgemm(p.a == Op::kNone ? 'N' : 'T', p.b == Op::kNone ? 'N' : 'T', p.M, p.N, p.K, 1.0f, a.data(),
                   am.ld, b.data(), bm.ld, 0.0f, c.data(), p.N);
      };
      // Interleaved, so that both see the same machine.
      Timing through{1e30, 1e30, 0}, library{1e30, 1e30, 0};
      for (int round = 0; round < 3; ++round) {
        const Timing d = time_it(wrapper, 0.1), l = time_it(direct, 0.1);
        if (d.best_s < through.best_s) through = d;
        if (l.best_s < library.best_s) library = l;
      }
      report(s, p.name, through, flops, 0, library.best_s / through.best_s, "direct oneDNN");
      if (!has_fast_bf16()) continue;
      const std::vector<bf16> a16(a.size()), b16(b.size());
      compute<bf16>(s, std::string(p.name) + ", bf16", flops, [&] {
        gemm<bf16, float>(c.data(), p.N, Write::kOverwrite, {a16.data(), am.ld, p.a},
                          {b16.data(), bm.ld, p.b}, p.M, p.N, p.K, ex_);
      });
    }
  }

  // FLOPs over the unmasked half: 2 products forward, 5 backward, 2 K each for every pair of positions.
  template <class T>
  void attention(const Shape& s, const std::string& suffix) {
    const Index B = s.B / 4, N = B * s.T, C = s.C;
    const double pairs =
        static_cast<double>(B * s.H) * static_cast<double>(s.T) * static_cast<double>(s.T + 1) / 2;
    const auto qkv = random_floats<T>(N * 3 * C), dO = random_floats<T>(N * C);
    const auto q = random_floats<T>(N * C), k = random_floats<T>(N * C);
    std::vector<T> o(N * C), dq(N * C), dk(N * C), dv(N * C);
    std::vector<float> lse(N * s.H);
    std::vector<float> scratch_floats(attention_scratch_bytes(s.T, s.K, ex_.threads) / sizeof(float) + 32);
    std::byte* scratch = reinterpret_cast<std::byte*>(
        round_up(reinterpret_cast<Index>(scratch_floats.data()), static_cast<Index>(Arena::kAlignBytes)));
    const HeadRows<const T> qr{q.data(), C}, kr{k.data(), C}, vr{qkv.data() + 2 * C, 3 * C},
        dor{dO.data(), C};
    compute<T>(s, "attention forward" + suffix, 4 * static_cast<double>(s.K) * pairs, [&] {
      attention_fwd<T>({o.data(), C}, lse.data(), scratch, qr, kr, vr, B, s.T, s.H, s.K, ex_);
    });
    compute<T>(s, "attention backward" + suffix, 10 * static_cast<double>(s.K) * pairs, [&] {
      attention_bwd<T>({dq.data(), C}, {dk.data(), C}, {dv.data(), C}, scratch, dor, {o.data(), C},
                       lse.data(), qr, kr, vr, B, s.T, s.H, s.K, ex_);
    });
  }

  void streaming(const Shape& s) {
    const Index N = s.N(), C = s.C, F = s.F, H = s.H, K = s.K;
    const double row = static_cast<double>(N * C) * 4;
    {
      auto x = random_floats(N * C);
      const auto w = random_floats(C), dy = random_floats(N * C);
      std::vector<float> y(N * C), rstd(N), dx(N * C), dw(C), scratch(residual_bwd_scratch(1, C, 0));
      const ReadFwd<float> fwd{.norm_C = w.data(), .context_NC = y.data(), .rstd_N = rstd.data()};
      const ReadBwd<float> bwd{.norm_C = w.data(),
                               .rstd_N = rstd.data(),
                               .dcontext_NC = dy.data(),
                               .dstate_mode = Write::kOverwrite,
                               .dnorm_C = dw.data()};
      stream(s, "rmsnorm forward", 3 * row,
             [&] { residual_fwd<float>(x.data(), nullptr, &fwd, N, 1, C, ex_); });
      stream(s, "rmsnorm backward", 4 * row,
             [&] { residual_bwd<float>(x.data(), dx.data(), &bwd, nullptr, scratch.data(), N, 1, C, ex_); });
    }
    {
      const auto qkv = random_floats(N * 3 * C), w = random_floats(K), dq = random_floats(N * C);
      std::vector<float> q(N * C), k(N * C), rstd(N * 2 * H), table(s.T * K), dqkv(N * 3 * C), dw(K), dw2(K);
      std::vector<float> scratch(rope_qknorm_scratch_floats(K));
      fill_rope_table(table.data(), s.T, K);
      stream(s, "rope + qk-norm forward", 6 * row, [&] {
        rope_qknorm_fwd<float>(q.data(), k.data(), rstd.data(), qkv.data(), w.data(), w.data(), table.data(),
                               nullptr, N, s.T, H, K, ex_);
      });
      stream(s, "rope + qk-norm backward", 7 * row, [&] {
        rope_qknorm_bwd<float>(dqkv.data(), dw.data(), dw2.data(), scratch.data(), dq.data(), C, dq.data(), C,
                               qkv.data(), rstd.data(), w.data(), w.data(), table.data(), nullptr, N, s.T, H,
                               K, ex_);
      });
    }
    {
      const auto gate_up = random_floats(N * 2 * F), dhidden = random_floats(N * F);
      std::vector<float> hidden(N * F), dgate_up(N * 2 * F);
      const double wide = static_cast<double>(N * F) * 4;
      stream(s, "swiglu forward", 4 * wide,
             [&] { swiglu_fwd<float>(hidden.data(), gate_up.data(), N, F, ex_); });
      stream(s, "swiglu backward", 7 * wide,
             [&] { swiglu_bwd<float>(dgate_up.data(), nullptr, dhidden.data(), gate_up.data(), N, F, ex_); });
    }
    {
      const Index rows = std::max<Index>(1, 512);
      auto logits = random_floats(rows * s.V);
      std::vector<float> loss(rows), dlogits(rows * s.V);
      const std::vector<std::int32_t> target(rows, 3);
      stream(s, "softmax + cross-entropy fwd + bwd", 3.0 * 4 * static_cast<double>(rows * s.V), [&] {
        softmax_xent_fwd_bwd<float>(dlogits.data(), loss.data(), nullptr, logits.data(), target.data(), 1, 1,
                                    rows, s.V, ex_);
      });
    }
    {
      const auto wte = random_floats(s.V * C);
      std::vector<float> x(N * C), dwte(s.V * C);
      std::vector<std::int32_t> token(N);
      const Random random(2, "tokens");
      for (Index n = 0; n < N; ++n)
        token[n] = static_cast<std::int32_t>(
            random.below(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(s.V)));
      stream(s, "embedding gather", 3 * row,
             [&] { embedding_fwd<float, float>(x.data(), wte.data(), token.data(), N, s.V, C, ex_); });
      stream(s, "embedding scatter-add", 3 * row,
             [&] { embedding_bwd<float>(dwte.data(), x.data(), token.data(), N, s.V, C, ex_); });
    }
    {
      const Index n = s.C * s.C * 24;
      auto p = random_floats(n), g = random_floats(n);
      std::vector<float> m(n), v(n, 1e-3f);
      std::vector<bf16> copy(n);
      stream(s, "adamw + bf16 copy", static_cast<double>(n) * (7 * 4 + 2 * 2),
             [&] { adamw_step(p.data(), m.data(), v.data(), copy.data(), g.data(), false, {}, n, ex_); });
      stream(s, "sum of squares", static_cast<double>(n) * 4, [&] { sum_of_squares(g.data(), n, ex_); });
    }
  }

  // The delta rewrite, the channel compressor, and both with norm and branches in one pass.
  void residual(const Shape& s) {
    const Index N = s.N(), D = s.D, C = s.C;
    const double row = static_cast<double>(N * C) * 4, state_bytes = row * static_cast<double>(D);
    auto X = random_floats(N * D * C);
    const auto h = random_floats(N * C), mix = random_floats(D * C, 0.5f), norm = random_floats(C);
    const auto gate_w = random_floats(C, 0.1f), gate_b = random_floats(1),
               value_w = random_floats(D * C, 0.1f);
    const auto value_b = random_floats(D), dcontext = random_floats(N * C);
    const DeltaCoefficients delta(DeltaCoefficients::Erase::kYes);
    const Index R = 1 + D;  // steering numbers: a gate and a target per channel
    std::vector<float> steer(N * R, 0.5f), next_steer(N * R), dsteer(N * R),
        saved(N * delta.saved_per_token(D));
    std::vector<float> rstd(N), context(N * C), dX = random_floats(N * D * C), dh(N * C);
    std::vector<float> dmix(D * C), dnorm(C), dgate_w(C), dgate_b(1), dvalue_w(D * C), dvalue_b(D);
    std::vector<float> scratch(residual_bwd_scratch(D, C, R));
    const Branch branches[] = {{.rows = 1,
                                .activation = Activation::kSigmoid,
                                .scale = 2,
                                .w_RC = gate_w.data(),
                                .b_R = gate_b.data(),
                                .dw_RC = dgate_w.data(),
                                .db_R = dgate_b.data()},
                               {.first = 1,
                                .rows = D,
                                .input = BranchInput::kUnnormed,
                                .activation = Activation::kSigmoid,
                                .scale = 4,
                                .w_RC = value_w.data(),
                                .b_R = value_b.data(),
                                .dw_RC = dvalue_w.data(),
                                .db_R = dvalue_b.data()}};
    const WriteFwd<float> write{.coefficients = &delta,
                                .h_NC = h.data(),
                                .steer_NR = steer.data(),
                                .steer_stride = R,
                                .saved_NQ = saved.data()};
    const ReadFwd<float> compress{
        .mix_DC = mix.data(), .norm_C = norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()};
    ReadFwd<float> read = compress;
    read.branches = branches, read.steer_NR = next_steer.data(), read.steer_stride = R;
    const auto forward = [&](const WriteFwd<float>* w, const ReadFwd<float>* f) {
      residual_fwd<float>(X.data(), w, f, N, D, C, ex_);
    };
    stream(s, "delta rewrite forward", 2 * state_bytes + row, [&] { forward(&write, nullptr); });
    stream(s, "channel compress + norm forward", state_bytes + 2 * row, [&] { forward(nullptr, &compress); });
    stream(s, "fused write-read-norm-branch fwd", 2 * state_bytes + 3 * row, [&] { forward(&write, &read); });

    const ReadBwd<float> read_bwd{.mix_DC = mix.data(),
                                  .norm_C = norm.data(),
                                  .rstd_N = rstd.data(),
                                  .dcontext_NC = dcontext.data(),
                                  .branches = branches,
                                  .steer_NR = next_steer.data(),
                                  .dsteer_NR = next_steer.data(),
                                  .steer_stride = R,
                                  .dmix_DC = dmix.data(),
                                  .dnorm_C = dnorm.data()};
    const WriteBwd<float> write_bwd{.coefficients = &delta,
                                    .h_NC = h.data(),
                                    .steer_NR = steer.data(),
                                    .steer_stride = R,
                                    .saved_NQ = saved.data(),
                                    .dh_NC = dh.data(),
                                    .dsteer_NR = dsteer.data()};
    const auto backward = [&](const ReadBwd<float>* f, const WriteBwd<float>* w) {
      residual_bwd<float>(X.data(), dX.data(), f, w, scratch.data(), N, D, C, ex_);
    };
    stream(s, "delta rewrite backward", 4 * state_bytes + 3 * row, [&] { backward(nullptr, &write_bwd); });
    stream(s, "channel compress + norm backward", 3 * state_bytes + row,
           [&] { backward(&read_bwd, nullptr); });
    stream(s, "fused write-read-norm-branch bwd", 4 * state_bytes + 4 * row,
           [&] { backward(&read_bwd, &write_bwd); });
  }

  // Writes of decay-x0 and highway with the norm behind them. States in front of writes are stored, so nothing is
  // written in place.
  void elementwise_residual(const Shape& s) {
    const Index N = s.N() / 4, C = s.C;
    const double row = static_cast<double>(N * C) * 4;
    const auto x = random_floats(N * C), x0 = random_floats(N * C), h = random_floats(N * C),
               dcontext = random_floats(N * C), norm = random_floats(C), w = random_floats(C);
    std::vector<float> next(N * C), context(N * C), rstd(N, 1.0f), next_rstd(N), gates(N), dh(N * C),
        dx0(N * C), dstate = random_floats(N * C);
    std::vector<float> dnext_norm(C), dnorm(C), dw(C), dbias(C), dab(2),
        scratch(elementwise_residual_scratch(C));
    const NormFwd<float> norm_forward{
        .norm_C = norm.data(), .context_NC = context.data(), .rstd_N = next_rstd.data()};
    const NormBwd norm_backward{.norm_C = norm.data(),
                                .rstd_N = next_rstd.data(),
                                .dcontext_NC = dcontext.data(),
                                .dnorm_C = dnext_norm.data()};
    const DecayFwd<float> decay{
        .a = 0.9f, .b = 0.1f, .x_NC = x.data(), .x0_NC = x0.data(), .h_NC = h.data(), .next_NC = next.data()};
    stream(s, "decay write + norm forward", 7 * row, [&] { decay_fwd(decay, norm_forward, N, C, ex_); });
    const DecayBwd<float> decay_back{.a = 0.9f,
                                     .b = 0.1f,
                                     .next_NC = next.data(),
                                     .x_NC = x.data(),
                                     .x0_NC = x0.data(),
                                     .dh_NC = dh.data(),
                                     .dstate_NC = dstate.data(),
                                     .dx0_NC = dx0.data(),
                                     .da = dab.data(),
                                     .db = dab.data() + 1};
    stream(s, "decay write + norm backward", 10 * row,
           [&] { decay_bwd(decay_back, norm_backward, scratch.data(), N, C, ex_); });
    const HighwayFwd<float> highway{.w_C = w.data(),
                                    .bias_C = w.data(),
                                    .x_NC = x.data(),
                                    .norm_C = norm.data(),
                                    .rstd_N = rstd.data(),
                                    .h_NC = h.data(),
                                    .next_NC = next.data(),
                                    .mean_gate_N = gates.data()};
    stream(s, "highway write + norm forward", 6 * row,
           [&] { highway_fwd(highway, norm_forward, N, C, ex_); });
    const HighwayBwd<float> highway_back{.w_C = w.data(),
                                         .bias_C = w.data(),
                                         .next_NC = next.data(),
                                         .x_NC = x.data(),
                                         .norm_C = norm.data(),
                                         .rstd_N = rstd.data(),
                                         .h_NC = h.data(),
                                         .dh_NC = dh.data(),
                                         .dstate_NC = dstate.data(),
                                         .dw_C = dw.data(),
                                         .dbias_C = dbias.data(),
                                         .dnorm_C = dnorm.data()};
    stream(s, "highway write + norm backward", 8 * row,
           [&] { highway_bwd(highway_back, norm_backward, scratch.data(), N, C, ex_); });
  }

  // The read in the middle of 12 layers: the embedding and 12 outputs.
  void depth_attention(const Shape& s) {
    constexpr Index I = 13;
    const Index N = s.N() / 4, C = s.C;
    const double row = static_cast<double>(N * C) * 4, sources_bytes = row * I;
    const auto V = random_floats(N * C * I), q = random_floats(C), norm = random_floats(C),
               dcontext = random_floats(N * C);
    std::vector<float> dV(N * C * I), rho(N, 1.0f), newest_rho(N), alpha(N * I), context(N * C), rstd(N),
        dh(N * C);
    std::vector<float> dq(C), dnorm(C), scratch(depth_attention_scratch(C));
    std::vector<const float*> others, rhos(I, rho.data());
    std::vector<float*> dothers;
    for (Index i = 1; i < I; ++i)
      others.push_back(V.data() + i * N * C), dothers.push_back(dV.data() + i * N * C);
    rhos.back() = newest_rho.data();
    const DepthSources<float> sources{.count = I,
                                      .first_NC = V.data(),
                                      .others_NC = others.data(),
                                      .rho_N = rhos.data(),
                                      .q_C = q.data(),
                                      .norm_C = norm.data()};
    const DepthRead<float> read{.newest_rho_N = newest_rho.data(),
                                .alpha_NI = alpha.data(),
                                .context_NC = context.data(),
                                .rstd_N = rstd.data()};
    stream(s, "attention over depth forward", sources_bytes + 2 * row,
           [&] { depth_attention_fwd<float, float>(read, nullptr, sources, N, C, ex_); });
    const DepthReadBwd<float, float> back{.alpha_NI = alpha.data(),
                                          .rstd_N = rstd.data(),
                                          .dcontext_NC = dcontext.data(),
                                          .dfirst_NC = dV.data(),
                                          .dothers_NC = dothers.data(),
                                          .dh_NC = dh.data(),
                                          .dq_C = dq.data(),
                                          .dnorm_C = dnorm.data()};
    // The newest source's gradient is read, and written to dh.
    stream(s, "attention over depth backward", 3 * sources_bytes + 2 * row,
           [&] { depth_attention_bwd<float, float>(back, sources, scratch.data(), N, C, ex_); });
  }

  // A sublayer's write and the next one's read. States in front of writes are stored, so the state is read in one
  // place and written to another.
  void mixed_streams(const Shape& s, const std::string& name, const StreamMixer& mixer) {
    const Index N = s.N() / 4, D = s.D, C = s.C, K = StreamNumbers{D}.count();
    const double row = static_cast<double>(N * C) * 4, state_bytes = row * static_cast<double>(D);
    const auto from = random_floats(N * D * C), h = random_floats(N * C), numbers = random_floats(N * K),
               w = random_floats(mixer.weights(D, C), 0.1f), extra = random_floats(mixer.extra_count()),
               norm = random_floats(C), dcontext = random_floats(N * C), dnumbers = random_floats(N * K);
    std::vector<float> to(N * D * C), dots(N * mixer.dots(D)), square(N * D), next_numbers(N * K),
        context(N * C), rstd(N), dstate = random_floats(N * D * C), dh(N * C), own_dnumbers(N * K),
                                 dw(mixer.weights(D, C)), dextra(mixer.extra_count()), dnorm(C),
                                 scratch(streams_bwd_scratch(mixer, D, C));
    const StreamsLook look{.mixer = &mixer,
                           .w = w.data(),
                           .extra = extra.data(),
                           .dots_NQ = dots.data(),
                           .square_ND = square.data(),
                           .numbers_NK = next_numbers.data()};
    const StreamsWriteFwd<float> write{from.data(), h.data(), numbers.data()};
    const StreamsReadFwd<float> read{
        .look = look, .norm_C = norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()};
    stream(s, name + " forward", 3 * state_bytes + 3 * row,
           [&] { streams_fwd<float>(to.data(), &write, &read, N, D, C, ex_); });
    const StreamsReadBwd<float> read_back{.look = look,
                                          .state_NDC = to.data(),
                                          .norm_C = norm.data(),
                                          .rstd_N = rstd.data(),
                                          .dcontext_NC = dcontext.data(),
                                          .dnumbers_NK = dnumbers.data(),
                                          .dw = dw.data(),
                                          .dextra = dextra.data(),
                                          .dnorm_C = dnorm.data()};
    const StreamsWriteBwd<float> write_back{.from_NDC = from.data(),
                                            .h_NC = h.data(),
                                            .numbers_NK = numbers.data(),
                                            .dh_NC = dh.data(),
                                            .dnumbers_NK = own_dnumbers.data()};
    stream(s, name + " backward", 4 * state_bytes + 4 * row,
           [&] { streams_bwd<float>(dstate.data(), &read_back, &write_back, scratch.data(), N, D, C, ex_); });
  }

  void two_layer_gate(const Shape& s) {
    const Index N = s.N(), G = 128;
    const double row = static_cast<double>(N * G) * 4;
    const auto hidden = random_floats(N * G), w2 = random_floats(G), b2 = random_floats(1),
               dbeta = random_floats(N);
    std::vector<float> beta(N), dhidden(N * G), dw2(G), db2(1), scratch(two_layer_gate_scratch(G));
    stream(s, "two-layer gate forward", row,
           [&] { two_layer_gate_fwd(beta.data(), 1, 2, hidden.data(), w2.data(), b2.data(), N, G, ex_); });
    stream(s, "two-layer gate backward", 3 * row, [&] {
      two_layer_gate_bwd<float>(dhidden.data(), dw2.data(), db2.data(), dbeta.data(), beta.data(), 1, 2,
                                hidden.data(), w2.data(), scratch.data(), N, G, ex_);
    });
  }

  void short_convolutions(const Shape& s) {
    const Index N = s.N(), D = s.D, C = s.C, E = s.E;
    const double row = static_cast<double>(N * C) * 4, state_bytes = row * static_cast<double>(D);
    auto X = random_floats(N * D * C), x = random_floats(N * C);
    const auto w = random_floats(E * D * C), read = random_floats(D);
    std::vector<float> dX(N * D * C), dx(N * C), dw(E * D * C), dread(D),
        scratch(short_conv_scratch(D, C, E));
    stream(s, "embedding convolution forward", 2 * state_bytes + row,
           [&] { embedding_conv_fwd(X.data(), x.data(), w.data(), N, s.T, D, C, E, ex_); });
    stream(s, "embedding convolution backward", state_bytes + 3 * row, [&] {
      embedding_conv_bwd(dx.data(), dw.data(), X.data(), x.data(), w.data(), scratch.data(), N, s.T, D, C, E,
                         ex_);
    });
    stream(s, "token compress forward", state_bytes + 2 * row,
           [&] { token_compress_fwd(x.data(), X.data(), w.data(), read.data(), N, s.T, D, C, E, ex_); });
    stream(s, "token compress backward", 3 * state_bytes + row, [&] {
      token_compress_bwd(dX.data(), Write::kAccumulate, dw.data(), dread.data(), x.data(), X.data(), w.data(),
                         read.data(), scratch.data(), N, s.T, D, C, E, ex_);
    });
  }

  KernelsBenchOptions options_;
  Exec ex_;
  MachineLimits limits_{};
  bool any_wanted_ = false;
};

}  // namespace

void run_kernels_bench(const KernelsBenchOptions& options, const Exec& ex) {
  KernelsBench(options, ex).run();
}

}  // namespace ddl
