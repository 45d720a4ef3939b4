// The residual stream by the fused CUDA kernels. What the pass does not do itself (the two convolutions over tokens, the
// folding of a channel compressor) is a small formula with a graph of its own, made again in the backward pass.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "model/residual/delta_coefficients.h"
#include "model/residual/rules.h"
#include "torch/fused_formulas.h"
#include "torch/kernel_sublayers.h"
#include "torch/residual_stream.h"

namespace ddl {
namespace {

constexpr cuda::Stream kDefaultStream = nullptr;

cuda::Input kernel_input(BranchInput input) {
  return input == BranchInput::kContext    ? cuda::Input::kContext
         : input == BranchInput::kUnnormed ? cuda::Input::kUnnormed
                                           : cuda::Input::kNone;
}
cuda::Activation kernel_activation(Activation activation) {
  return activation == Activation::kSigmoid ? cuda::Activation::kSigmoid
         : activation == Activation::kTanh  ? cuda::Activation::kTanh
                                            : cuda::Activation::kIdentity;
}

// A leaf that is the tensor, for a graph that begins there.
at::Tensor fresh_leaf(const at::Tensor& tensor) {
  at::Tensor leaf = tensor.detach();
  leaf.requires_grad_(true);
  return leaf;
}

template <class T>
class KernelStream final : public ManualStream {
 public:
  KernelStream(const ModelConfig& config, FusedSpec spec, FlatParameters& parameters,
               const StreamShape& shape, const cuda::Kernels& kernels)
      : config_(config),
        parts_(config, std::move(spec), parameters),
        parameters_(parameters),
        shape_(shape),
        kernels_(kernels),
        S_(config.sublayers()),
        D_(parts_.spec().channels) {
    for (const BranchSpec& branch : parts_.spec().branches) R_ += branch.rows;
    if (parts_.spec().write) Q_ = parts_.spec().write->saved_per_token(D_);
    const Index N = shape.batch.N();
    const auto floats = [&](Index count) { return at::empty({count}, parameters.values().options()); };
    for (Index s = 0; s <= S_; ++s) saved_.push_back({floats(N), floats(N * R_), floats(N * Q_)});
    dsteer_ = floats(N * R_);
    state_ = floats(N * D_ * config.width);
    dstate_ = floats(N * D_ * config.width);
    scratch_ = floats(cuda::residual_scratch_floats(narrow(N), narrow(D_), narrow(config.width), narrow(R_)));
    if (reads_tokens()) dx_in_ = floats(N * config.width);
  }

  at::Tensor start_forward(const at::Tensor& x) override {
    planes(state_).copy_(parts_.expand(x));
    return read_forward(0, nullptr);
  }
  at::Tensor write_forward(Index s, const at::Tensor& h) override { return read_forward(s + 1, &h); }

  at::Tensor write_backward(Index s, const at::Tensor& dcontext, const Saved& saved) override {
    const at::Tensor dh = at::empty_like(saved.input);
    read_backward(s + 1, dcontext, &saved.input, &dh);
    return dh;
  }
  at::Tensor start_backward(const at::Tensor& dcontext, const Saved& saved) override {
    read_backward(0, dcontext, nullptr, nullptr);
    const at::AutoGradMode with_graph(true);
    const at::Tensor x = fresh_leaf(saved.input);
    parts_.expand(x).backward(planes(dstate_));
    return x.grad();
  }

  std::vector<TokenSeries> series(Index s) const override {
    std::vector<TokenSeries> all;
    auto& [steer, written] = here_[s];
    steer = saved_[s].steer.cpu(), written = saved_[s].written.cpu();
    for (const SeriesSpec& spec : parts_.spec().series)
      all.push_back(spec.of(device_pointer<float>(steer), R_, device_pointer<float>(written), Q_));
    return all;
  }

