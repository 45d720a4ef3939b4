// The oracle, one operation at a time: plain scalar loops over vectors, templated on the number type.
// Slow on purpose and never optimised; a fast kernel is right when it agrees with the function of the same
// name here.
//
// Num is float, double, std::complex<double> or Var. Every function is analytic in its inputs: no abs, max
// or branch on a value, except the softmax shift, which is taken from the real part and cancels. So complex
// numbers give exact derivatives (complex_step.h), and Var gives all of them at once (tape.h).
//
// Shape letters are those of core/index.h; a suffix gives the memory order, last letter contiguous:
//   B  batch             H  heads
//   T  time              K  head size
//   N  tokens, B*T       F  MLP width
//   C  width             V  vocabulary
//   D  value channels    G  hidden size of the gate
//   E  taps of a short causal convolution; the last tap multiplies the current token
// The residual state of a token is D planes of C features: state_NDC. Linear weights are [out, in].
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "core/index.h"

namespace ddl::ref {

template <class Num>
using Vec = std::vector<Num>;

// Called without std:: below, so that a number type can bring its own (Var does).
using std::exp;
using std::log;
using std::real;
using std::sqrt;
using std::tanh;

inline constexpr double kNormEps = 1e-5;       // inside every RMSNorm
inline constexpr double kRopeBase = 10000;     // rotary base
inline constexpr double kDirectionEps = 1e-5;  // the paper's eps_k

template <class Num>
void check_size(const Vec<Num>& x, Index expected, const char* name) {
  DDL_CHECK(static_cast<Index>(x.size()) == expected, "{} holds {} numbers, expected {}", name, x.size(),
            expected);
}

// Scalar functions.

// sigmoid(z) = 1 / (1 + exp(-z))
template <class Num>
Num sigmoid(Num z) {
  return Num(1) / (Num(1) + exp(-z));
}

// silu(z) = z sigmoid(z)
template <class Num>
Num silu(Num z) {
  return z * sigmoid(z);
}

// logit(p) = log(p / (1 - p)), the bias at which the gate starts at 2p
inline double logit(double p) { return std::log(p) - std::log(1 - p); }

// The backbone.

// y_c = w_c x_c / sqrt(mean_j x_j^2 + eps), one mean per row
template <class Num>
Vec<Num> rmsnorm(const Vec<Num>& x_NC, const Vec<Num>& w_C, Index N, Index C, double eps = kNormEps) {
  check_size(x_NC, N * C, "x_NC"), check_size(w_C, C, "w_C");
  Vec<Num> y_NC(x_NC.size());
  for (Index n = 0; n < N; ++n) {
    Num sum_squares(0);
    for (Index c = 0; c < C; ++c) sum_squares += x_NC[n * C + c] * x_NC[n * C + c];
    const Num rstd = Num(1) / sqrt(sum_squares / Num(C) + Num(eps));
    for (Index c = 0; c < C; ++c) y_NC[n * C + c] = w_C[c] * (x_NC[n * C + c] * rstd);
  }
  return y_NC;
}

// I inputs, O outputs.
//   y   = x W^T
//   y_o = sum_i W_oi x_i
template <class Num>
Vec<Num> linear(const Vec<Num>& x_NI, const Vec<Num>& w_OI, Index N, Index I, Index O) {
  check_size(x_NI, N * I, "x_NI"), check_size(w_OI, O * I, "w_OI");
  Vec<Num> y_NO(N * O);
  for (Index n = 0; n < N; ++n)
    for (Index o = 0; o < O; ++o) {
      Num sum(0);
      for (Index i = 0; i < I; ++i) sum += x_NI[n * I + i] * w_OI[o * I + i];
      y_NO[n * O + o] = sum;
    }
  return y_NO;
}

// y = x W^T + b
template <class Num>
Vec<Num> linear_bias(const Vec<Num>& x_NI, const Vec<Num>& w_OI, const Vec<Num>& b_O, Index N, Index I,
                     Index O) {
  check_size(b_O, O, "b_O");
  Vec<Num> y_NO = linear(x_NI, w_OI, N, I, O);
  for (Index n = 0; n < N; ++n)
    for (Index o = 0; o < O; ++o) y_NO[n * O + o] += b_O[o];
  return y_NO;
}

// Rotary positions, split halves: for i < K/2 the pair (x_i, x_{i+K/2}) turns by the angle a.
//   a         = t base^(-2i/K)
//   y_i       = x_i cos a - x_{i+K/2} sin a
//   y_{i+K/2} = x_i sin a + x_{i+K/2} cos a
// Row t of the buffer is position first_position + t.
template <class Num>
Vec<Num> rope(const Vec<Num>& x_BTHK, Index B, Index T, Index H, Index K, double base = kRopeBase,
              Index first_position = 0) {
  check_size(x_BTHK, B * T * H * K, "x_BTHK");
  const Index half = div_exact(K, 2);
  Vec<Num> y_BTHK(x_BTHK.size());
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h)
        for (Index i = 0; i < half; ++i) {
          const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(K));
          const double angle = static_cast<double>(first_position + t) * frequency;
          const Num cosine(std::cos(angle)), sine(std::sin(angle));
          const Index at = ((b * T + t) * H + h) * K + i;
          const Num first = x_BTHK[at], second = x_BTHK[at + half];
          y_BTHK[at] = first * cosine - second * sine;
          y_BTHK[at + half] = first * sine + second * cosine;
        }
  return y_BTHK;
}

