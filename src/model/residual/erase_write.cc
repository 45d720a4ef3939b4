// The delta rule with a gate of its own for the erase and for the write:
//
//   ddl-ew-*     X <- X + k (bw v^T - be k^T X),  k = h / |h|,  each gate 2 sigmoid(w . c + b)
//
// It contains ddl (bw = be) and the write-only control (be = 0). Both gates draw the starting values of ddl's one
// gate, so the first forward pass equals ddl's to the last bit.
#include <cmath>
#include <memory>

#include "model/residual/fused_rule.h"
#include "model/residual/rules.h"
#include "ref/paper_rule.h"

namespace ddl {
namespace {

// With s = 1 / sqrt(|h|^2 + k_eps^2), k = s h, r_d = k . X_d, a_d = k . G_d:
//
//   coef_d  = (bw (v_d - r_d) + (bw - be) r_d) s      written so that equal gates give ddl's bits
//   dv_d    = bw a_d      dbw = sum_d v_d a_d      dbe = - sum_d r_d a_d
//   erase_d = be a_d s
//   along   = s^2 (k . dk),   k . dk = sum_d a_d (bw v_d - 2 be r_d)
//
// Steering numbers: be, bw, v_0, ..., v_{D-1}. Saved: s, r_0, ..., r_{D-1}.
class EraseWriteCoefficients final : public Coefficients {
 public:
  explicit EraseWriteCoefficients(float k_eps) : k_eps_(k_eps) {}
  bool reads_state() const override { return true; }
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index D) const override { return 1 + D; }

  void forward(const Forward& t) const override {
    const float be = t.steer[0], bw = t.steer[1], *v = t.steer + 2;
    const float s = 1 / std::sqrt(std::fma(k_eps_, k_eps_, t.h_square));
    t.saved[0] = s;
    for (Index d = 0; d < t.D; ++d) {
      const float r = t.saved[1 + d] = t.h_dot_X_D[d] * s;
      t.coef_D[d] = coefficient(be, bw, v[d], r, s);
    }
  }

  void backward(Backward& t) const override {
    const float be = t.steer[0], bw = t.steer[1], *v = t.steer + 2, s = t.saved[0];
    float dbe = 0, dbw = 0, k_dk = 0;
    for (Index d = 0; d < t.D; ++d) {
      const float r = t.saved[1 + d], a = t.h_dot_G_D[d] * s;
      t.dsteer[2 + d] = bw * a;
      dbw = std::fma(v[d], a, dbw);
      dbe = std::fma(-r, a, dbe);
      k_dk = std::fma(a, bw * v[d] - 2 * be * r, k_dk);
      t.coef_D[d] = coefficient(be, bw, v[d], r, s);
      t.erase_D[d] = be * a * s;
    }
    t.dsteer[0] = dbe;
    t.dsteer[1] = dbw;
    t.along = s * s * k_dk;
  }

 private:
  static float coefficient(float be, float bw, float v, float r, float s) {
    return bw * (v - r) * s + (bw - be) * r * s;
  }
  const float k_eps_;
};

FusedSpec erase_write_spec(const ModelConfig& config) {
  const auto& options = config.rule<DeltaOptions>();
  FusedSpec spec = options.stream();
  const Index D = spec.channels;
  spec.write = std::make_shared<EraseWriteCoefficients>(static_cast<float>(options.k_eps));
  BranchSpec erase = options.gate_branch("beta_erase", config),
             write = options.gate_branch("beta_write", config);
  erase.draws_as = write.draws_as = "beta";
  spec.branches = {erase, write, options.value_branch(D, config)};
  using enum SeriesRole;
  spec.series = {{.name = "erase gate", .role = kEraseGate, .first = 0, .high = 2},
                 {.name = "write gate", .role = kWriteGate, .first = 1, .high = 2},
                 {.name = "target", .role = kTarget, .first = 2, .count = D},
                 {.name = "direction scale", .role = kDirectionScale, .source = SeriesSpec::kSaved},
                 {.name = "readout", .role = kReadout, .source = SeriesSpec::kSaved, .first = 1, .count = D}};
  return spec;
}

// The paper's rule with another write.
template <class Num>
class EraseWriteOracle : public ref::PaperRule<Num> {
 public:
  explicit EraseWriteOracle(const ModelConfig& config)
      : ref::PaperRule<Num>(config.width, config.layers,
                            config.rule<DeltaOptions>().oracle_choices(ref::Write::delta)) {}

  std::vector<std::string> gate_names() const override { return {"beta_erase", "beta_write"}; }

  // X' = X + k (bw v - be r)^T
  ref::Vec<Num> write(const ref::Vec<Num>& state_NDC, ref::SublayerTrace<Num>& s, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index N) const override {
    const std::string name = place.block + "ddl_" + place.kind;
    const Index C = this->width(), D = this->choices().channels;
    const ref::Vec<Num> k = ref::direction(s.h_NC, N, C, this->choices().k_eps);
    const ref::Vec<Num> be = this->gate(s.c_NC, name + ".beta_erase", w, N);
    const ref::Vec<Num> bw = this->gate(s.c_NC, name + ".beta_write", w, N);
    const ref::Vec<Num> v = this->value(s, name, w, N), r = ref::readout(state_NDC, k, N, D, C);
    ref::Vec<Num> next = state_NDC;
    for (Index n = 0; n < N; ++n)
      for (Index d = 0; d < D; ++d)
        for (Index c = 0; c < C; ++c)
          next[(n * D + d) * C + c] += (bw[n] * v[n * D + d] - be[n] * r[n * D + d]) * k[n * C + c];
    return next;
  }
};

}  // namespace

std::vector<RuleEntry> erase_write_rules() {
  return {with_oracle<EraseWriteOracle>(
              fused_rule("ddl-ew-dv1", "ddl-dv1 with separate gates for erase and write",
                         OptionSetPtr(DeltaOptions(Expand::kIdentity, Read::kIdentity)), erase_write_spec)),
          with_oracle<EraseWriteOracle>(
              fused_rule("ddl-ew-cc", "ddl-cc with separate gates for erase and write",
                         OptionSetPtr(DeltaOptions(Expand::kConv, Read::kChannel)), erase_write_spec))};
}

}  // namespace ddl
