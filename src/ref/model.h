// The oracle, whole: a decoder-only Transformer whose residual interface is assembled from pieces. Tokens in,
// logits or mean cross-entropy out; gradients of any parameter by complex step.
//
//   x = wte[token]              X = expand(x)
//   for each block, for each of its sublayers F in (attention, MLP):
//     x_in = read(X)   c = RMSNorm(x_in)   h = F(c)   X = write(X, h, c, x_in)
//   logits = logit_scale * RMSNorm(readout(X)) wte^T
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ref/complex_step.h"
#include "ref/ops.h"

namespace ddl::ref {

enum class Expand { identity, repeat, conv };
enum class Read { identity, channel, token };
enum class Write { additive, delta, write_only };
enum class Gate { linear, two_layer };
enum class Value { sigmoid, biased, linear, constant };

struct Config {
  Index layers = 2, heads = 2, head_size = 4, width = 6, mlp = 7, vocab = 11;
  Index channels = 1;         // D, the paper's d_v
  Index compress_kernel = 4;  // kc, taps of the token compressor
  Index embed_kernel = 4;     // ke, taps of the embedding convolution
  Expand expand = Expand::identity;
  Read read = Read::identity;     // identity needs channels == 1
  Write write = Write::additive;  // additive needs channels == 1
  Gate gate = Gate::linear;
  Index gate_hidden = 128;  // of the two-layer gate
  Value value = Value::sigmoid;
  double value_scale = 4;  // of the sigmoid value
  double value_constant = 2;
  bool compressor_per_sublayer = false;  // false: one compressor serves both sublayers of a block
  double k_eps = kDirectionEps;
  bool k_eps_times_width = false;
  double logit_scale = 1;  // muP: base width / width
};

// The pieces of a named variant. Sizes of `config` are kept, except that baseline and the dv1 variants have D
// = 1.
inline Config with_variant(Config config, const std::string& name) {
  config.write = name == "baseline"        ? Write::additive
                 : name.starts_with("wo-") ? Write::write_only
                                           : Write::delta;
  const std::string kind = name == "baseline" ? "dv1" : name.substr(name.find('-') + 1);
  if (kind == "dv1") {
    config.channels = 1;
    config.expand = Expand::identity;
    config.read = Read::identity;
  } else {
    DDL_CHECK(kind == "cc" || kind == "tc" || kind == "cc-noec" || kind == "tc-noec", "unknown variant {}",
              name);
    config.expand = kind.ends_with("-noec") ? Expand::repeat : Expand::conv;
    config.read = kind.starts_with("cc") ? Read::channel : Read::token;
  }
  return config;
}

template <class Num>
using Parameters = std::map<std::string, Vec<Num>>;

// Every parameter of a configuration with its number of elements, in name order. Names are those of the
// released code where it has one. Convolutions are stored [tap][D][C] and channel compressors [D][C]; lm_head
// is tied to wte.
inline std::map<std::string, Index> parameter_counts(const Config& p) {
  const Index C = p.width, D = p.channels, HK = p.heads * p.head_size;
  std::map<std::string, Index> counts;
  const auto compressor = [&](const std::string& name) {
    if (p.read == Read::channel) counts[name + ".weight"] = D * C;
    if (p.read == Read::token)
      counts[name + ".weight"] = p.compress_kernel * D * C, counts[name + ".read"] = D;
  };
  const auto branches = [&](const std::string& name) {
    if (p.gate == Gate::linear) counts[name + ".beta.weight"] = C, counts[name + ".beta.bias"] = 1;
    if (p.gate == Gate::two_layer) {
      counts[name + ".beta_in.weight"] = p.gate_hidden * C;
      counts[name + ".beta_out.weight"] = p.gate_hidden;
      counts[name + ".beta_out.bias"] = 1;
    }
    if (p.value != Value::constant) counts[name + ".v_proj.weight"] = D * C;
    if (p.value == Value::sigmoid || p.value == Value::biased) counts[name + ".v_proj.bias"] = D;
  };
  counts["transformer.wte.weight"] = p.vocab * C;
  counts["ln_f.weight"] = C;
  if (p.expand == Expand::conv) counts["input_embed.conv.weight"] = p.embed_kernel * D * C;
  compressor("readout");
  for (Index i = 0; i < p.layers; ++i) {
    const std::string block = "transformer.h." + std::to_string(i) + ".";
    counts[block + "ln_1.weight"] = counts[block + "ln_2.weight"] = C;
    for (const char* name : {"c_q", "c_k", "c_v", "c_proj"})
      counts[block + "attn." + name + ".weight"] = HK * C;  // c_proj is [C, H*K], the others [H*K, C]
    counts[block + "attn.q_rms.weight"] = counts[block + "attn.k_rms.weight"] = p.head_size;
    for (const char* name : {"c_fc1", "c_fc2", "c_proj"})
      counts[block + "mlp." + name + ".weight"] = p.mlp * C;
    if (p.write != Write::additive) branches(block + "ddl_attn"), branches(block + "ddl_mlp");
    if (p.compressor_per_sublayer) {
      compressor(block + "compress_attn"), compressor(block + "compress_mlp");
    } else {
      compressor(block + "compress");
    }
  }
  return counts;
}

// What one sublayer did, for tests and audits; k, beta, v, readout and discrepancy stay empty in an additive
// model.
template <class Num>
struct SublayerTrace {
  std::string name;                     // "transformer.h.0.attn"
  Vec<Num> x_in_NC, c_NC, h_NC;         // input, its norm, the sublayer's output
  Vec<Num> k_NC, beta_N, v_ND;          // direction, gate, target
  Vec<Num> readout_ND, discrepancy_ND;  // k^T X and v - k^T X, both before the write
  Vec<Num> state_NDC;                   // after the write
};

template <class Num>
struct Trace {
  Vec<Num> first_state_NDC;
  std::vector<SublayerTrace<Num>> sublayers;  // attention and MLP of block 0, then of block 1, ...
};

template <class Num>
class Model {
 public:
  Model(const Config& config, const Parameters<Num>& parameters) : p_(config), w_(parameters) {
    DDL_CHECK(p_.channels >= 1, "channels = {}", p_.channels);
    DDL_CHECK(p_.channels == 1 ||
                  (p_.expand != Expand::identity && p_.read != Read::identity && p_.write != Write::additive),
              "{} value channels need expand, read and write rules that know them", p_.channels);
    const auto counts = parameter_counts(p_);
    DDL_CHECK(counts.size() == w_.size(), "{} parameters given, {} expected", w_.size(), counts.size());
    for (const auto& [name, count] : counts) check_size(at(name), count, name.c_str());
  }

