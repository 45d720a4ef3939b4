#include "kernels/residual.h"

#include <cmath>
#include <cstring>

#include "kernels/isa.h"
#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// sums[g] = sum_i a_i * rows[g * C + i]
template <Index G, class T>
HWY_INLINE void Dots(float* sums, const T* HWY_RESTRICT a, const float* HWY_RESTRICT rows, Index C) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec even[G], odd[G];
  for (Index g = 0; g < G; ++g) even[g] = odd[g] = hn::Zero(d);
  Index i = 0;
  for (; i + 2 * lanes <= C; i += 2 * lanes) {
    const Vec a0 = LoadF(d, a + i), a1 = LoadF(d, a + i + lanes);
    for (Index g = 0; g < G; ++g) {
      even[g] = hn::MulAdd(a0, hn::LoadU(d, rows + g * C + i), even[g]);
      odd[g] = hn::MulAdd(a1, hn::LoadU(d, rows + g * C + i + lanes), odd[g]);
    }
  }
  for (Index g = 0; g < G; ++g) sums[g] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[g], odd[g])));
  for (; i < C; ++i)
    for (Index g = 0; g < G; ++g) sums[g] += to_float(a[i]) * rows[g * C + i];
}

template <class T>
HWY_INLINE float SquaredNorm(const T* x, Index C) {
  return Sum(C, [=](auto d, Index i) HWY_ATTR {
    const auto v = LoadF(d, x + i);
    return hn::Mul(v, v);
  });
}

// --- forward
// ----------------------------------------------------------------------------------------------------------

// coef_d, so that the write is X_d += coef_d h.
template <class T>
HWY_INLINE void WriteCoefficients(float* coef_D, const WriteFwd<T>& w, const float* X, Index n, Index D,
                                  Index C) {
  const T* h = w.h_NC + n * C;
  const float kscale = 1 / std::sqrt(SquaredNorm(h, C) + w.k_eps * w.k_eps);
  w.kscale_N[n] = kscale;
  const float* v = w.v_ND + n * D;
  if (w.rule == WriteRule::kDelta) {
    float* r = w.readout_ND + n * D;
    ForGroups(D, [&](Index d, auto G) HWY_ATTR { Dots<G>(r + d, h, X + d * C, C); });
    for (Index d = 0; d < D; ++d) r[d] *= kscale;
    for (Index d = 0; d < D; ++d) coef_D[d] = w.beta_N[n] * (v[d] - r[d]) * kscale;
  } else {
    for (Index d = 0; d < D; ++d) coef_D[d] = w.beta_N[n] * v[d] * kscale;
  }
}

// X_d += coef_d h for the planes d < D, and where mix is given x_in = sum_d mix_d * X_d in the same sweep.
template <class T>
HWY_INLINE void WriteAndMix(float* HWY_RESTRICT X, float* HWY_RESTRICT x_in, const T* HWY_RESTRICT h,
                            const float* coef_D, const float* HWY_RESTRICT mix_DC, Index D, Index C) {
  ForGroups(D, [&](Index d, auto G) HWY_ATTR {
    float* planes = X + d * C;
    const float* mix = mix_DC ? mix_DC + d * C : nullptr;
    const auto sweep = [&](auto write, auto read) HWY_ATTR {
      ForEach(C, [&](auto tag, Index i) HWY_ATTR {
        auto sum = hn::Zero(tag);
        if (read && d > 0) sum = hn::LoadU(tag, x_in + i);
        auto hv = hn::Zero(tag);
        if constexpr (write) hv = LoadF(tag, h + i);
        for (Index g = 0; g < G; ++g) {
          hwy::Prefetch(planes + (g + D) * C + i);
          auto x = hn::LoadU(tag, planes + g * C + i);
          if constexpr (write) {
            x = hn::MulAdd(hn::Set(tag, coef_D[d + g]), hv, x);
            hn::StoreU(x, tag, planes + g * C + i);
          }
          if constexpr (read) sum = hn::MulAdd(hn::LoadU(tag, mix + g * C + i), x, sum);
        }
        if constexpr (read) hn::StoreU(sum, tag, x_in + i);
      });
    };
    const std::true_type yes;
    const std::false_type no;
    if (h && mix)
      sweep(yes, yes);
    else if (h)
      sweep(yes, no);
    else
      sweep(no, yes);
  });
}

