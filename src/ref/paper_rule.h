// The additive residual and the paper's rule with all its choices, and the write-only control.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ref/rule.h"

namespace ddl::ref {

enum class Expand { identity, repeat, conv };
enum class Read { identity, channel, token };
enum class Write { additive, delta, write_only, own };  // own: that of the derived rule
enum class Gate { linear, two_layer };
enum class Value { sigmoid, biased, linear, constant };

struct PaperChoices {
  Index channels = 1;         // D, the paper's d_v
  Index compress_kernel = 4;  // kc, taps of the token compressor
  Index embed_kernel = 4;     // ke, taps of the embedding convolution
  Index channel_kernel = 0;  // taps of the released channel compressor; 0: one weight per feature and channel
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
};

// w_EC as w_CE.
template <class Num>
Vec<Num> taps_last(const Vec<Num>& w_EC, Index C, Index E) {
  check_size(w_EC, E * C, "w_EC");
  Vec<Num> w_CE(w_EC.size());
  for (Index e = 0; e < E; ++e)
    for (Index c = 0; c < C; ++c) w_CE[c * E + e] = w_EC[e * C + c];
  return w_CE;
}

// Parameter names are those of the released code where it has one. Convolutions over tokens are stored
// [tap][D][C], those along channels [tap][C], and channel compressors without one [D][C].
template <class Num>
class PaperRule : public Rule<Num> {
 public:
  PaperRule(Index width, Index layers, const PaperChoices& choices)
      : width_(width), layers_(layers), c_(choices) {
    DDL_CHECK(c_.channels >= 1, "channels = {}", c_.channels);
    DDL_CHECK(c_.channels == 1 ||
                  (c_.expand != Expand::identity && c_.read != Read::identity && c_.write != Write::additive),
              "{} value channels need expand, read and write rules that know them", c_.channels);
  }

  void add_counts(std::map<std::string, Index>& counts) const override {
    const Index C = width_, D = c_.channels;
    const auto compressor = [&](const std::string& name) {
      if (c_.read == Read::channel && c_.channel_kernel == 0) counts[name + ".weight"] = D * C;
      if (c_.read == Read::channel && c_.channel_kernel > 0)
        counts[name + ".weight"] = c_.channel_kernel * C, counts[name + ".read"] = D;
      if (c_.read == Read::token)
        counts[name + ".weight"] = c_.compress_kernel * D * C, counts[name + ".read"] = D;
    };
    const auto branches = [&](const std::string& name) {
      for (const std::string& gate : gate_names()) {
        const std::string at = name + "." + gate;
        if (c_.gate == Gate::linear) counts[at + ".weight"] = C, counts[at + ".bias"] = 1;
        if (c_.gate == Gate::two_layer) {
          counts[at + "_in.weight"] = c_.gate_hidden * C;
          counts[at + "_out.weight"] = c_.gate_hidden;
          counts[at + "_out.bias"] = 1;
        }
      }
      if (c_.value != Value::constant) counts[name + ".v_proj.weight"] = D * C;
      if (c_.value == Value::sigmoid || c_.value == Value::biased) counts[name + ".v_proj.bias"] = D;
    };
    if (c_.expand == Expand::conv) counts["input_embed.conv.weight"] = c_.embed_kernel * D * C;
    compressor("readout");
    for (Index i = 0; i < layers_; ++i) {
      const std::string block = "transformer.h." + std::to_string(i) + ".";
      if (c_.write != Write::additive && c_.write != Write::own)
        branches(block + "ddl_attn"), branches(block + "ddl_mlp");
      if (c_.compressor_per_sublayer)
        compressor(block + "compress_attn"), compressor(block + "compress_mlp");
      else
        compressor(block + "compress");
    }
  }

  Vec<Num> start(const Vec<Num>& x_NC, const Parameters<Num>& w, Index B, Index T) const override {
    const Index C = width_, D = c_.channels;
    switch (c_.expand) {
      case Expand::identity:
        return x_NC;
      case Expand::repeat:
        return repeat_channels(x_NC, B * T, D, C);
      case Expand::conv:
        return embedding_conv(x_NC, find_parameter(w, "input_embed.conv.weight"), B, T, D, C,
                              c_.embed_kernel);
    }
    DDL_CHECK(false, "no such expand rule");
    return {};
  }

