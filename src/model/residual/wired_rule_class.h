// The class behind wired_rule.h, shared by its two files: wired_rule.cc trains, wired_decode.cc decodes.
#pragma once

#include "model/config.h"
#include "model/residual/wired_rule.h"

namespace ddl {

template <class T>
class WiredRule final : public Residual<T> {
 public:
  WiredRule(const ModelConfig& config, BatchShape shape, Wiring wiring)
      : config_(config),
        wiring_(wiring),
        N_(shape.N()),
        T_(shape.T),
        S_(config.sublayers()),
        D_(wiring.read == Read::kIdentity ? 1 : config.channels),
        C_(config.width),
        branches_(wiring.write != WriteRule::kAdd),
        two_layer_(branches_ && config.gate == "two-layer"),
        value_(config.value == "sigmoid"  ? ValueBranch::kSigmoid
               : config.value == "biased" ? ValueBranch::kBiased
                                          : ValueBranch::kLinear),
        saved_(static_cast<std::size_t>(S_)) {}

  void add_params(ParamTable& table) override;
  void plan(Arena& arena, bool training) override;
  void bind(const float* params, const T* params_T, float* grads) override {
    params_ = params, params_T_ = params_T, grads_ = grads;
  }

  void open(T* context_NC, const float* x_NC, const Exec& ex) override;
  void advance(Index s, T* next_context_NC, const T* h_NC, const Exec& ex) override;
  void retreat(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC, const T* h_NC,
               const Exec& ex) override;
  void close(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
             const Exec& ex) override;

  // wired_decode.cc
  void plan_decode(Arena& arena, Index slots) override;
  void decode_open(T* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) override;
  void decode_advance(Index s, T* next_context_NC, const T* h_NC, DecodeSpans spans, const Exec& ex) override;
  void decode_copy(Index to_slot, Index from_slot) override;

  double flops_forward() const override;
  double flops_backward() const override;
  Index cache_floats() const override;
  GateTrace trace(Index s) const override {
    if (!branches_) return {};
    return {saved_[s].beta_N, saved_[s].v_ND,
            wiring_.write == WriteRule::kDelta ? saved_[s].readout_ND : nullptr, D_};
  }

 private:
  // Offsets of the parameters in front of sublayer s (s = S: the readout, which has no branches).
  struct Stage {
    Index norm = 0, compress = 0, read = 0, gate_in = 0, gate_w = 0, gate_b = 0, value_w = 0, value_b = 0;
  };
  // What backward needs of sublayer s: a few numbers a token, never the state.
  struct Saved {
    float *rstd_N = nullptr, *beta_N = nullptr, *v_ND = nullptr, *readout_ND = nullptr, *kscale_N = nullptr;
  };

  const float* p(Index offset) const { return params_ + offset; }
  float* g(Index offset) const { return grads_ + offset; }

  BranchWeights branch_weights(Index s) const;
  WriteFwd<T> write_fwd(Index s, const T* h_NC) const;
  WriteBwd<T> write_bwd(Index s, const T* h_NC, T* dh_NC) const;
  ReadFwd<T> read_fwd(Index s, T* context_NC) const;
  ReadBwd<T> read_bwd(Index s, const float* dcontext_NC) const;
  void gate_fwd(Index s, const T* context_NC, const Exec& ex) const;
  void decode_gate(Index s, const T* context_NC, Index N, const Exec& ex) const;
  void gate_bwd(Index s, float* dcontext_NC, const T* context_NC, const Exec& ex) const;
  void step_fwd(Index s, T* context_NC, const WriteFwd<T>* write, const Exec& ex);
  void decode_step(Index s, T* context_NC, const WriteFwd<T>* write, DecodeSpans spans, const Exec& ex);
  void step_bwd(Index s, float* dcontext_NC, const T* context_NC, const WriteBwd<T>* write, const Exec& ex);

  const ModelConfig config_;
  const Wiring wiring_;
  const Index N_, T_, S_, D_, C_;
  const bool branches_, two_layer_;
  const ValueBranch value_;

  std::vector<Stage> stages_;  // S + 1
  Index expand_w_ = 0;
  const float* params_ = nullptr;
  const T* params_T_ = nullptr;
  float* grads_ = nullptr;

  float* state_NDC_ = nullptr;
  float* dstate_NDC_ = nullptr;
  float* x_in_NC_ = nullptr;   // token compressor: its output, and
  float* dx_in_NC_ = nullptr;  // the gradient of that
  float *dbeta_N_ = nullptr, *dv_ND_ = nullptr;
  float* gate_hidden_NG_ = nullptr;
  T* dgate_hidden_NG_ = nullptr;
  float* rstd_last_N_ = nullptr;  // of the readout's norm
  float* scratch_ = nullptr;
  std::vector<Saved> saved_;

  // Decoding: for each slot the last rows that a convolution will look back at (see look_back.h).
  Index slots_ = 0;
  float* embedding_ring_ = nullptr;  // [slots][taps - 1][C]
  float* state_ring_ = nullptr;      // [slots][S + 1][taps - 1][D C]
};

}  // namespace ddl