// context = x_in * rstd * norm, and the branches' outputs.
template <class T>
HWY_INLINE void NormAndBranch(const ReadFwd<T>& r, const float* HWY_RESTRICT x_in, Index n, Index C) {
  const float rstd = 1 / std::sqrt(SquaredNorm(x_in, C) / static_cast<float>(C) + r.norm_eps);
  r.rstd_N[n] = rstd;
  float context[kMaxWidth];  // unrounded, for the branches
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    const auto c =
        hn::Mul(hn::Mul(hn::LoadU(tag, x_in + i), hn::Set(tag, rstd)), hn::LoadU(tag, r.norm_C + i));
    hn::StoreU(c, tag, context + i);
    StoreF(c, tag, r.context_NC + n * C + i);
  });
  const BranchWeights& b = r.branches;
  if (!b.value_w_DC) return;
  if (b.gate_w_C) {
    float logit;
    Dots<1>(&logit, context, b.gate_w_C, C);
    r.beta_N[n] = 2 * Sigmoid1(logit + *b.gate_b);
  }
  float* v = r.v_ND + n * b.channels;
  const float* input = b.value == ValueBranch::kSigmoid ? x_in : context;
  ForGroups(b.channels, [&](Index d, auto G) HWY_ATTR { Dots<G>(v + d, input, b.value_w_DC + d * C, C); });
  if (b.value == ValueBranch::kLinear) return;
  for (Index d = 0; d < b.channels; ++d) v[d] += b.value_b_D[d];
  if (b.value == ValueBranch::kSigmoid)
    for (Index d = 0; d < b.channels; ++d) v[d] = kValueScale * Sigmoid1(v[d]);
}

template <class T>
void ForwardTokens(float* state_NDC, const WriteFwd<T>* write, const ReadFwd<T>* read, Index begin, Index end,
                   Index D, Index C) {
  float mixed[kMaxWidth];
  float coef[kMaxChannels];
  for (Index n = begin; n < end; ++n) {
    float* X = state_NDC + n * D * C;
    const T* h = write ? write->h_NC + n * C : nullptr;
    if (write) {
      if (write->rule == WriteRule::kAdd)
        coef[0] = 1;
      else
        WriteCoefficients(coef, *write, X, n, D, C);
    }
    const float* mix = read ? read->mix_DC : nullptr;
    if (write || mix) WriteAndMix(X, mixed, h, coef, mix, D, C);
    if (read) NormAndBranch(*read, mix ? mixed : X, n, C);
  }
}

void ForwardF32(float* s, const WriteFwd<float>* w, const ReadFwd<float>* r, Index b, Index e, Index D,
                Index C) {
  ForwardTokens(s, w, r, b, e, D, C);
}
void ForwardBf16(float* s, const WriteFwd<bf16>* w, const ReadFwd<bf16>* r, Index b, Index e, Index D,
                 Index C) {
  ForwardTokens(s, w, r, b, e, D, C);
}

// --- backward
// ---------------------------------------------------------------------------------------------------------

// Where one piece collects its share of the weight gradients.
struct PieceGradients {
  float *norm_C, *gate_w_C, *gate_b, *value_w_DC, *value_b_D, *mix_DC;
};

