// Rules whose state is D parallel streams that every write mixes anew (kernels/hyper_connections.h). Such a rule is
// a description, StreamsSpec: how a token's mixing numbers are made, and from which parameters.
//
//   start     X_i = x for every stream
//   read      x_in = sum_i read_i X_i
//   write     X'_j = write_j h + sum_i mix_ij X_i
//   readout   sum_i X_i
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hyper_connections.h"
#include "model/config.h"
#include "model/residual/registry.h"
#include "model/residual/rule.h"

namespace ddl {

// Offsets of what a sublayer's mixer needs: its extra parameters in one piece and its rows in another. Where rows
// are shared, they may be multiplied by the weight of a norm, row_norm [C].
struct MixerParams {
  Index extra = 0, rows = 0;
  Index row_norm = -1;  // -1: none
};

struct StreamsSpec {
  Index streams = 4;  // D
  std::shared_ptr<const StreamMixer> mixer = {};
  // Adds the parameters of sublayer s, whose names start with "transformer.h.0." and the like, then PREFIX_attn. or
  // PREFIX_mlp. Starting values may depend on s.
  std::string prefix = "";
  std::function<MixerParams(ParamTable&, const std::string& prefix, Index s)> add_params = {};
};

template <class T>
class StreamsRule final : public ResidualRule<T> {
 public:
  StreamsRule(const ModelConfig& config, StreamsSpec spec);

  void add_params(ParamTable& table) override;
  void plan(Arena& arena, const Room& room) override;
  void bind(const Numbers<T>& numbers) override { numbers_ = numbers; }
  void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override;
  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override;
  void copy_slot(Index, Index) override {}  // a token concerns itself alone
  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC,
                               const T* h_NC, const Tokens& tokens, const Exec& ex) override;
  void start_backward(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                      const Tokens& tokens, const Exec& ex) override;
  double flops_forward() const override;
  double flops_backward() const override;
  Index remembered_floats() const override { return 0; }
  double state_floats() const override { return static_cast<double>(D_ * C_); }
  std::vector<TokenSeries> series(Index s) const override;
  StateView view(Index s) const override { return {saved_[s].state_NDC, D_, saved_[s].rstd_N}; }
  bool read_as_last(Index s, T* context_NC, const Tokens& tokens, const Exec& ex) override;

 private:
  struct Stage {  // offsets of the parameters in front of sublayer s (s = S: the readout, which has no mixer)
    Index norm = 0;
    MixerParams mixer;
  };
  // What backward needs of sublayer s. state is the one it read; that of s = S is the readout's.
  struct Saved {
    float *state_NDC = nullptr, *rstd_N = nullptr;
    float *dots_NQ = nullptr, *square_ND = nullptr, *numbers_NK = nullptr;
  };

  const float* p(Index offset) const { return numbers_.params + offset; }
  float* g(Index offset) const { return numbers_.grads + offset; }
  Index row_count() const { return spec_.mixer->weights(D_, C_); }
  bool norms_rows() const { return row_norms_; }

  StreamsLook look(Index s) const;
  void read(Index s, T* context_NC, const StreamsWriteFwd<T>* write, const Tokens& tokens, const Exec& ex);
  void read_backward(Index s, float* dcontext_NC, const StreamsWriteBwd<T>* write, const Tokens& tokens,
                     const Exec& ex);
  void scale_rows(Index s) const;
  void scale_rows_backward(Index s) const;

  const StreamsSpec spec_;
  const Index S_, D_, C_;
  const float norm_eps_;
  std::vector<Stage> stages_;  // S + 1
  std::vector<Saved> saved_;   // S + 1
  bool row_norms_ = false;
  Numbers<T> numbers_;
  float *dstate_NDC_ = nullptr, *dnumbers_NK_ = nullptr, *scratch_ = nullptr;
  float *rows_RC_ = nullptr,
        *drows_RC_ = nullptr;  // the rows times their norm's weight, and the gradient of that
};

extern template class StreamsRule<float>;
extern template class StreamsRule<bf16>;

// The entry of such a rule. `spec` reads the rule's options from the configuration.
RuleEntry streams_rule(std::string name, std::string summary, OptionSetPtr options,
                       std::function<StreamsSpec(const ModelConfig&)> spec);

}  // namespace ddl
