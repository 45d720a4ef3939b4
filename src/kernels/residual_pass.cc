#include "kernels/residual_pass.h"

#include <cmath>
#include <cstring>

#include "kernels/isa.h"
#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual_pass.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include "kernels/norm_row-inl.h"

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

// Forward.

// What the rule makes of a token: coef_d of X_d += coef_d h.
template <class T>
HWY_INLINE void AskCoefficients(float* coef_D, const WriteFwd<T>& w, const float* X, Index n, Index D,
                                Index C) {
  const Coefficients& rule = *w.coefficients;
  const T* h = w.h_NC + n * C;
  float h_dot_X[kMaxChannels];
  if (rule.reads_state())
    ForGroups(D, [&](Index d, auto G) HWY_ATTR { Dots<G>(h_dot_X + d, h, X + d * C, C); });
  rule.forward({.D = D,
                .C = C,
                .steer = w.steer_NR + n * w.steer_stride,
                .h_square = rule.reads_h_norm() ? SquaredNorm(h, C) : 0,
                .h_dot_X_D = rule.reads_state() ? h_dot_X : nullptr,
                .saved = w.saved_NQ + n * rule.saved_per_token(D),
                .coef_D = coef_D});
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

// du from the gradient of value = scale act(u).
HWY_INLINE float ActivationBackward(const Branch& b, float dvalue, float value) {
  switch (b.activation) {
    case Activation::kSigmoid:
      return dvalue * value * (1 - value / b.scale);
    case Activation::kTanh:
      return dvalue * (b.scale - value * value / b.scale);
    default:
      return dvalue * b.scale;
  }
}

// context = x_in * rstd * norm, and the numbers that steer the next write.
template <class T>
HWY_INLINE void NormAndSteer(const ReadFwd<T>& r, const float* HWY_RESTRICT x_in, Index n, Index C) {
  float context[kMaxWidth];  // unrounded, for the branches
  r.rstd_N[n] = NormRowTo(x_in, r.norm_C, r.norm_eps, C, [&](auto tag, Index i, auto c) HWY_ATTR {
    hn::StoreU(c, tag, context + i);
    StoreF(c, tag, r.context_NC + n * C + i);
  });
  for (const Branch& b : r.branches) {
    float* u = r.steer_NR + n * r.steer_stride + b.first;
    if (b.input == BranchInput::kNone) {
      std::memset(u, 0, static_cast<std::size_t>(b.rows) * sizeof(float));
    } else {
      const float* input = b.input == BranchInput::kContext ? context : x_in;
      ForGroups(b.rows, [&](Index j, auto G) HWY_ATTR { Dots<G>(u + j, input, b.w_RC + j * C, C); });
    }
    for (Index j = 0; j < b.rows; ++j) {
      if (b.b_R) u[j] += b.b_R[j];
      if (b.activation == Activation::kSigmoid) u[j] = b.scale * Sigmoid1(u[j]);
      if (b.activation == Activation::kTanh) u[j] = b.scale * std::tanh(u[j]);
      if (b.activation == Activation::kIdentity) u[j] *= b.scale;
    }
  }
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
      coef[0] = 1;
      if (write->coefficients) AskCoefficients(coef, *write, X, n, D, C);
    }
    const float* mix = read ? read->mix_DC : nullptr;
    if (write || mix) WriteAndMix(X, mixed, h, coef, mix, D, C);
    if (read) NormAndSteer(*read, mix ? mixed : X, n, C);
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

// Backward.

// Where one part of the tokens collects its share of the weights' gradients: the norm's C, the mix's D C, then
// each branch's weights and biases.
struct PartGradients {
  float *norm_C, *mix_DC, *branches;
};

// From dcontext and dsteer to dx_in. Adds to the part's gradients of norm and branches.
template <class T>
HWY_INLINE void NormAndSteerBackward(float* HWY_RESTRICT dx_in, const ReadBwd<T>& r,
                                     const float* HWY_RESTRICT x_in, const PartGradients& part, Index n,
                                     Index C) {
  const float rstd = r.rstd_N[n];
  float total[kMaxWidth];     // dL/dcontext by all paths
  float unnormed[kMaxWidth];  // dL/dx_in by the branches that read it without the norm
  bool has_unnormed = false;
  std::memcpy(total, r.dcontext_NC + n * C, static_cast<std::size_t>(C) * sizeof(float));

  // With u = w . input + b:  dinput += sum_j du_j w_j,  dw_j += du_j input,  db_j += du_j.
  float* dw = part.branches;
  for (const Branch& b : r.branches) {
    const Index weights = b.input == BranchInput::kNone ? 0 : b.rows * C;
    float* db = dw + weights;
    float du[kMaxBranchRows];
    for (Index j = 0; j < b.rows; ++j) {
      const Index at = n * r.steer_stride + b.first + j;
      du[j] = ActivationBackward(b, r.dsteer_NR[at], r.steer_NR[at]);
      db[j] += du[j];
    }
    if (weights > 0) {
      const bool from_context = b.input == BranchInput::kContext;
      float* dinput = from_context ? total : unnormed;
      const bool fresh = !from_context && !has_unnormed;
      has_unnormed = has_unnormed || !from_context;
      ForGroups(b.rows, [&](Index j, auto G) HWY_ATTR {
        ForEach(C, [&](auto tag, Index i) HWY_ATTR {
          auto input = hn::LoadU(tag, x_in + i);
          if (from_context) input = hn::Mul(hn::Mul(input, hn::Set(tag, rstd)), hn::LoadU(tag, r.norm_C + i));
          auto sum = fresh && j == 0 ? hn::Zero(tag) : hn::LoadU(tag, dinput + i);
          for (Index g = 0; g < G; ++g) {
            const Index row = (j + g) * C + i;
            const auto u = hn::Set(tag, du[j + g]);
            sum = hn::MulAdd(u, hn::LoadU(tag, b.w_RC + row), sum);
            hn::StoreU(hn::MulAdd(u, input, hn::LoadU(tag, dw + row)), tag, dw + row);
          }
          hn::StoreU(sum, tag, dinput + i);
        });
      });
    }
    dw = db + b.rows;
  }

  NormRowBackward(part.norm_C, total, x_in, r.norm_C, rstd, C, [&](auto tag, Index i, auto dx) HWY_ATTR {
    if (has_unnormed) dx = hn::Add(dx, hn::LoadU(tag, unnormed + i));
    hn::StoreU(dx, tag, dx_in + i);
  });
}

// dX_d (+)= mix_d dx_in;  dmix_d += dx_in X_d.
template <class T>
HWY_INLINE void MixBackward(float* HWY_RESTRICT dX, const ReadBwd<T>& r, const float* HWY_RESTRICT dx_in,
                            const float* HWY_RESTRICT X, const PartGradients& part, Index D, Index C) {
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
      hn::StoreU(hn::MulAdd(g, hn::LoadU(tag, X + at), hn::LoadU(tag, part.mix_DC + at)), tag,
                 part.mix_DC + at);
    });
}

