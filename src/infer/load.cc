#include "infer/load.h"

#include <filesystem>

namespace ddl {

LoadedModel load_model(const std::string& path, const std::string& precision, const Exec& ex,
                       const std::string& tokenizer, MissingTokenizer missing) {
  const StoredModel stored(path);
  ModelConfig config = stored.config();
  if (!precision.empty()) config.precision = precision;
  LoadedModel loaded;
  loaded.folder = stored.folder();
  const bool has_own = std::filesystem::exists(loaded.folder + "/tokenizer.json");
  if (!tokenizer.empty() || has_own)
    loaded.tokenizer = load_tokenizer(tokenizer.empty() ? loaded.folder : tokenizer);
  else if (missing == MissingTokenizer::kRefuse)
    throw UserError("{}: there is no tokenizer.json; name a tokenizer (--tokenizer)", loaded.folder);
  if (loaded.tokenizer && loaded.tokenizer->vocab_size() > config.vocab)
    throw UserError("{}: the tokenizer ({}) has {} tokens, the model {}: not this model's", loaded.folder,
                    loaded.tokenizer->name(), loaded.tokenizer->vocab_size(), config.vocab);
  loaded.model = make_model(config, {1, 1}, Model::Mode::kInfer, 0, ex);
  stored.load(*loaded.model, ex);
  return loaded;
}

}  // namespace ddl