// What attention does to q and to k before their dot product: rotate, then RMSNorm over each head's K
// features with one weight vector for all heads:
//   q' = RMSNorm(rope(q); q_rms)
template <class Num>
Vec<Num> rope_qknorm(const Vec<Num>& x_BTHK, const Vec<Num>& w_K, Index B, Index T, Index H, Index K,
                     double base = kRopeBase, double eps = kNormEps) {
  return rmsnorm(rope(x_BTHK, B, T, H, K, base), w_K, B * T * H, K, eps);
}

// Causal softmax attention, each head on its own:
//   p_ts = exp(q_t.k_s / sqrt(K)) / sum_{u<=t} exp(q_t.k_u / sqrt(K))        s <= t
//   o_t  = sum_{s<=t} p_ts v_s
template <class Num>
Vec<Num> attention(const Vec<Num>& q_BTHK, const Vec<Num>& k_BTHK, const Vec<Num>& v_BTHK, Index B, Index T,
                   Index H, Index K) {
  check_size(q_BTHK, B * T * H * K, "q_BTHK"), check_size(k_BTHK, B * T * H * K, "k_BTHK");
  check_size(v_BTHK, B * T * H * K, "v_BTHK");
  const Num scale(1 / std::sqrt(static_cast<double>(K)));
  Vec<Num> o_BTHK(q_BTHK.size(), Num(0));
  const auto row = [&](Index b, Index t, Index h) { return ((b * T + t) * H + h) * K; };
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index t = 0; t < T; ++t) {
        Vec<Num> score(t + 1, Num(0));
        double shift = 0;  // any value gives the same result; the largest score avoids overflow
        for (Index s = 0; s <= t; ++s) {
          for (Index i = 0; i < K; ++i) score[s] += q_BTHK[row(b, t, h) + i] * k_BTHK[row(b, s, h) + i];
          score[s] *= scale;
          const double size = real(score[s]);
          if (s == 0 || size > shift) shift = size;
        }
        Num total(0);
        for (Num& z : score) total += (z = exp(z - Num(shift)));
        for (Index s = 0; s <= t; ++s)
          for (Index i = 0; i < K; ++i)
            o_BTHK[row(b, t, h) + i] += score[s] / total * v_BTHK[row(b, s, h) + i];
      }
  return o_BTHK;
}

// Elementwise, with a = fc1 x and b = fc2 x:
//   y = silu(a) b
template <class Num>
Vec<Num> swiglu(const Vec<Num>& a_NF, const Vec<Num>& b_NF) {
  check_size(b_NF, static_cast<Index>(a_NF.size()), "b_NF");
  Vec<Num> y_NF(a_NF.size());
  for (std::size_t i = 0; i < a_NF.size(); ++i) y_NF[i] = silu(a_NF[i]) * b_NF[i];
  return y_NF;
}

// logsumexp_n = log sum_v exp(z_nv)
template <class Num>
Vec<Num> logsumexp(const Vec<Num>& z_NV, Index N, Index V) {
  check_size(z_NV, N * V, "z_NV");
  Vec<Num> lse_N(N);
  for (Index n = 0; n < N; ++n) {
    double shift = real(z_NV[n * V]);
    for (Index v = 1; v < V; ++v)
      if (real(z_NV[n * V + v]) > shift) shift = real(z_NV[n * V + v]);
    Num total(0);
    for (Index v = 0; v < V; ++v) total += exp(z_NV[n * V + v] - Num(shift));
    lse_N[n] = log(total) + Num(shift);
  }
  return lse_N;
}

