// The oracle's residual operations beyond the paper: writes that act on each feature alone, and attention over
// depth. As in ops.h: plain scalar loops on any number type.
#pragma once

#include <vector>

#include "ref/ops.h"

namespace ddl::ref {

// x' = a x + b x0 + h
template <class Num>
Vec<Num> decay_write(const Vec<Num>& x_NC, const Vec<Num>& x0_NC, const Vec<Num>& h_NC, Num a, Num b) {
  Vec<Num> next_NC(x_NC.size());
  for (std::size_t i = 0; i < x_NC.size(); ++i) next_NC[i] = a * x_NC[i] + b * x0_NC[i] + h_NC[i];
  return next_NC;
}

// gate_c = sigmoid(w_c c_c + b_c)
// x'_c   = x_c + gate_c (h_c - x_c)
template <class Num>
Vec<Num> highway_write(const Vec<Num>& x_NC, const Vec<Num>& c_NC, const Vec<Num>& h_NC, const Vec<Num>& w_C,
                       const Vec<Num>& b_C, Index N, Index C) {
  check_size(x_NC, N * C, "x_NC"), check_size(c_NC, N * C, "c_NC"), check_size(h_NC, N * C, "h_NC");
  check_size(w_C, C, "w_C"), check_size(b_C, C, "b_C");
  Vec<Num> next_NC(x_NC.size());
  for (Index n = 0; n < N; ++n)
    for (Index c = 0; c < C; ++c) {
      const Index i = n * C + c;
      const Num gate = sigmoid(w_C[c] * c_NC[i] + b_C[c]);
      next_NC[i] = x_NC[i] + gate * (h_NC[i] - x_NC[i]);
    }
  return next_NC;
}

// key_i   = V_i / sqrt(mean(V_i^2) + eps)
// alpha   = softmax_i( sum_c q_c key_ic )
// x       = sum_i alpha_i V_i
// The sources of all tokens one after another: source_INC.
template <class Num>
Vec<Num> depth_mix(const Vec<Num>& source_INC, const Vec<Num>& q_C, Index I, Index N, Index C,
                   double eps = kNormEps) {
  check_size(source_INC, I * N * C, "source_INC"), check_size(q_C, C, "q_C");
  Vec<Num> x_NC(N * C, Num(0));
  for (Index n = 0; n < N; ++n) {
    const auto row = [&](Index i) { return (i * N + n) * C; };
    Vec<Num> score(I, Num(0));
    double shift = 0;  // any value gives the same result; the largest score avoids overflow
    for (Index i = 0; i < I; ++i) {
      Num sum_squares(0);
      for (Index c = 0; c < C; ++c) sum_squares += source_INC[row(i) + c] * source_INC[row(i) + c];
      const Num rms = sqrt(sum_squares / Num(static_cast<double>(C)) + Num(eps));
      for (Index c = 0; c < C; ++c) score[i] += q_C[c] * (source_INC[row(i) + c] / rms);
      if (i == 0 || real(score[i]) > shift) shift = real(score[i]);
    }
    Num total(0);
    for (Num& z : score) total += (z = exp(z - Num(shift)));
    for (Index i = 0; i < I; ++i)
      for (Index c = 0; c < C; ++c) x_NC[n * C + c] += score[i] / total * source_INC[row(i) + c];
  }
  return x_NC;
}

}  // namespace ddl::ref
