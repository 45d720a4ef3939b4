#include <torch/csrc/autograd/custom_function.h>

#include "torch/residual_stream.h"

namespace ddl {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Autograd hands numbers from forward to backward; the stream outlives both.
constexpr const char* kStream = "stream";
constexpr const char* kSublayer = "sublayer";

std::int64_t as_number(ManualStream* stream) { return reinterpret_cast<std::int64_t>(stream); }
ManualStream& stream_of(AutogradContext* context) {
  return *reinterpret_cast<ManualStream*>(context->saved_data[kStream].toInt());
}
ManualStream::Saved saved_of(AutogradContext* context) {
  const variable_list saved = context->get_saved_variables();
  return {saved[0], saved[1]};
}

struct Start : torch::autograd::Function<Start> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t stream) {
    context->saved_data[kStream] = stream;
    const at::Tensor input = x.contiguous();
    const at::Tensor output = stream_of(context).start_forward(input);
    context->save_for_backward({input, output});
    return output;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {stream_of(context).start_backward(gradients[0].contiguous(), saved_of(context)), Variable()};
  }
};

struct WriteAndRead : torch::autograd::Function<WriteAndRead> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& h, std::int64_t stream,
                            std::int64_t s) {
    context->saved_data[kStream] = stream;
    context->saved_data[kSublayer] = s;
    const at::Tensor input = h.contiguous();
    const at::Tensor output = stream_of(context).write_forward(s, input);
    context->save_for_backward({input, output});
    return output;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::int64_t s = context->saved_data[kSublayer].toInt();
    return {stream_of(context).write_backward(s, gradients[0].contiguous(), saved_of(context)), Variable(),
            Variable()};
  }
};

}  // namespace

at::Tensor ManualStream::start(const at::Tensor& x_BTC) { return Start::apply(x_BTC, as_number(this)); }
at::Tensor ManualStream::write_and_read(Index s, const at::Tensor& h_BTC) {
  return WriteAndRead::apply(h_BTC, as_number(this), static_cast<std::int64_t>(s));
}

}  // namespace ddl