// From dcontext, dbeta, dv to dx_in. Adds to the piece's gradients of norm and branches.
template <class T>
HWY_INLINE void NormAndBranchBackward(float* HWY_RESTRICT dx_in, const ReadBwd<T>& r,
                                      const float* HWY_RESTRICT x_in, const PieceGradients& piece, Index n,
                                      Index C) {
  const BranchWeights& b = r.branches;
  const float rstd = r.rstd_N[n];
  float total[kMaxWidth];  // dL/dcontext by all paths
  std::memcpy(total, r.dcontext_NC + n * C, static_cast<std::size_t>(C) * sizeof(float));

  // Branches. du_d = dL/du_d of the value's pre-activation, dlogit that of the gate's.
  const bool from_context = b.value != ValueBranch::kSigmoid;
  const Index channels = b.value_w_DC ? b.channels : 0;
  float du[kMaxChannels];
  float dlogit = 0;
  if (channels) {
    for (Index d = 0; d < channels; ++d) {
      const float v = r.v_ND[n * channels + d], dv = r.dv_ND[n * channels + d];
      du[d] = from_context ? dv : dv * v * (1 - v / kValueScale);
      if (b.value != ValueBranch::kLinear) piece.value_b_D[d] += du[d];
    }
    if (b.gate_w_C) {
      dlogit = r.dbeta_N[n] * r.beta_N[n] * (1 - r.beta_N[n] / 2);
      *piece.gate_b += dlogit;
    }
  }
  // total += dlogit gate_w + sum_d du_d value_w_d;  gradients of the weights: outer products with their
  // input.
  if (b.gate_w_C)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      const auto c =
          hn::Mul(hn::Mul(hn::LoadU(tag, x_in + i), hn::Set(tag, rstd)), hn::LoadU(tag, r.norm_C + i));
      const auto g = hn::Set(tag, dlogit);
      hn::StoreU(hn::MulAdd(g, hn::LoadU(tag, b.gate_w_C + i), hn::LoadU(tag, total + i)), tag, total + i);
      hn::StoreU(hn::MulAdd(g, c, hn::LoadU(tag, piece.gate_w_C + i)), tag, piece.gate_w_C + i);
    });
  float from_value[kMaxWidth];  // sum_d du_d value_w_d
  if (channels)
    ForGroups(channels, [&](Index d, auto G) HWY_ATTR {
      ForEach(C, [&](auto tag, Index i) HWY_ATTR {
        auto input = hn::LoadU(tag, x_in + i);
        if (from_context) input = hn::Mul(hn::Mul(input, hn::Set(tag, rstd)), hn::LoadU(tag, r.norm_C + i));
        auto sum = d > 0 ? hn::LoadU(tag, from_value + i) : hn::Zero(tag);
        for (Index g = 0; g < G; ++g) {
          const Index row = (d + g) * C + i;
          const auto u = hn::Set(tag, du[d + g]);
          sum = hn::MulAdd(u, hn::LoadU(tag, b.value_w_DC + row), sum);
          hn::StoreU(hn::MulAdd(u, input, hn::LoadU(tag, piece.value_w_DC + row)), tag,
                     piece.value_w_DC + row);
        }
        hn::StoreU(sum, tag, from_value + i);
      });
    });
  const auto add_value = [&](float* to) HWY_ATTR {
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(tag, to + i), hn::LoadU(tag, from_value + i)), tag, to + i);
    });
  };
  if (channels && from_context) add_value(total);

  // RMSNorm: with y = x rstd w,  dx = rstd (w dy - x rstd^2 mean(w dy x)),  dw += dy x rstd.
  const float mean = Sum(C,
                         [&](auto tag, Index i) HWY_ATTR {
                           return hn::Mul(hn::Mul(hn::LoadU(tag, total + i), hn::LoadU(tag, r.norm_C + i)),
                                          hn::LoadU(tag, x_in + i));
                         }) /
                     static_cast<float>(C);
  const float pull = rstd * rstd * rstd * mean;
  ForEach(C, [&](auto tag, Index i) HWY_ATTR {
    const auto x = hn::LoadU(tag, x_in + i);
    const auto scaled = hn::Mul(hn::LoadU(tag, total + i), hn::Set(tag, rstd));  // dy rstd
    hn::StoreU(hn::NegMulAdd(hn::Set(tag, pull), x, hn::Mul(scaled, hn::LoadU(tag, r.norm_C + i))), tag,
               dx_in + i);
    hn::StoreU(hn::MulAdd(scaled, x, hn::LoadU(tag, piece.norm_C + i)), tag, piece.norm_C + i);
  });
  if (channels && !from_context) add_value(dx_in);
}

// dX_d (+)= mix_d dx_in;  dmix_d += dx_in X_d.
template <class T>
HWY_INLINE void MixBackward(float* HWY_RESTRICT dX, const ReadBwd<T>& r, const float* HWY_RESTRICT dx_in,
                            const float* HWY_RESTRICT X, const PieceGradients& piece, Index D, Index C) {
  const bool fresh = r.dstate_mode == Write::kOverwrite;
  for (Index d = 0; d < D; ++d)
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      const Index at = d * C + i;
      hwy::Prefetch(X + at + D * C);
      hwy::Prefetch(dX + at + D * C);
      const auto g = hn::LoadU(tag, dx_in + i);
      const auto before = fresh ? hn::Zero(tag) : hn::LoadU(tag, dX + at);
      if (!r.mix_DC) {
        hn::StoreU(hn::Add(before, g), tag, dX + at);
        return;
      }
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, r.mix_DC + at), g, before), tag, dX + at);
      hn::StoreU(hn::MulAdd(g, hn::LoadU(tag, X + at), hn::LoadU(tag, piece.mix_DC + at)), tag,
                 piece.mix_DC + at);
    });
}

