// decay-x0: the state fades and the embedding comes back,
//   x' = a_s x + b_s x_0 + h
// with two learned numbers per sublayer, a = 1 and b = 0 at the start: then it is the additive residual.
//
// Backward, with g the gradient of x':
//   dx = a g      dh = g      da = sum over tokens of g . x      db = ... g . x_0      dx_0 += b g
// a may become small, so x is kept and not divided out of x'.
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

template <class T>
class DecayRule final : public StoredStateRule<T> {
 public:
  using Base = StoredStateRule<T>;
  using Base::Base;

  void add_params(ParamTable& table) override {
    Base::add_params(table);
    for (Index s = 0; s < this->sublayers(); ++s) {
      const std::string prefix = branch_prefix("decay", s);
      a_.push_back(table.add(prefix + "state", {1}, Init::constant(1)));
      b_.push_back(table.add(prefix + "embedding", {1}, Init::constant(0)));
    }
  }
  void plan(Arena& arena, const Room& room) override {
    Base::plan(arena, room);
    if (room.training)
      dx0_NC_ = arena.template take<float>("embedding gradient", room.tokens * this->width());
  }

  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    const DecayFwd<T> write{.a = *this->p(a_[s]),
                            .b = *this->p(b_[s]),
                            .x_NC = this->x_NC(s),
                            .x0_NC = this->embedding_NC(),
                            .h_NC = h_NC,
                            .next_NC = this->next_NC(s)};
    decay_fwd(write, this->norm_of(s + 1, next_context_NC), tokens.count, this->width(), ex);
  }

  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T*, const T*,
                               const Tokens& tokens, const Exec& ex) override {
    const DecayBwd<T> write{.a = *this->p(a_[s]),
                            .b = *this->p(b_[s]),
                            .next_NC = this->x_NC(s + 1),
                            .x_NC = this->x_NC(s),
                            .x0_NC = this->embedding_NC(),
                            .dh_NC = dh_NC,
                            .dstate_NC = this->dstate_NC(),
                            .dx0_NC = dx0_NC_,
                            .mode = this->gradient_mode(s),
                            .da = this->g(a_[s]),
                            .db = this->g(b_[s])};
    decay_bwd(write, this->norm_backward_of(s + 1, dnext_context_NC), this->scratch(), tokens.count,
              this->width(), ex);
  }

 private:
  double write_flops() const override { return 4; }           // two multiply-adds
  double write_backward_flops() const override { return 7; }  // da, db and dx_0 two each, dx one
  const float* embedding_gradient() const override { return dx0_NC_; }

  std::vector<Index> a_, b_;  // offsets
  float* dx0_NC_ = nullptr;
};

// Its state: x, then x_0.
template <class Num>
class DecayOracle final : public ref::Rule<Num> {
 public:
  explicit DecayOracle(const ModelConfig& config) : sublayers_(config.sublayers()) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    for (Index s = 0; s < sublayers_; ++s)
      counts[branch_prefix("decay", s) + "state"] = counts[branch_prefix("decay", s) + "embedding"] = 1;
  }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index, Index) const override {
    return joined(x_NC, x_NC);
  }
  ref::Vec<Num> read(const ref::Vec<Num>& state, const ref::Place&, const ref::Parameters<Num>&, Index,
                     Index) const override {
    return {state.begin(), middle(state)};
  }
  ref::Vec<Num> write(const ref::Vec<Num>& state, ref::SublayerTrace<Num>& sublayer, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index) const override {
    const std::string prefix = place.block + "decay_" + place.kind + ".";
    const ref::Vec<Num> x(state.begin(), middle(state)), x0(middle(state), state.end());
    return joined(ref::decay_write(x, x0, sublayer.h_NC, ref::find_parameter(w, prefix + "state")[0],
                                   ref::find_parameter(w, prefix + "embedding")[0]),
                  x0);
  }

 private:
  static auto middle(const ref::Vec<Num>& state) { return state.begin() + std::ssize(state) / 2; }
  static ref::Vec<Num> joined(ref::Vec<Num> x, const ref::Vec<Num>& x0) {
    x.insert(x.end(), x0.begin(), x0.end());
    return x;
  }
  const Index sublayers_;
};

}  // namespace

std::vector<RuleEntry> decay_rules() {
  RuleEntry entry{.name = "decay-x0",
                  .summary = "the state fades and the embedding comes back: a x + b x0 + h"};
  entry.make_f32 = [](const ModelConfig& config) { return std::make_unique<DecayRule<float>>(config); };
  entry.make_bf16 = [](const ModelConfig& config) { return std::make_unique<DecayRule<bf16>>(config); };
  return {with_oracle<DecayOracle>(std::move(entry))};
}

}  // namespace ddl