  // z_NV for tokens_N, B sequences of T tokens. Fills `trace` if given.
  Vec<Num> logits(const Vec<std::int32_t>& token_N, Index B, Index T, Trace<Num>* trace = nullptr) const {
    const Index N = B * T, C = p_.width;
    Vec<Num> state_NDC = expand(embedding(at("transformer.wte.weight"), token_N, N, p_.vocab, C), B, T);
    if (trace) *trace = {state_NDC, {}};
    for (Index i = 0; i < p_.layers; ++i) {
      const std::string block = "transformer.h." + std::to_string(i) + ".";
      for (const std::string sub : {"attn", "mlp"}) {
        SublayerTrace<Num> s;
        s.name = block + sub;
        s.x_in_NC =
            read(state_NDC, block + (p_.compressor_per_sublayer ? "compress_" + sub : "compress"), B, T);
        s.c_NC = rmsnorm(s.x_in_NC, at(block + (sub == "attn" ? "ln_1" : "ln_2") + ".weight"), N, C);
        s.h_NC = sub == "attn" ? attend(s.c_NC, s.name, B, T) : feed_forward(s.c_NC, s.name, N);
        state_NDC = write(state_NDC, s, block + "ddl_" + sub, N);
        if (trace) s.state_NDC = state_NDC, trace->sublayers.push_back(std::move(s));
      }
    }
    const Vec<Num> x_NC = rmsnorm(read(state_NDC, "readout", B, T), at("ln_f.weight"), N, C);
    Vec<Num> z_NV = linear(x_NC, at("transformer.wte.weight"), N, C, p_.vocab);
    for (Num& z : z_NV) z *= Num(p_.logit_scale);
    return z_NV;
  }

  // Mean cross-entropy over all N targets.
  Num loss(const Vec<std::int32_t>& token_N, const Vec<std::int32_t>& target_N, Index B, Index T) const {
    return cross_entropy(logits(token_N, B, T), target_N, B * T, p_.vocab);
  }

 private:
  const Vec<Num>& at(const std::string& name) const {
    const auto found = w_.find(name);
    DDL_CHECK(found != w_.end(), "parameter {} is missing", name);
    return found->second;
  }