 private:
  // What backward needs of a stage: the norm in front of sublayer s, what steers its write, and what that saved.
  struct Stage {
    at::Tensor rstd, steer, written;
  };
  static int narrow(Index n) { return static_cast<int>(n); }
  static float* f32(const at::Tensor& tensor) { return device_pointer<float>(tensor); }
  bool reads_tokens() const { return parts_.spec().read == Read::kToken; }
  bool folds() const { return parts_.spec().read == Read::kChannel && parts_.spec().channel_taps > 0; }
  at::Tensor planes(const at::Tensor& flat) const {
    return flat.view({shape_.batch.B, shape_.batch.T, D_, config_.width});
  }

  cuda::ResidualArgs<T> arguments(const at::Tensor& state, Index D) const {
    cuda::ResidualArgs<T> a;
    a.N = narrow(shape_.batch.N()), a.D = narrow(D), a.C = narrow(config_.width);
    a.state_NDC = f32(state);
    a.steer_stride = narrow(R_), a.saved_stride = narrow(Q_);
    a.part = f32(scratch_);
    return a;
  }
  void add_write(cuda::ResidualArgs<T>& a, Index s, const at::Tensor& h) const {
    a.h_NC = device_pointer<T>(h);
    a.steer_NR = f32(saved_[s].steer), a.saved_NQ = f32(saved_[s].written);
    if (const auto* delta = dynamic_cast<const DeltaCoefficients*>(parts_.spec().write.get())) {
      a.erase = delta->reads_state() ? 1 : 0;
      a.k_eps = static_cast<float>(config_.rule<DeltaOptions>().k_eps);
    }
    a.dsteer_NR = f32(dsteer_);
  }
  void add_read(cuda::ResidualArgs<T>& a, Index s, const at::Tensor& mix) {
    const at::Tensor norm = parameters_.leaf(parts_.norm_name(s));
    a.mix_DC = mix.defined() ? f32(mix) : nullptr;
    a.norm_C = f32(norm), a.dnorm_C = f32(norm.grad());
    a.norm_eps = static_cast<float>(config_.norm_eps);
    a.rstd_N = f32(saved_[s].rstd), a.next_steer_NR = f32(saved_[s].steer);
    a.dnext_steer_NR = f32(dsteer_);
    if (s == S_) return;
    const auto& branches = parts_.spec().branches;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const BranchSpec& b = branches[i];
      at::Tensor w, bias;
      if (b.input != BranchInput::kNone) w = parameters_.leaf(parts_.branch_name(s, i, ".weight"));
      if (b.bias) bias = parameters_.leaf(parts_.branch_name(s, i, ".bias"));
      for (Index row = 0; row < b.rows; ++row) {
        cuda::Number& number = a.number[a.numbers++];
        number = {kernel_input(b.input),
                  kernel_activation(b.activation),
                  b.scale,
                  nullptr,
                  nullptr,
                  nullptr,
                  nullptr};
        if (w.defined())
          number.w_C = f32(w) + row * config_.width, number.dw_C = f32(w.grad()) + row * config_.width;
        if (bias.defined()) number.b = f32(bias) + row, number.db = f32(bias.grad()) + row;
      }
    }
  }

  at::Tensor read_forward(Index s, const at::Tensor* h) {
    const at::Tensor context = at::empty({shape_.batch.B, shape_.batch.T, config_.width},
                                         state_.options().dtype(shape_.activations));
    cuda::ResidualArgs<T> pass = arguments(state_, D_);
    if (h) add_write(pass, s - 1, *h);
    if (!reads_tokens()) {
      const at::Tensor mix = parts_.spec().read == Read::kChannel ? parts_.mix(s).contiguous() : at::Tensor();
      add_read(pass, s, mix);
      pass.context_NC = device_pointer<T>(context);
      kernels_.residual_forward(pass, kDefaultStream);
      return context;
    }
    if (h) kernels_.residual_forward(pass, kDefaultStream);
    const at::Tensor x_in = parts_.read(s, planes(state_)).contiguous();
    cuda::ResidualArgs<T> read = arguments(x_in, 1);
    add_read(read, s, {});
    read.context_NC = device_pointer<T>(context);
    kernels_.residual_forward(read, kDefaultStream);
    return context;
  }