// L = mean over the n with a target of ( logsumexp_v z_nv - z_n,target(n) ); a negative target is none
template <class Num>
Num cross_entropy(const Vec<Num>& z_NV, const Vec<std::int32_t>& target_N, Index N, Index V) {
  check_size(target_N, N, "target_N");
  const Vec<Num> lse_N = logsumexp(z_NV, N, V);
  Num sum(0);
  Index targets = 0;
  for (Index n = 0; n < N; ++n) {
    if (target_N[n] < 0) continue;
    DDL_CHECK(target_N[n] < V, "target {} outside vocabulary {}", target_N[n], V);
    sum += lse_N[n] - z_NV[n * V + target_N[n]];
    ++targets;
  }
  return sum / Num(targets);
}

// x_n = W[token(n)]
template <class Num>
Vec<Num> embedding(const Vec<Num>& w_VC, const Vec<std::int32_t>& token_N, Index N, Index V, Index C) {
  check_size(w_VC, V * C, "w_VC"), check_size(token_N, N, "token_N");
  Vec<Num> x_NC(N * C);
  for (Index n = 0; n < N; ++n) {
    DDL_CHECK(token_N[n] >= 0 && token_N[n] < V, "token {} outside vocabulary {}", token_N[n], V);
    for (Index c = 0; c < C; ++c) x_NC[n * C + c] = w_VC[token_N[n] * C + c];
  }
  return x_NC;
}

// Expand: embedding -> state.

// Every plane is the embedding:
//   X_0 = x 1^T
template <class Num>
Vec<Num> repeat_channels(const Vec<Num>& x_NC, Index N, Index D, Index C) {
  check_size(x_NC, N * C, "x_NC");
  Vec<Num> state_NDC(N * D * C);
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) state_NDC[(n * D + d) * C + c] = x_NC[n * C + c];
  return state_NDC;
}

// Embedding convolution (EC), depthwise and causal over tokens of one sequence; terms before it are zero:
//   X_t,dc = sum_e w_edc x_{t-(E-1)+e},c
template <class Num>
Vec<Num> embedding_conv(const Vec<Num>& x_BTC, const Vec<Num>& w_EDC, Index B, Index T, Index D, Index C,
                        Index E) {
  check_size(x_BTC, B * T * C, "x_BTC"), check_size(w_EDC, E * D * C, "w_EDC");
  Vec<Num> state_NDC(B * T * D * C, Num(0));
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index e = 0; e < E; ++e) {
        const Index from = t - (E - 1) + e;
        if (from < 0) continue;
        for (Index d = 0; d < D; ++d)
          for (Index c = 0; c < C; ++c)
            state_NDC[((b * T + t) * D + d) * C + c] +=
                w_EDC[(e * D + d) * C + c] * x_BTC[(b * T + from) * C + c];
      }
  return state_NDC;
}

// The EC weights a run starts from: w = 1 at the current token, 0 elsewhere, so that X_0 = x 1^T.
template <class Num>
Vec<Num> identity_embedding_conv(Index D, Index C, Index E) {
  Vec<Num> w_EDC(E * D * C, Num(0));
  for (Index i = 0; i < D * C; ++i) w_EDC[(E - 1) * D * C + i] = Num(1);
  return w_EDC;
}

// Read: state -> sublayer input.

// Channel compressor (CC), the paper's form:
//   x_c = sum_d w_dc X_dc
template <class Num>
Vec<Num> channel_compress(const Vec<Num>& state_NDC, const Vec<Num>& w_DC, Index N, Index D, Index C) {
  check_size(state_NDC, N * D * C, "state_NDC"), check_size(w_DC, D * C, "w_DC");
  Vec<Num> x_NC(N * C, Num(0));
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) x_NC[n * C + c] += w_DC[d * C + c] * state_NDC[(n * D + d) * C + c];
  return x_NC;
}