// With g_d = dX_d on entry, and coef, erase and along from the rule (Coefficients says what they are):
//   X_d    back to  X_d - coef_d h,  or to the stored copy
//   dh     = sum_d (coef_d g_d - erase_d X_d) - along h
//   dX_d   = g_d - erase_d h
template <class T>
HWY_INLINE void WriteBackward(float* HWY_RESTRICT X, float* HWY_RESTRICT dX, const WriteBwd<T>& w, Index n,
                              Index D, Index C) {
  const T* HWY_RESTRICT h = w.h_NC + n * C;
  T* HWY_RESTRICT dh = w.dh_NC + n * C;
  if (!w.coefficients) {
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      hn::StoreU(hn::Sub(hn::LoadU(tag, X + i), LoadF(tag, h + i)), tag, X + i);
      StoreF(hn::LoadU(tag, dX + i), tag, dh + i);
    });
    return;
  }
  float h_dot_G[kMaxChannels], coef[kMaxChannels], erase[kMaxChannels];
  ForGroups(D, [&](Index d, auto G) HWY_ATTR { Dots<G>(h_dot_G + d, h, dX + d * C, C); });
  Coefficients::Backward token{.D = D,
                               .C = C,
                               .steer = w.steer_NR + n * w.steer_stride,
                               .saved = w.saved_NQ + n * w.coefficients->saved_per_token(D),
                               .h_dot_G_D = h_dot_G,
                               .dsteer = w.dsteer_NR + n * w.steer_stride,
                               .coef_D = coef,
                               .erase_D = erase};
  w.coefficients->backward(token);
  const float* stored = w.stored_state_NDC ? w.stored_state_NDC + n * D * C : nullptr;
  float sum_row[kMaxWidth];  // dh + along h, while it grows over the groups
  ForGroups(D, [&](Index d, auto G) HWY_ATTR {
    const bool last = d + G == D;
    ForEach(C, [&](auto tag, Index i) HWY_ATTR {
      const auto hv = LoadF(tag, h + i);
      auto sum = d > 0 ? hn::LoadU(tag, sum_row + i) : hn::Zero(tag);
      for (Index g = 0; g < G; ++g) {
        const Index at = (d + g) * C + i;
        const auto grad = hn::LoadU(tag, dX + at);
        const auto x = stored ? hn::LoadU(tag, stored + at)
                              : hn::NegMulAdd(hn::Set(tag, coef[d + g]), hv, hn::LoadU(tag, X + at));
        const auto c = hn::Set(tag, erase[d + g]);
        hn::StoreU(x, tag, X + at);
        sum = hn::NegMulAdd(c, x, hn::MulAdd(hn::Set(tag, coef[d + g]), grad, sum));
        hn::StoreU(hn::NegMulAdd(c, hv, grad), tag, dX + at);
      }
      if (last)
        StoreF(hn::NegMulAdd(hn::Set(tag, token.along), hv, sum), tag, dh + i);
      else
        hn::StoreU(sum, tag, sum_row + i);
    });
  });
}

