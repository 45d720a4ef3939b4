#include "infer/load.h"

#include <filesystem>
#include <utility>

#include "core/error.h"

namespace ddl {

std::unique_ptr<Tokenizer> load_model_tokenizer(const StoredModel& stored, const std::string& path) {
  const std::string& folder = stored.folder();
  if (path.empty() && !std::filesystem::exists(folder + "/tokenizer.json")) return nullptr;
  auto tokenizer = load_tokenizer(path.empty() ? folder : path);
  if (tokenizer->vocab_size() > stored.config().vocab)
    throw UserError("{}: the tokenizer ({}) has {} tokens, the model {}: not this model's", folder,
                    tokenizer->name(), tokenizer->vocab_size(), stored.config().vocab);
  return tokenizer;
}

LoadedModel load_model(const std::string& path, const LoadOptions& options, const Exec& ex) {
  const StoredModel stored(path);
  ModelConfig config = stored.config();
  if (!options.precision.empty()) config.precision = options.precision;
  if (!options.engine.empty()) config.engine = options.engine;
  auto tokenizer = load_model_tokenizer(stored, options.tokenizer);
  if (!tokenizer && options.missing_tokenizer == LoadOptions::kRefuse)
    throw UserError("{}: there is no tokenizer.json; name a tokenizer (--tokenizer)", stored.folder());
  LoadedModel loaded{stored.folder(), Weights(config), std::move(tokenizer)};
  stored.load(loaded.weights, ex);
  return loaded;
}

}  // namespace ddl