// Channel compressor as the released code computes it: a "same"-padded convolution along the channels with
// one kernel of E taps per feature, then a read vector. Channels outside 0..D-1 are zero.
//   p   = floor((E-1)/2), the left pad
//   x_c = sum_j read_j sum_m w_cm X_{j-p+m},c
template <class Num>
Vec<Num> released_channel_compress(const Vec<Num>& state_NDC, const Vec<Num>& w_CE, const Vec<Num>& read_D,
                                   Index N, Index D, Index C, Index E) {
  check_size(state_NDC, N * D * C, "state_NDC"), check_size(w_CE, C * E, "w_CE"),
      check_size(read_D, D, "read_D");
  Vec<Num> x_NC(N * C);
  for (Index n = 0; n < N; ++n)
    for (Index c = 0; c < C; ++c) {
      Num x(0);
      for (Index j = 0; j < D; ++j) {
        Num mixed(0);
        for (Index m = 0; m < E; ++m) {
          const Index channel = j - (E - 1) / 2 + m;
          if (channel >= 0 && channel < D) mixed += w_CE[c * E + m] * state_NDC[(n * D + channel) * C + c];
        }
        x += read_D[j] * mixed;
      }
      x_NC[n * C + c] = x;
    }
  return x_NC;
}

// The same map as one weight per feature and channel, so that released weights run in the paper's form:
//   w_dc = sum_j read_j w_cm        m = d - j + p, if it is in 0..E-1
template <class Num>
Vec<Num> fold_released_channel_compress(const Vec<Num>& w_CE, const Vec<Num>& read_D, Index D, Index C,
                                        Index E) {
  check_size(w_CE, C * E, "w_CE"), check_size(read_D, D, "read_D");
  Vec<Num> w_DC(D * C, Num(0));
  for (Index d = 0; d < D; ++d)
    for (Index c = 0; c < C; ++c)
      for (Index j = 0; j < D; ++j) {
        const Index m = d - j + (E - 1) / 2;
        if (m >= 0 && m < E) w_DC[d * C + c] += read_D[j] * w_CE[c * E + m];
      }
  return w_DC;
}

// Token compressor (TC): a depthwise causal convolution over tokens, then a read vector over channels.
// Terms before the sequence are zero.
//   x_t,c = sum_d read_d sum_e w_edc X_{t-(E-1)+e},dc
template <class Num>
Vec<Num> token_compress(const Vec<Num>& state_BTDC, const Vec<Num>& w_EDC, const Vec<Num>& read_D, Index B,
                        Index T, Index D, Index C, Index E) {
  check_size(state_BTDC, B * T * D * C, "state_BTDC"), check_size(w_EDC, E * D * C, "w_EDC");
  check_size(read_D, D, "read_D");
  Vec<Num> x_NC(B * T * C, Num(0));
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index d = 0; d < D; ++d)
        for (Index c = 0; c < C; ++c) {
          Num mixed(0);
          for (Index e = 0; e < E; ++e) {
            const Index from = t - (E - 1) + e;
            if (from >= 0) mixed += w_EDC[(e * D + d) * C + c] * state_BTDC[((b * T + from) * D + d) * C + c];
          }
          x_NC[(b * T + t) * C + c] += read_D[d] * mixed;
        }
  return x_NC;
}

// Write: direction, gate, value, rewrite.

// k     = h / sqrt(|h|^2 + guard)
// guard = eps^2, or eps^2 C as the released Triton kernel has it
template <class Num>
Vec<Num> direction(const Vec<Num>& h_NC, Index N, Index C, double eps = kDirectionEps,
                   bool eps_times_width = false) {
  check_size(h_NC, N * C, "h_NC");
  const double guard = eps * eps * (eps_times_width ? static_cast<double>(C) : 1.0);
  Vec<Num> k_NC(h_NC.size());
  for (Index n = 0; n < N; ++n) {
    Num sum_squares(0);
    for (Index c = 0; c < C; ++c) sum_squares += h_NC[n * C + c] * h_NC[n * C + c];
    const Num norm = sqrt(sum_squares + Num(guard));
    for (Index c = 0; c < C; ++c) k_NC[n * C + c] = h_NC[n * C + c] / norm;
  }
  return k_NC;
}

// beta = 2 sigmoid(w.c + b); c is the normalised context
template <class Num>
Vec<Num> gate_linear(const Vec<Num>& c_NC, const Vec<Num>& w_C, const Vec<Num>& b_1, Index N, Index C) {
  Vec<Num> beta_N = linear_bias(c_NC, w_C, b_1, N, C, 1);
  for (Num& beta : beta_N) beta = Num(2) * sigmoid(beta);
  return beta_N;
}

// beta = 2 sigmoid(w2 . tanh(W1 c) + b2)
// No inner bias: the released code has none, though the paper's text writes one.
template <class Num>
Vec<Num> gate_two_layer(const Vec<Num>& c_NC, const Vec<Num>& w1_GC, const Vec<Num>& w2_G,
                        const Vec<Num>& b2_1, Index N, Index C, Index G) {
  Vec<Num> hidden_NG = linear(c_NC, w1_GC, N, C, G);
  for (Num& z : hidden_NG) z = tanh(z);
  return gate_linear(hidden_NG, w2_G, b2_1, N, G);
}