  // The mirror image: of the read in front of sublayer s, and of the write of s - 1 where h is given.
  void read_backward(Index s, const at::Tensor& dcontext, const at::Tensor* h, const at::Tensor* dh) {
    const at::Tensor g = dcontext.to(at::kFloat).contiguous();
    const bool top = s == S_;  // no other path has reached the state
    cuda::ResidualArgs<T> pass = arguments(state_, D_);
    pass.dstate_NDC = f32(dstate_);
    if (h) add_write(pass, s - 1, *h), pass.dh_NC = device_pointer<T>(*dh);
    if (reads_tokens()) {
      token_read_backward(s, g, top);
      if (h) kernels_.residual_backward(pass, kDefaultStream);
      return;
    }
    at::Tensor mix, dmix;
    {
      const at::AutoGradMode with_graph(folds());
      if (parts_.spec().read == Read::kChannel) mix = parts_.mix(s).contiguous();
    }
    if (mix.defined()) dmix = folds() ? at::zeros_like(mix.detach()) : mix.grad();
    add_read(pass, s, mix);
    pass.dmix_DC = dmix.defined() ? f32(dmix) : nullptr;
    pass.dcontext_NC = f32(g), pass.fresh_dstate = top;
    kernels_.residual_backward(pass, kDefaultStream);
    if (folds()) mix.backward(dmix);
  }

  void token_read_backward(Index s, const at::Tensor& g, bool top) {
    const at::AutoGradMode with_graph(true);
    const at::Tensor X = fresh_leaf(planes(state_)), x_in = parts_.read(s, X).contiguous();
    cuda::ResidualArgs<T> read = arguments(x_in.detach(), 1);
    add_read(read, s, {});
    read.dstate_NDC = f32(dx_in_), read.fresh_dstate = true, read.dcontext_NC = f32(g);
    kernels_.residual_backward(read, kDefaultStream);
    x_in.backward(dx_in_.view_as(x_in));
    const at::NoGradGuard no_graph;
    at::Tensor dstate = planes(dstate_);
    if (top)
      dstate.copy_(X.grad());
    else
      dstate += X.grad();
  }

  const ModelConfig config_;
  FusedFormulas parts_;
  FlatParameters& parameters_;
  const StreamShape shape_;
  const cuda::Kernels& kernels_;
  const Index S_, D_;
  Index R_ = 0, Q_ = 0;
  std::vector<Stage> saved_;  // S + 1
  at::Tensor state_, dstate_, dsteer_, dx_in_, scratch_;
  mutable std::map<Index, std::pair<at::Tensor, at::Tensor>> here_;  // series on the host
};

bool has_kernel(const FusedSpec& spec) {
  if (spec.write && !dynamic_cast<const DeltaCoefficients*>(spec.write.get())) return false;
  Index numbers = 0;
  for (const BranchSpec& branch : spec.branches) {
    if (branch.hidden > 0) return false;
    numbers += branch.rows;
  }
  return spec.channels <= cuda::kMaxChannels && numbers <= cuda::kMaxNumbers;
}

}  // namespace

std::unique_ptr<ResidualStream> make_kernel_stream(const ModelConfig& config, FlatParameters& parameters,
                                                   const StreamShape& shape, const cuda::Kernels& kernels) {
  const std::optional<FusedSpec> spec = fused_spec(config);
  if (!spec || !has_kernel(*spec)) return nullptr;
  if (shape.activations == at::kBFloat16)
    return std::make_unique<KernelStream<cuda::Bf16>>(config, *spec, parameters, shape, kernels);
  return std::make_unique<KernelStream<float>>(config, *spec, parameters, shape, kernels);
}

}  // namespace ddl