// With s = kscale, k = s h, e = 1 for kDelta and 0 for kWriteOnly, g_d = dX_d on entry, a_d = k . g_d:
//   walk back   X_d  -= beta (v_d - e r_d) k
//   dv_d        = beta a_d                     dbeta = sum_d (v_d - e r_d) a_d
//   dk          = sum_d beta (v_d - e r_d) g_d - e beta a_d X_d
//   dh          = s (dk - k (k . dk)),         k . dk = sum_d beta a_d (v_d - 2 e r_d)     since k . X_d =
//   r_d dX_d        = g_d - e beta a_d k
template <class T>
HWY_INLINE void WriteBackward(float* HWY_RESTRICT X, float* HWY_RESTRICT dX, const WriteBwd<T>& w, Index n,
                              Index D, Index C) {
  const T* HWY_RESTRICT h = w.h_NC + n * C;
  T* HWY_RESTRICT dh = w.dh_NC + n * C;
  if (w.rule == WriteRule::kAdd) {
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      hn::StoreU(hn::Sub(hn::LoadU(tag, X + i), LoadF(tag, h + i)), tag, X + i);
      StoreF(hn::LoadU(tag, dX + i), tag, dh + i);
    });
    return;
  }
  const bool erase = w.rule == WriteRule::kDelta;
  const float beta = w.beta_N[n], s = w.kscale_N[n];
  float a[kMaxChannels];
  ForGroups(D, [&](Index d, auto G) HWY_ATTR { Dots<G>(a + d, h, dX + d * C, C); });
  float back[kMaxChannels], from_g[kMaxChannels], from_x[kMaxChannels];  // coefficients of h, g_d and X_d
  float dbeta = 0, k_dk = 0;
  for (Index d = 0; d < D; ++d) {
    a[d] *= s;
    const float v = w.v_ND[n * D + d], r = erase ? w.readout_ND[n * D + d] : 0;
    w.dv_ND[n * D + d] = beta * a[d];
    dbeta += (v - r) * a[d];
    k_dk += beta * a[d] * (v - 2 * r);
    back[d] = beta * (v - r) * s;
    from_g[d] = beta * (v - r) * s;
    from_x[d] = erase ? beta * a[d] * s : 0;
  }
  w.dbeta_N[n] = dbeta;
  const float along = s * s * k_dk;
  float sum_row[kMaxWidth];  // s dk, while it grows over the groups
  ForGroups(D, [&](Index d, auto G) HWY_ATTR {
    const bool last = d + G == D;
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      const auto hv = LoadF(tag, h + i);
      auto sum = d > 0 ? hn::LoadU(tag, sum_row + i) : hn::Zero(tag);
      for (Index g = 0; g < G; ++g) {
        const Index at = (d + g) * C + i;
        const auto grad = hn::LoadU(tag, dX + at);
        const auto x = hn::NegMulAdd(hn::Set(tag, back[d + g]), hv, hn::LoadU(tag, X + at));
        const auto c = hn::Set(tag, from_x[d + g]);
        hn::StoreU(x, tag, X + at);
        sum = hn::NegMulAdd(c, x, hn::MulAdd(hn::Set(tag, from_g[d + g]), grad, sum));
        hn::StoreU(hn::NegMulAdd(c, hv, grad), tag, dX + at);
      }
      if (last)
        StoreF(hn::NegMulAdd(hn::Set(tag, along), hv, sum), tag, dh + i);
      else
        hn::StoreU(sum, tag, sum_row + i);
    });
  });
}

template <class T>
void BackwardTokens(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                    const PieceGradients& piece, Index begin, Index end, Index D, Index C) {
  float mixed[kMaxWidth], dx_in[kMaxWidth];
  for (Index n = begin; n < end; ++n) {
    float* X = state_NDC + n * D * C;
    float* dX = dstate_NDC + n * D * C;
    if (read) {
      if (read->mix_DC) WriteAndMix<T>(X, mixed, nullptr, nullptr, read->mix_DC, D, C);
      NormAndBranchBackward(dx_in, *read, read->mix_DC ? mixed : X, piece, n, C);
      MixBackward(dX, *read, dx_in, X, piece, D, C);
    }
    if (write) WriteBackward(X, dX, *write, n, D, C);
  }
}