template <class T>
void BackwardTokens(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                    const PartGradients& part, Index begin, Index end, Index D, Index C) {
  float mixed[kMaxWidth], dx_in[kMaxWidth];
  for (Index n = begin; n < end; ++n) {
    float* X = state_NDC + n * D * C;
    float* dX = dstate_NDC + n * D * C;
    if (read) {
      if (read->mix_DC) WriteAndMix<T>(X, mixed, nullptr, nullptr, read->mix_DC, D, C);
      NormAndSteerBackward(dx_in, *read, read->mix_DC ? mixed : X, part, n, C);
      MixBackward(dX, *read, dx_in, X, part, D, C);
    }
    if (write) WriteBackward(X, dX, *write, n, D, C);
  }
}

void BackwardF32(float* s, float* ds, const ReadBwd<float>* r, const WriteBwd<float>* w, float* const* p,
                 Index b, Index e, Index D, Index C) {
  BackwardTokens(s, ds, r, w, {p[0], p[1], p[2]}, b, e, D, C);
}
void BackwardBf16(float* s, float* ds, const ReadBwd<bf16>* r, const WriteBwd<bf16>* w, float* const* p,
                  Index b, Index e, Index D, Index C) {
  BackwardTokens(s, ds, r, w, {p[0], p[1], p[2]}, b, e, D, C);
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
  DDL_CHECK(!adds || D == 1, "the plain addition has one channel, not {}", D);
}

// Where each gradient lies inside a part's row, in PartGradients' order.
struct PartLayout {
  Index mix, branches, stride;
  PartLayout(Index D, Index C, Index steering_numbers)
      : mix(round_up(C, 16)),
        branches(mix + round_up(D * C, 16)),
        stride(branches + round_up(steering_numbers * (C + 1), 16)) {}
};

}  // namespace

template <class T>
void residual_fwd(float* state_NDC, const WriteFwd<T>* write, const ReadFwd<T>* read, Index N, Index D,
                  Index C, const Exec& ex) {
  check_shape(D, C, !read || read->mix_DC, write && !write->coefficients);
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(ForwardF32, state_NDC, write, read, begin, end, D, C);
    else
      DDL_DISPATCH(ForwardBf16, state_NDC, write, read, begin, end, D, C);
  });
}

Index residual_bwd_scratch(Index D, Index C, Index steering_numbers) {
  return kSumParts * PartLayout(D, C, steering_numbers).stride;
}

template <class T>
void residual_bwd(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                  float* scratch, Index N, Index D, Index C, const Exec& ex) {
  check_shape(D, C, !read || read->mix_DC, write && !write->coefficients);
  Index numbers = 0;
  if (read)
    for (const Branch& b : read->branches) {
      DDL_CHECK(b.rows <= kMaxBranchRows, "a branch of {} rows", b.rows);
      numbers += b.rows;
    }
  const PartLayout layout(D, C, numbers);
  parallel_for(kSumParts, ex, [&](Index p) {
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if (begin == end) return;
    float* rows[3] = {};
    if (read) {
      float* row = scratch + p * layout.stride;
      std::memset(row, 0, static_cast<std::size_t>(layout.stride) * sizeof(float));
      rows[0] = row, rows[1] = row + layout.mix, rows[2] = row + layout.branches;
    }
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(BackwardF32, state_NDC, dstate_NDC, read, write, rows, begin, end, D, C);
    else
      DDL_DISPATCH(BackwardBf16, state_NDC, dstate_NDC, read, write, rows, begin, end, D, C);
  });
  if (!read) return;
  const auto join = [&](float* dst, Index offset, Index count) {
    add_parts_in_order(dst, scratch + offset, layout.stride, count, N, ex);
  };
  join(read->dnorm_C, 0, C);
  join(read->dmix_DC, layout.mix, D * C);
  Index at = layout.branches;
  for (const Branch& b : read->branches) {
    const Index weights = b.input == BranchInput::kNone ? 0 : b.rows * C;
    join(b.dw_RC, at, weights);
    join(b.db_R, at + weights, b.rows);
    at += weights + b.rows;
  }
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
