// Rules that run in the fused residual pass (kernels/residual_pass.h): the state is made from the embedding and
// read in one of three ways, and the write is X_d += coef_d h with coefficients of the rule's own. Such a rule
// is a description, FusedSpec, and inherits everything else: training, decoding, memory, costs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/residual_pass.h"
#include "model/config.h"
#include "model/residual/registry.h"
#include "model/residual/rule.h"

namespace ddl {

// X_0 = x;  X_0 = x 1^T;  or the embedding convolution (EC) over the last tokens.
enum class Expand { kIdentity, kRepeat, kConv };
// x_in = x;  a mix of the token's own channels (CC);  or a short convolution over tokens (TC).
enum class Read { kIdentity, kChannel, kToken };

// A branch with its parameters: NAME.weight [rows, C] and NAME.bias [rows], under "PREFIX_attn." or "PREFIX_mlp.".
// With `hidden` it has two layers, scale sigmoid(w2 . tanh(W1 context) + b2), one row: NAME_in.weight,
// NAME_out.weight and NAME_out.bias.
struct BranchSpec {
  std::string name;
  Index rows = 1;
  BranchInput input = BranchInput::kContext;
  Activation activation = Activation::kIdentity;
  float scale = 1;
  Init weight = Init::constant(0);
  std::optional<Init> bias = {};
  Index hidden = 0;
  std::string draws_as = "";  // the branch whose random starting values it shares; "": its own
};

// A series that the rule reports: `count` of a token's steering numbers, or of what its write saved. A readout is what
// the write saw of the state: a multiple of h . X_d for each d.
struct SeriesSpec {
  std::string name;
  SeriesRole role = SeriesRole::kOther;
  enum Source { kSteering, kSaved } source = kSteering;
  Index first = 0, count = 1;
  float low = 0, high = 0;

  // Where a token has R steering numbers and Q saved ones.
  TokenSeries of(const float* steer_NR, Index R, const float* saved_NQ, Index Q) const {
    const bool steering = source == kSteering;
    return {name, role, (steering ? steer_NR : saved_NQ) + first, count, steering ? R : Q, low, high};
  }
};

struct FusedSpec {
  Expand expand = Expand::kIdentity;
  Read read = Read::kIdentity;
  Index channels = 1;                    // D
  Index embed_taps = 1, state_taps = 1;  // of the two convolutions
  Index channel_taps = 0;  // Read::kChannel as a convolution (channel_conv.h); 0: a weight per channel
  bool compressor_normal = false;     // compressors start as hidden weights do, not as a plain average
  bool compressor_per_block = false;  // one for both sublayers of a block
  std::shared_ptr<const Coefficients> write = {};  // null: X_0 += h
  std::string branch_prefix = "ddl";               // of the branches' parameters
  std::vector<BranchSpec> branches = {};           // in the order of the steering numbers
  bool store_state = false;                        // instead of walking it back
  std::vector<SeriesSpec> series = {};
};

template <class T>
class FusedRule final : public ResidualRule<T> {
 public:
  FusedRule(const ModelConfig& config, FusedSpec spec);
  const FusedSpec& spec() const { return spec_; }

  void add_params(ParamTable& table) override;
  void plan(Arena& arena, const Room& room) override;
  void bind(const Numbers<T>& numbers) override;
  void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override;
  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override;
  void copy_slot(Index to, Index from) override;
  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T* next_context_NC,
                               const T* h_NC, const Tokens& tokens, const Exec& ex) override;
  void start_backward(float* dx_NC, float* dcontext_NC, const T* context_NC, const float* x_NC,
                      const Tokens& tokens, const Exec& ex) override;
  double flops_forward() const override;
  double flops_backward() const override;
  Index remembered_floats() const override { return embedding_ring_floats() + state_ring_floats(); }
  double state_floats() const override { return static_cast<double>(D_ * C_); }
  std::vector<TokenSeries> series(Index s) const override;
  StateView view(Index s) const override;
  bool read_as_last(Index s, T* context_NC, const Tokens& tokens, const Exec& ex) override;
  // Steering numbers by anything, a readout by zeros.
  bool replace(const Replacement* replacement) override;

 private:
  struct BranchParams {  // offsets; hidden: of a two-layer branch's first layer
    Index hidden = 0, weight = 0, bias = 0;
  };
  // Offsets of the parameters in front of sublayer s (s = S: the readout, which steers nothing).
  struct Stage {
    Index norm = 0, compress = 0, read = 0;
    Index mix = 0;  // which of the folded channel compressors
    std::vector<BranchParams> branches;
  };
  // What backward needs of sublayer s: a few numbers per token, and the state only where it is stored.
  struct Saved {
    float *rstd_N = nullptr, *steer_NR = nullptr, *write_NQ = nullptr, *state_NDC = nullptr;
  };

  const float* p(Index offset) const { return numbers_.params + offset; }
  float* g(Index offset) const { return numbers_.grads ? numbers_.grads + offset : nullptr; }
  Index embedding_ring_floats() const;
  Index state_ring_floats() const;

  bool folds() const { return spec_.read == Read::kChannel && spec_.channel_taps > 0; }
  const float* mix(Index s) const;  // of the channel compressor in front of sublayer s; null without one
  void fold_compressors();

  void bind_stage(Index s);
  void read(Index s, T* context_NC, const WriteFwd<T>* write, const Tokens& tokens, const Exec& ex);
  void read_backward(Index s, float* dcontext_NC, const T* context_NC, const WriteBwd<T>* write,
                     const Tokens& tokens, const Exec& ex);
  void compress_tokens(Index s, const Tokens& tokens, const Exec& ex);
  void hidden_branches(Index s, const T* context_NC, const Tokens& tokens, const Exec& ex);
  void hidden_branches_backward(Index s, float* dcontext_NC, const T* context_NC, Index N, const Exec& ex);

  const ModelConfig config_;
  const FusedSpec spec_;
  const Index S_, D_, C_;
  Index steering_ = 0;    // R: steering numbers per token
  Index saved_ = 0;       // Q: what the write saves per token
  Index max_hidden_ = 0;  // of the two-layer branches

  std::vector<Stage> stages_;                  // S + 1
  std::vector<std::vector<Branch>> branches_;  // by stage: those the pass computes
  Index expand_w_ = 0;
  Numbers<T> numbers_;

  float *state_NDC_ = nullptr, *dstate_NDC_ = nullptr;
  float *x_in_NC_ = nullptr, *dx_in_NC_ = nullptr;  // token compressor: its output, and the gradient of that
  float* dsteer_NR_ = nullptr;
  float* hidden_NG_ = nullptr;
  T* dhidden_NG_ = nullptr;
  float* rstd_last_N_ = nullptr;                  // of the readout's norm
  Index mixes_ = 0;                               // channel compressors to fold
  float *mix_DC_ = nullptr, *dmix_DC_ = nullptr;  // the folded ones, one after another; a gradient at work
  float* scratch_ = nullptr;
  std::vector<Saved> sublayers_;

  Index slots_ = 0;
  float* embedding_ring_ = nullptr;  // [slots][taps - 1][C]
  float* state_ring_ = nullptr;      // [slots][S + 1][taps - 1][D C]

  const Replacement* replacement_ = nullptr;
  const SeriesSpec* replaced_ = nullptr;  // the series it is about
};

extern template class FusedRule<float>;
extern template class FusedRule<bf16>;

// The entry of a fused rule. `spec` reads the rule's options from the configuration.
RuleEntry fused_rule(std::string name, std::string summary, OptionSetPtr options,
                     std::function<FusedSpec(const ModelConfig&)> spec);

}  // namespace ddl
