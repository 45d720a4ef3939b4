// The oracle, whole: a decoder-only Transformer whose residual interface is assembled from pieces. Tokens in,
// logits or mean cross-entropy out; gradients by complex step or by tape.
//
//   x = wte[token]
//   X = expand(x)
//   for each block, for each of its sublayers F in (attention, MLP):
//     x_in = read(X)
//     c    = RMSNorm(x_in)
//     h    = F(c)
//     X    = write(X, h, c, x_in)
//   logits = logit_scale * RMSNorm(readout(X)) wte^T
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ref/paper_rule.h"
#include "ref/rule.h"

namespace ddl::ref {

struct Shape {
  Index layers = 2, heads = 2, head_size = 4, width = 6, mlp = 7, vocab = 11;
  double logit_scale = 1;  // muP: base width / width
  double rope_base = kRopeBase;
  double norm_eps = kNormEps;  // in front of sublayers and head; queries and keys have kNormEps
};

// A shape with the paper's rule.
struct Config : Shape, PaperChoices {};

// Every parameter of a model with its number of elements, in name order. lm_head is tied to wte.
template <class Num>
std::map<std::string, Index> parameter_counts(const Shape& p, const Rule<Num>& rule) {
  const Index C = p.width, HK = p.heads * p.head_size;
  std::map<std::string, Index> counts;
  rule.add_counts(counts);
  counts["transformer.wte.weight"] = p.vocab * C;
  counts["ln_f.weight"] = C;
  for (Index i = 0; i < p.layers; ++i) {
    const std::string block = "transformer.h." + std::to_string(i) + ".";
    counts[block + "ln_1.weight"] = counts[block + "ln_2.weight"] = C;
    for (const char* name : {"c_q", "c_k", "c_v", "c_proj"})
      counts[block + "attn." + name + ".weight"] = HK * C;  // c_proj is [C, H*K], the others [H*K, C]
    counts[block + "attn.q_rms.weight"] = counts[block + "attn.k_rms.weight"] = p.head_size;
    for (const char* name : {"c_fc1", "c_fc2", "c_proj"})
      counts[block + "mlp." + name + ".weight"] = p.mlp * C;
  }
  return counts;
}

inline std::map<std::string, Index> parameter_counts(const Config& config) {
  return parameter_counts(config, PaperRule<double>(config.width, config.layers, config));
}

template <class Num>
struct Trace {
  Vec<Num> first_state_NDC;
  std::vector<SublayerTrace<Num>> sublayers;  // attention and MLP of block 0, then of block 1, ...
};

template <class Num>
class Model {
 public:
  // Refers to all three.
  Model(const Shape& shape, const Rule<Num>& rule, const Parameters<Num>& parameters)
      : p_(shape), rule_(rule), w_(parameters) {
    const auto counts = parameter_counts(p_, rule_);
    DDL_CHECK(counts.size() == w_.size(), "{} parameters given, {} expected", w_.size(), counts.size());
    for (const auto& [name, count] : counts) check_size(at(name), count, name.c_str());
  }

  // z_NV for tokens_N, B sequences of T tokens. Fills `trace` if given.
  Vec<Num> logits(const Vec<std::int32_t>& token_N, Index B, Index T, Trace<Num>* trace = nullptr) const {
    const Index N = B * T, C = p_.width;
    Vec<Num> state = rule_.start(embedding(at("transformer.wte.weight"), token_N, N, p_.vocab, C), w_, B, T);
    if (trace) *trace = {state, {}};
    for (Index i = 0; i < 2 * p_.layers; ++i) {
      const bool attention = i % 2 == 0;
      const Place place{i, "transformer.h." + std::to_string(i / 2) + ".", attention ? "attn" : "mlp"};
      SublayerTrace<Num> s;
      s.name = place.block + place.kind;
      s.x_in_NC = rule_.read(state, place, w_, B, T);
      s.c_NC =
          rmsnorm(s.x_in_NC, at(place.block + (attention ? "ln_1" : "ln_2") + ".weight"), N, C, p_.norm_eps);
      s.h_NC = attention ? attend(s.c_NC, s.name, B, T) : feed_forward(s.c_NC, s.name, N);
      state = rule_.write(state, s, place, w_, N);
      if (trace) s.state_NDC = state, trace->sublayers.push_back(std::move(s));
    }
    const Vec<Num> readout = rule_.read(state, {2 * p_.layers, "", "readout"}, w_, B, T);
    Vec<Num> z_NV = linear(rmsnorm(readout, at("ln_f.weight"), N, C, p_.norm_eps),
                           at("transformer.wte.weight"), N, C, p_.vocab);
    for (Num& z : z_NV) z *= Num(p_.logit_scale);
    return z_NV;
  }

  // Mean cross-entropy over the targets; a negative target is not predicted.
  Num loss(const Vec<std::int32_t>& token_N, const Vec<std::int32_t>& target_N, Index B, Index T) const {
    return cross_entropy(logits(token_N, B, T), target_N, B * T, p_.vocab);
  }

 private:
  const Vec<Num>& at(const std::string& name) const { return find_parameter(w_, name); }

