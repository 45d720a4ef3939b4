#include <ATen/ops/empty_like.h>

#include <type_traits>

#include "model/native/network.h"
#include "torch/residual_stream.h"

namespace ddl {
namespace {

template <class T>
T* pointer(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

template <class T>
class VerbStream final : public ManualStream {
 public:
  VerbStream(const Weights& weights, const FlatParameters& parameters, const StreamShape& shape,
             const Exec& ex)
      : network_(weights.config()), shape_(shape), ex_(ex) {
    DDL_CHECK(parameters.on_cpu(), "the verbs compute on the CPU");
    const Room room{
        .tokens = shape.batch.N(), .positions = shape.batch.T, .training = true, .threads = ex.threads};
    Arena measured = Arena::measuring();
    rule().plan(measured, room);
    arena_ = Arena::owning(measured.used_bytes());
    rule().plan(arena_, room);
    Numbers<T> numbers{.params = weights.values().data(), .grads = pointer<float>(parameters.gradients())};
    if constexpr (std::is_same_v<T, float>)
      numbers.params_T = numbers.params;
    else
      numbers.params_T = weights.copy();
    rule().bind(numbers);
  }

  void use(const Exec& ex) override { ex_ = ex; }

  at::Tensor start_forward(const at::Tensor& x) override {
    kept_.clear();
    const at::Tensor context = at::empty_like(x, x.options().dtype(shape_.activations));
    rule().start(pointer<T>(context), pointer<float>(x), tokens(), ex_);
    keep(x, context);
    return context;
  }
  at::Tensor write_forward(Index s, const at::Tensor& h) override {
    const at::Tensor context = at::empty_like(h);
    rule().write_and_read(s, pointer<T>(context), pointer<T>(h), tokens(), ex_);
    keep(h, context);
    return context;
  }
  at::Tensor start_backward(const at::Tensor& dcontext, const Saved& saved) override {
    const at::Tensor dx = at::empty_like(saved.input), g = own_f32(dcontext);
    rule().start_backward(pointer<float>(dx), pointer<float>(g), pointer<T>(saved.context),
                          pointer<float>(saved.input), tokens(), ex_);
    kept_.clear();
    return dx;
  }
  at::Tensor write_backward(Index s, const at::Tensor& dcontext, const Saved& saved) override {
    const at::Tensor dh = at::empty_like(saved.input), g = own_f32(dcontext);
    rule().write_and_read_backward(s, pointer<T>(dh), pointer<float>(g), pointer<T>(saved.context),
                                   pointer<T>(saved.input), tokens(), ex_);
    return dh;
  }

  std::vector<TokenSeries> series(Index s) const override { return network_.residual().series(s); }
  std::vector<Arena::Entry> memory() const override { return arena_.ledger(); }

 private:
  ResidualRule<T>& rule() { return network_.residual(); }
  Tokens tokens() const { return Tokens::whole(shape_.batch.B, shape_.batch.T); }
  // A rule may look again at what it was given and what it gave, as long as the pass goes on: with no graph, nobody else
  // would keep them.
  void keep(const at::Tensor& in, const at::Tensor& out) {
    kept_.push_back(in.detach()), kept_.push_back(out.detach());
  }
  // The verbs may change it.
  static at::Tensor own_f32(const at::Tensor& gradient) {
    return gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }

  Network<T> network_;  // for its rule, whose parameters come after the network's
  const StreamShape shape_;
  Arena arena_ = Arena::measuring();
  Exec ex_;
  std::vector<at::Tensor> kept_;
};

}  // namespace

std::unique_ptr<ResidualStream> make_verb_stream(const Weights& weights, const FlatParameters& parameters,
                                                 const StreamShape& shape, const Exec& ex) {
  if (shape.activations == at::kBFloat16)
    return std::make_unique<VerbStream<bf16>>(weights, parameters, shape, ex);
  return std::make_unique<VerbStream<float>>(weights, parameters, shape, ex);
}

}  // namespace ddl
