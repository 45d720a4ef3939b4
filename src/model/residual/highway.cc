// highway: each feature of the state is replaced to a learned degree,
//   x' = x + gate * (h - x)        gate = sigmoid(w * c + b)        per feature; c is the normalised context
// the delta rule with the coordinate axes as directions. w = 0 and b = -2 at the start: an eighth is replaced.
//
// Backward, with g the gradient of x' and u = w * c + b:
//   dh = gate * g      dx = (1 - gate) * g + the norm's gradient at dc = du * w
//   du = g * (h - x) * gate * (1 - gate)      dw = sum over tokens of du * c      db = ... du
// 1 - gate may be close to 0, so x is kept and not divided out of x'.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/residual/rules.h"
#include "model/residual/stored_state_rule.h"
#include "ref/depth_ops.h"

namespace ddl {
namespace {

struct HighwayOptions final : OptionSetOf<HighwayOptions> {
  double gate_bias = -2;
  void describe(Options& o) override {
    o.add("model.gate_bias", gate_bias, "the gate's bias at the start: it opens to sigmoid(bias)")
        .range(-30, 30)
        .changes(Options::Changes::kStart);
  }
};

template <class T>
class HighwayRule final : public StoredStateRule<T> {
 public:
  using Base = StoredStateRule<T>;
  explicit HighwayRule(const ModelConfig& config)
      : Base(config), gate_bias_(config.rule<HighwayOptions>().gate_bias) {}

  void add_params(ParamTable& table) override {
    Base::add_params(table);
    for (Index s = 0; s < this->sublayers(); ++s) {
      const std::string prefix = branch_prefix("highway", s);
      w_.push_back(table.add(prefix + "weight", {this->width()}, Init::constant(0)));
      bias_.push_back(table.add(prefix + "bias", {this->width()}, Init::constant(gate_bias_)));
    }
  }
  void plan(Arena& arena, const Room& room) override {
    Base::plan(arena, room);
    mean_gate_.assign(static_cast<std::size_t>(this->sublayers()), nullptr);
    for (Index s = 0; s < this->sublayers(); ++s)
      mean_gate_[s] =
          room.training || s == 0 ? arena.template take<float>("gates", room.tokens) : mean_gate_[0];
  }

  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    const HighwayFwd<T> write{.w_C = this->p(w_[s]),
                              .bias_C = this->p(bias_[s]),
                              .x_NC = this->x_NC(s),
                              .norm_C = this->norm_C(s),
                              .rstd_N = this->rstd_N(s),
                              .h_NC = h_NC,
                              .next_NC = this->next_NC(s),
                              .mean_gate_N = mean_gate_[s]};
    highway_fwd(write, this->norm_of(s + 1, next_context_NC), tokens.count, this->width(), ex);
  }

  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T*, const T* h_NC,
                               const Tokens& tokens, const Exec& ex) override {
    const HighwayBwd<T> write{.w_C = this->p(w_[s]),
                              .bias_C = this->p(bias_[s]),
                              .next_NC = this->x_NC(s + 1),
                              .x_NC = this->x_NC(s),
                              .norm_C = this->norm_C(s),
                              .rstd_N = this->rstd_N(s),
                              .h_NC = h_NC,
                              .dh_NC = dh_NC,
                              .dstate_NC = this->dstate_NC(),
                              .mode = this->gradient_mode(s),
                              .dw_C = this->g(w_[s]),
                              .dbias_C = this->g(bias_[s]),
                              .dnorm_C = this->dnorm_C(s)};
    highway_bwd(write, this->norm_backward_of(s + 1, dnext_context_NC), this->scratch(), tokens.count,
                this->width(), ex);
  }

  // A token's mean over its features.
  std::vector<TokenSeries> series(Index s) const override {
    return {{.name = "gate", .values = mean_gate_[s], .low = 0, .high = 1}};
  }

 private:
  // c two, u two, h - x, its product with the gate and the sum; the sigmoid as one, its mean as one.
  double write_flops() const override { return 9; }
  // c, u and the gate five; g (h - x) two; du three; dw two; db, dc, dh one each; (1 - gate) g two; the norm ten.
  double write_backward_flops() const override { return 27; }

  const double gate_bias_;
  std::vector<Index> w_, bias_;  // offsets
  std::vector<float*> mean_gate_;
};

template <class Num>
class HighwayOracle final : public ref::Rule<Num> {
 public:
  explicit HighwayOracle(const ModelConfig& config) : width_(config.width), sublayers_(config.sublayers()) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index s = 0; s < sublayers_; ++s)
      counts[branch_prefix("highway", s) + "weight"] = counts[branch_prefix("highway", s) + "bias"] = width_;
  }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index, Index) const override {
    return x_NC;
  }
  ref::Vec<Num> read(const ref::Vec<Num>& x_NC, const ref::Place&, const ref::Parameters<Num>&, Index,
                     Index) const override {
    return x_NC;
  }
  ref::Vec<Num> write(const ref::Vec<Num>& x_NC, ref::SublayerTrace<Num>& sublayer, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index N) const override {
    const std::string prefix = place.block + "highway_" + place.kind + ".";
    return ref::highway_write(x_NC, sublayer.c_NC, sublayer.h_NC, ref::find_parameter(w, prefix + "weight"),
                              ref::find_parameter(w, prefix + "bias"), N, width_);
  }

 private:
  const Index width_, sublayers_;
};

}  // namespace

std::vector<RuleEntry> highway_rules() {
  RuleEntry entry{.name = "highway",
                  .summary = "a gate per feature between the state and the output: x + gate (h - x)",
                  .options = OptionSetPtr(HighwayOptions())};
  entry.make_f32 = [](const ModelConfig& config) { return std::make_unique<HighwayRule<float>>(config); };
  entry.make_bf16 = [](const ModelConfig& config) { return std::make_unique<HighwayRule<bf16>>(config); };
  return {with_oracle<HighwayOracle>(std::move(entry))};
}

}  // namespace ddl
