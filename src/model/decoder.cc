#include "model/decoder.h"

#include "core/error.h"

namespace ddl {

void check_append(const Decoder::Append& append, Index length, Index context, Index vocab) {
  DDL_CHECK(!append.tokens.empty(), "nothing to append to slot {}", append.slot);
  if (length + std::ssize(append.tokens) > context)
    throw UserError(
        "a sequence of {} tokens: this model was made for {} (model.context); shorten it, or let the context "
        "slide",
        length + std::ssize(append.tokens), context);
  for (const std::int32_t token : append.tokens)
    if (token < 0 || token >= vocab)
      throw UserError("token {} is not in the model's vocabulary of {}", token, vocab);
}

}  // namespace ddl