  // q'      = RMSNorm(rope(c W_q^T))
  // k'      = RMSNorm(rope(c W_k^T))
  // v       = c W_v^T
  // Attn(c) = attention(q', k', v) W_o^T
  Vec<Num> attend(const Vec<Num>& c_NC, const std::string& name, Index B, Index T) const {
    const Index H = p_.heads, K = p_.head_size, C = p_.width, N = B * T;
    const auto project = [&](const char* part) {
      return linear(c_NC, at(name + "." + part + ".weight"), N, C, H * K);
    };
    const auto rotate = [&](const Vec<Num>& x_BTHK, const char* norm) {
      return rope_qknorm(x_BTHK, at(name + norm), B, T, H, K, p_.rope_base);
    };
    const Vec<Num> q_BTHK = rotate(project("c_q"), ".q_rms.weight");
    const Vec<Num> k_BTHK = rotate(project("c_k"), ".k_rms.weight");
    const Vec<Num> o_BTHK = attention(q_BTHK, k_BTHK, project("c_v"), B, T, H, K);
    return linear(o_BTHK, at(name + ".c_proj.weight"), N, H * K, C);
  }

  // MLP(c) = (silu(c W_1^T) * (c W_2^T)) W_o^T
  Vec<Num> feed_forward(const Vec<Num>& c_NC, const std::string& name, Index N) const {
    const Index C = p_.width, F = p_.mlp;
    const Vec<Num> hidden_NF = swiglu(linear(c_NC, at(name + ".c_fc1.weight"), N, C, F),
                                      linear(c_NC, at(name + ".c_fc2.weight"), N, C, F));
    return linear(hidden_NF, at(name + ".c_proj.weight"), N, F, C);
  }

  const Shape& p_;
  const Rule<Num>& rule_;
  const Parameters<Num>& w_;
};

template <class Num>
Vec<Num> logits(const Config& config, const Parameters<Num>& parameters, const Vec<std::int32_t>& token_N,
                Index B, Index T, Trace<Num>* trace = nullptr) {
  const PaperRule<Num> rule(config.width, config.layers, config);
  return Model<Num>(config, rule, parameters).logits(token_N, B, T, trace);
}

template <class Num>
Num loss(const Config& config, const Parameters<Num>& parameters, const Vec<std::int32_t>& token_N,
         const Vec<std::int32_t>& target_N, Index B, Index T) {
  const PaperRule<Num> rule(config.width, config.layers, config);
  return Model<Num>(config, rule, parameters).loss(token_N, target_N, B, T);
}

// The same parameters in another number type.
template <class To, class From>
Parameters<To> convert_parameters(const Parameters<From>& parameters) {
  Parameters<To> result;
  for (const auto& [name, values] : parameters) result[name] = convert<To>(values);
  return result;
}

// dL/dp for every parameter, by complex step: one forward pass per number, so for tiny models only.
inline Parameters<double> loss_gradient(const Shape& shape, const Rule<Complex>& rule,
                                        const Parameters<double>& parameters,
                                        const Vec<std::int32_t>& token_N, const Vec<std::int32_t>& target_N,
                                        Index B, Index T) {
  Parameters<Complex> z = convert_parameters<Complex>(parameters);
  const Model<Complex> model(shape, rule, z);
  const auto evaluate = [&] { return model.loss(token_N, target_N, B, T); };
  Parameters<double> result;
  for (auto& [name, values] : z)
    for (Index i = 0; i < static_cast<Index>(values.size()); ++i)
      result[name].push_back(complex_step(evaluate, values, i));
  return result;
}

inline Parameters<double> loss_gradient(const Config& config, const Parameters<double>& parameters,
                                        const Vec<std::int32_t>& token_N, const Vec<std::int32_t>& target_N,
                                        Index B, Index T) {
  const PaperRule<Complex> rule(config.width, config.layers, config);
  return loss_gradient(config, rule, parameters, token_N, target_N, B, T);
}

struct LossAndGradient {
  double loss = 0;
  Parameters<double> gradient;
};

// Loss and dL/dp for every parameter, by tape: one forward pass and one walk back, and memory for every
// operation.
inline LossAndGradient loss_gradient_by_tape(const Shape& shape, const Rule<Var>& rule,
                                             const Parameters<double>& parameters,
                                             const Vec<std::int32_t>& token_N,
                                             const Vec<std::int32_t>& target_N, Index B, Index T) {
  Tape tape;
  const Tape::Scope scope(tape);
  Parameters<Var> variables;
  for (const auto& [name, values] : parameters)
    for (const double value : values) variables[name].push_back(tape.variable(value));
  const Var loss = Model<Var>(shape, rule, variables).loss(token_N, target_N, B, T);
  tape.gradients(loss);
  LossAndGradient result{real(loss), {}};
  for (const auto& [name, values] : variables)
    for (const Var& variable : values) result.gradient[name].push_back(tape.gradient(variable));
  return result;
}

inline Parameters<double> loss_gradient_by_tape(const Config& config, const Parameters<double>& parameters,
                                                const Vec<std::int32_t>& token_N,
                                                const Vec<std::int32_t>& target_N, Index B, Index T) {
  const PaperRule<Var> rule(config.width, config.layers, config);
  return loss_gradient_by_tape(config, rule, parameters, token_N, target_N, B, T).gradient;
}

}  // namespace ddl::ref
