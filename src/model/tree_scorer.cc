#include "model/tree_scorer.h"

#include "core/error.h"

namespace ddl {

void check_run(const TreeRun& run, Index depths, const ModelConfig& config) {
  DDL_CHECK(run.depth >= 0 && run.depth < depths && !run.tokens.empty() && run.first_wanted >= 0,
            "a run of {} tokens at depth {} of {}", run.tokens.size(), run.depth, depths);
  if (run.position + std::ssize(run.tokens) > config.context)
    throw UserError("a sequence of {} tokens: this model was made for {} (model.context)",
                    run.position + std::ssize(run.tokens), config.context);
  for (const std::int32_t token : run.tokens)
    if (token < 0 || token >= config.vocab)
      throw UserError("token {} is not in the model's vocabulary of {}", token, config.vocab);
}

}  // namespace ddl