// v = scale sigmoid(W x_in + b); x_in is the sublayer input before its norm (released code, scale 4)
template <class Num>
Vec<Num> value_sigmoid(const Vec<Num>& x_in_NC, const Vec<Num>& w_DC, const Vec<Num>& b_D, Index N, Index C,
                       Index D, double scale = 4) {
  Vec<Num> v_ND = linear_bias(x_in_NC, w_DC, b_D, N, C, D);
  for (Num& v : v_ND) v = Num(scale) * sigmoid(v);
  return v_ND;
}

// v = W c (the paper's text); c is the normalised context
template <class Num>
Vec<Num> value_linear(const Vec<Num>& c_NC, const Vec<Num>& w_DC, Index N, Index C, Index D) {
  return linear(c_NC, w_DC, N, C, D);
}

// v = W c + b
template <class Num>
Vec<Num> value_biased(const Vec<Num>& c_NC, const Vec<Num>& w_DC, const Vec<Num>& b_D, Index N, Index C,
                      Index D) {
  return linear_bias(c_NC, w_DC, b_D, N, C, D);
}

// v = constant
template <class Num>
Vec<Num> value_constant(Index N, Index D, double constant = 2) {
  return Vec<Num>(N * D, Num(constant));
}

// r   = k^T X
// r_d = sum_c k_c X_dc
template <class Num>
Vec<Num> readout(const Vec<Num>& state_NDC, const Vec<Num>& k_NC, Index N, Index D, Index C) {
  check_size(state_NDC, N * D * C, "state_NDC"), check_size(k_NC, N * C, "k_NC");
  Vec<Num> r_ND(N * D, Num(0));
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) r_ND[n * D + d] += k_NC[n * C + c] * state_NDC[(n * D + d) * C + c];
  return r_ND;
}

// A gated rank-1 step along k:
//   X'    = X + beta k u^T
//   X'_dc = X_dc + beta u_d k_c
template <class Num>
Vec<Num> rank1_step(const Vec<Num>& state_NDC, const Vec<Num>& k_NC, const Vec<Num>& beta_N,
                    const Vec<Num>& u_ND, Index N, Index D, Index C) {
  check_size(state_NDC, N * D * C, "state_NDC"), check_size(k_NC, N * C, "k_NC");
  check_size(beta_N, N, "beta_N"), check_size(u_ND, N * D, "u_ND");
  Vec<Num> next_NDC = state_NDC;
  for (Index n = 0; n < N; ++n)
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c)
        next_NDC[(n * D + d) * C + c] += beta_N[n] * u_ND[n * D + d] * k_NC[n * C + c];
  return next_NDC;
}

// The delta rewrite. The bracket is the discrepancy between target and readout.
//   X' = X + beta k (v^T - k^T X)
template <class Num>
Vec<Num> delta_rewrite(const Vec<Num>& state_NDC, const Vec<Num>& k_NC, const Vec<Num>& beta_N,
                       const Vec<Num>& v_ND, Index N, Index D, Index C) {
  check_size(v_ND, N * D, "v_ND");
  Vec<Num> discrepancy_ND = readout(state_NDC, k_NC, N, D, C);
  for (Index i = 0; i < N * D; ++i) discrepancy_ND[i] = v_ND[i] - discrepancy_ND[i];
  return rank1_step(state_NDC, k_NC, beta_N, discrepancy_ND, N, D, C);
}

// The write-only control: the same step without the erase term.
//   X' = X + beta k v^T
template <class Num>
Vec<Num> write_only(const Vec<Num>& state_NDC, const Vec<Num>& k_NC, const Vec<Num>& beta_N,
                    const Vec<Num>& v_ND, Index N, Index D, Index C) {
  return rank1_step(state_NDC, k_NC, beta_N, v_ND, N, D, C);
}

// The ordinary residual:
//   x' = x + h
template <class Num>
Vec<Num> add(const Vec<Num>& x_NC, const Vec<Num>& h_NC) {
  check_size(h_NC, static_cast<Index>(x_NC.size()), "h_NC");
  Vec<Num> y_NC = x_NC;
  for (std::size_t i = 0; i < y_NC.size(); ++i) y_NC[i] += h_NC[i];
  return y_NC;
}

}  // namespace ddl::ref