  Vec<Num> read(const Vec<Num>& state_NDC, const Place& place, const Parameters<Num>& w, Index B,
                Index T) const override {
    const std::string name = place.block.empty()          ? "readout"
                             : c_.compressor_per_sublayer ? place.block + "compress_" + place.kind
                                                          : place.block + "compress";
    const Index C = width_, D = c_.channels;
    switch (c_.read) {
      case Read::identity:
        return state_NDC;
      case Read::channel:
        if (c_.channel_kernel > 0)
          return released_channel_compress(
              state_NDC, taps_last(find_parameter(w, name + ".weight"), C, c_.channel_kernel),
              find_parameter(w, name + ".read"), B * T, D, C, c_.channel_kernel);
        return channel_compress(state_NDC, find_parameter(w, name + ".weight"), B * T, D, C);
      case Read::token:
        return token_compress(state_NDC, find_parameter(w, name + ".weight"),
                              find_parameter(w, name + ".read"), B, T, D, C, c_.compress_kernel);
    }
    DDL_CHECK(false, "no such read rule");
    return {};
  }

  // Records direction, gate, target, readout and discrepancy in s.
  Vec<Num> write(const Vec<Num>& state_NDC, SublayerTrace<Num>& s, const Place& place,
                 const Parameters<Num>& w, Index N) const override {
    const std::string name = place.block + "ddl_" + place.kind;
    const Index C = width_, D = c_.channels;
    if (c_.write == Write::additive) return add(state_NDC, s.h_NC);
    s.k_NC = direction(s.h_NC, N, C, c_.k_eps, c_.k_eps_times_width);
    s.beta_N = gate(s.c_NC, name + ".beta", w, N);
    s.v_ND = value(s, name, w, N);
    s.readout_ND = readout(state_NDC, s.k_NC, N, D, C);
    s.discrepancy_ND = s.v_ND;
    for (Index i = 0; i < N * D; ++i) s.discrepancy_ND[i] -= s.readout_ND[i];
    if (c_.write == Write::write_only) return write_only(state_NDC, s.k_NC, s.beta_N, s.v_ND, N, D, C);
    return delta_rewrite(state_NDC, s.k_NC, s.beta_N, s.v_ND, N, D, C);
  }

 protected:
  Index width() const { return width_; }
  const PaperChoices& choices() const { return c_; }
  virtual std::vector<std::string> gate_names() const { return {"beta"}; }

  // `name` is the gate's: "transformer.h.0.ddl_attn.beta".
  Vec<Num> gate(const Vec<Num>& c_NC, const std::string& name, const Parameters<Num>& w, Index N) const {
    if (c_.gate == Gate::linear)
      return gate_linear(c_NC, find_parameter(w, name + ".weight"), find_parameter(w, name + ".bias"), N,
                         width_);
    return gate_two_layer(c_NC, find_parameter(w, name + "_in.weight"),
                          find_parameter(w, name + "_out.weight"), find_parameter(w, name + "_out.bias"), N,
                          width_, c_.gate_hidden);
  }

  Vec<Num> value(const SublayerTrace<Num>& s, const std::string& name, const Parameters<Num>& w,
                 Index N) const {
    const Index C = width_, D = c_.channels;
    const std::string weight = name + ".v_proj.weight", bias = name + ".v_proj.bias";
    switch (c_.value) {
      case Value::sigmoid:
        return value_sigmoid(s.x_in_NC, find_parameter(w, weight), find_parameter(w, bias), N, C, D,
                             c_.value_scale);
      case Value::biased:
        return value_biased(s.c_NC, find_parameter(w, weight), find_parameter(w, bias), N, C, D);
      case Value::linear:
        return value_linear(s.c_NC, find_parameter(w, weight), N, C, D);
      case Value::constant:
        return value_constant<Num>(N, D, c_.value_constant);
    }
    DDL_CHECK(false, "no such value branch");
    return {};
  }

 private:
  const Index width_, layers_;
  const PaperChoices c_;
};

}  // namespace ddl::ref