  // Attn(c) = attention(q', k', v) W_o^T,  q' = RMSNorm(rope(c W_q^T)),  k' = RMSNorm(rope(c W_k^T)),  v = c
  // W_v^T
  Vec<Num> attend(const Vec<Num>& c_NC, const std::string& name, Index B, Index T) const {
    const Index H = p_.heads, K = p_.head_size, C = p_.width, N = B * T;
    const auto project = [&](const char* part) {
      return linear(c_NC, at(name + "." + part + ".weight"), N, C, H * K);
    };
    const Vec<Num> q_BTHK = rope_qknorm(project("c_q"), at(name + ".q_rms.weight"), B, T, H, K);
    const Vec<Num> k_BTHK = rope_qknorm(project("c_k"), at(name + ".k_rms.weight"), B, T, H, K);
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

  Vec<Num> expand(const Vec<Num>& x_NC, Index B, Index T) const {
    const Index C = p_.width, D = p_.channels;
    switch (p_.expand) {
      case Expand::identity:
        return x_NC;
      case Expand::repeat:
        return repeat_channels(x_NC, B * T, D, C);
      case Expand::conv:
        return embedding_conv(x_NC, at("input_embed.conv.weight"), B, T, D, C, p_.embed_kernel);
    }
    DDL_CHECK(false, "no such expand rule");
    return {};
  }

  Vec<Num> read(const Vec<Num>& state_NDC, const std::string& name, Index B, Index T) const {
    const Index C = p_.width, D = p_.channels;
    switch (p_.read) {
      case Read::identity:
        return state_NDC;
      case Read::channel:
        return channel_compress(state_NDC, at(name + ".weight"), B * T, D, C);
      case Read::token:
        return token_compress(state_NDC, at(name + ".weight"), at(name + ".read"), B, T, D, C,
                              p_.compress_kernel);
    }
    DDL_CHECK(false, "no such read rule");
    return {};
  }

  Vec<Num> gate(const Vec<Num>& c_NC, const std::string& name, Index N) const {
    if (p_.gate == Gate::linear)
      return gate_linear(c_NC, at(name + ".beta.weight"), at(name + ".beta.bias"), N, p_.width);
    return gate_two_layer(c_NC, at(name + ".beta_in.weight"), at(name + ".beta_out.weight"),
                          at(name + ".beta_out.bias"), N, p_.width, p_.gate_hidden);
  }

  Vec<Num> value(const SublayerTrace<Num>& s, const std::string& name, Index N) const {
    const Index C = p_.width, D = p_.channels;
    const std::string weight = name + ".v_proj.weight", bias = name + ".v_proj.bias";
    switch (p_.value) {
      case Value::sigmoid:
        return value_sigmoid(s.x_in_NC, at(weight), at(bias), N, C, D, p_.value_scale);
      case Value::biased:
        return value_biased(s.c_NC, at(weight), at(bias), N, C, D);
      case Value::linear:
        return value_linear(s.c_NC, at(weight), N, C, D);
      case Value::constant:
        return value_constant<Num>(N, D, p_.value_constant);
    }
    DDL_CHECK(false, "no such value branch");
    return {};
  }

  // The next state; records direction, gate, target, readout and discrepancy in s.
  Vec<Num> write(const Vec<Num>& state_NDC, SublayerTrace<Num>& s, const std::string& name, Index N) const {
    const Index C = p_.width, D = p_.channels;
    if (p_.write == Write::additive) return add(state_NDC, s.h_NC);
    s.k_NC = direction(s.h_NC, N, C, p_.k_eps, p_.k_eps_times_width);
    s.beta_N = gate(s.c_NC, name, N);
    s.v_ND = value(s, name, N);
    s.readout_ND = readout(state_NDC, s.k_NC, N, D, C);
    s.discrepancy_ND = s.v_ND;
    for (Index i = 0; i < N * D; ++i) s.discrepancy_ND[i] -= s.readout_ND[i];
    if (p_.write == Write::write_only) return write_only(state_NDC, s.k_NC, s.beta_N, s.v_ND, N, D, C);
    return delta_rewrite(state_NDC, s.k_NC, s.beta_N, s.v_ND, N, D, C);
  }

  const Config& p_;
  const Parameters<Num>& w_;
};

template <class Num>
Vec<Num> logits(const Config& config, const Parameters<Num>& parameters, const Vec<std::int32_t>& token_N,
                Index B, Index T, Trace<Num>* trace = nullptr) {
  return Model<Num>(config, parameters).logits(token_N, B, T, trace);
}

template <class Num>
Num loss(const Config& config, const Parameters<Num>& parameters, const Vec<std::int32_t>& token_N,
         const Vec<std::int32_t>& target_N, Index B, Index T) {
  return Model<Num>(config, parameters).loss(token_N, target_N, B, T);
}

// The same parameters in another number type.
template <class To, class From>
Parameters<To> convert_parameters(const Parameters<From>& parameters) {
  Parameters<To> result;
  for (const auto& [name, values] : parameters) result[name] = convert<To>(values);
  return result;
}

// dL/dp for every parameter, by complex step: one forward pass per number, so for tiny models only.
inline Parameters<double> loss_gradient(const Config& config, const Parameters<double>& parameters,
                                        const Vec<std::int32_t>& token_N, const Vec<std::int32_t>& target_N,
                                        Index B, Index T) {
  Parameters<Complex> z = convert_parameters<Complex>(parameters);
  const auto evaluate = [&] { return loss(config, z, token_N, target_N, B, T); };
  Parameters<double> result;
  for (auto& [name, values] : z)
    for (Index i = 0; i < static_cast<Index>(values.size()); ++i)
      result[name].push_back(complex_step(evaluate, values, i));
  return result;
}

}  // namespace ddl::ref