void BackwardF32(float* s, float* ds, const ReadBwd<float>* r, const WriteBwd<float>* w, float* const* p,
                 Index b, Index e, Index D, Index C) {
  BackwardTokens(s, ds, r, w, {p[0], p[1], p[2], p[3], p[4], p[5]}, b, e, D, C);
}
void BackwardBf16(float* s, float* ds, const ReadBwd<bf16>* r, const WriteBwd<bf16>* w, float* const* p,
                  Index b, Index e, Index D, Index C) {
  BackwardTokens(s, ds, r, w, {p[0], p[1], p[2], p[3], p[4], p[5]}, b, e, D, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {
namespace {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBf16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBf16);

void check_shape(Index D, Index C, bool has_mix, bool adds) {
  DDL_CHECK(D >= 1 && D <= kMaxChannels && C >= 1 && C <= kMaxWidth, "D={} C={}", D, C);
  DDL_CHECK(has_mix || D == 1, "a state of {} channels needs a compressor to be read", D);
  DDL_CHECK(!adds || D == 1, "the additive rule has one channel, not {}", D);
}

// Where each gradient lies inside a piece's row, in PieceGradients' order; the last is the row's length.
struct PieceLayout {
  Index offset[6], stride;
  PieceLayout(Index D, Index C, Index channels) {
    const Index sizes[6] = {C, C, 1, channels * C, channels, D * C};
    stride = 0;
    for (int i = 0; i < 6; ++i) offset[i] = stride, stride += round_up(sizes[i], 16);
  }
};

}  // namespace

template <class T>
void residual_fwd(float* state_NDC, const WriteFwd<T>* write, const ReadFwd<T>* read, Index N, Index D,
                  Index C, const Exec& ex) {
  check_shape(D, C, !read || read->mix_DC, write && write->rule == WriteRule::kAdd);
  current_isa();
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      HWY_DYNAMIC_DISPATCH(ForwardF32)(state_NDC, write, read, begin, end, D, C);
    else
      HWY_DYNAMIC_DISPATCH(ForwardBf16)(state_NDC, write, read, begin, end, D, C);
  });
}

Index residual_bwd_scratch(Index D, Index C, Index channels) {
  return kSumParts * PieceLayout(D, C, channels).stride;
}

template <class T>
void residual_bwd(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                  float* scratch, Index N, Index D, Index C, const Exec& ex) {
  check_shape(D, C, !read || read->mix_DC, write && write->rule == WriteRule::kAdd);
  current_isa();
  const Index channels = read && read->branches.value_w_DC ? read->branches.channels : 0;
  const PieceLayout layout(D, C, channels);
  parallel_for(kSumParts, ex, [&](Index p) {
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if (begin == end) return;
    float* rows[6] = {};
    if (read) {
      float* row = scratch + p * layout.stride;
      std::memset(row, 0, static_cast<std::size_t>(layout.stride) * sizeof(float));
      for (int i = 0; i < 6; ++i) rows[i] = row + layout.offset[i];
    }
    if constexpr (std::is_same_v<T, float>)
      HWY_DYNAMIC_DISPATCH(BackwardF32)(state_NDC, dstate_NDC, read, write, rows, begin, end, D, C);
    else
      HWY_DYNAMIC_DISPATCH(BackwardBf16)(state_NDC, dstate_NDC, read, write, rows, begin, end, D, C);
  });
  if (!read) return;
  const auto join = [&](int part, float* dst, Index count) {
    add_parts_in_order(dst, scratch + layout.offset[part], layout.stride, count, N, ex);
  };
  join(0, read->dnorm_C, C);
  join(5, read->dmix_DC, D * C);
  if (!channels) return;
  join(1, read->dgate_w_C, C);
  join(2, read->dgate_b, 1);
  join(3, read->dvalue_w_DC, channels * C);
  join(4, read->dvalue_b_D, channels);
}

template void residual_fwd(float*, const WriteFwd<float>*, const ReadFwd<float>*, Index, Index, Index,
                           const Exec&);
template void residual_fwd(float*, const WriteFwd<bf16>*, const ReadFwd<bf16>*, Index, Index, Index,
                           const Exec&);
template void residual_bwd(float*, float*, const ReadBwd<float>*, const WriteBwd<float>*, float*, Index,
                           Index, Index, const Exec&);
template void residual_bwd(float*, float*, const ReadBwd<bf16>*, const WriteBwd<bf16>*, float*, Index, Index,
                           Index, const Exec&);

}  // namespace ddl
#endif  // HWY_ONCE
