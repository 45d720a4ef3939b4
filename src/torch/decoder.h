// Incremental decoding (model/decoder.h) on torch's devices. What follows a token is what the native decoder
// says, to rounding; the last bits depend on what shares a pass.
#pragma once

#include <memory>

#include "model/decoder.h"
#include "model/weights.h"
#include "torch/trainable.h"

namespace ddl {

std::unique_ptr<Decoder> make_torch_decoder(const Weights& weights, const DecoderShape& shape,
                                            const TorchPlace& place);

}  // namespace ddl
