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

namespace {

WeightFormat chosen_format(const StoredModel& stored, const LoadOptions& options) {
  const std::string& asked = options.weights;
  if (asked.empty()) return stored.format();
  if (asked != "auto") {
    const WeightFormat format = parse_weight_format(asked);
    if (format != WeightFormat::kF32 && !options.precision.empty() && options.precision != "f32")
      throw UserError(
          "--weights {} and --precision {}: small weights are multiplied with f32 numbers; leave one out",
          asked, options.precision);
    return format;
  }
  if (stored.format() != WeightFormat::kF32) return stored.format();
  // Whoever names a precision or the reference engine means the stored numbers themselves.
  return options.precision.empty() && options.engine != "reference" ? WeightFormat::kBf16
                                                                    : WeightFormat::kF32;
}

}  // namespace

LoadedModel load_model(const std::string& path, const LoadOptions& options, const Exec& ex) {
  const StoredModel stored(path);
  ModelConfig config = stored.config();
  if (!options.precision.empty()) config.precision = options.precision;
  if (!options.engine.empty()) config.engine = options.engine;
  auto tokenizer = load_model_tokenizer(stored, options.tokenizer);
  if (!tokenizer && options.missing_tokenizer == LoadOptions::kRefuse)
    throw UserError("{}: there is no tokenizer.json; name a tokenizer (--tokenizer)", stored.folder());
  LoadedModel loaded{stored.folder(), Weights(config, chosen_format(stored, options)), std::move(tokenizer)};
  stored.load(loaded.weights, ex);
  // The reference engine computes with any numbers, but only where they lie in the array.
  if (config.engine == "reference" && loaded.weights.packed())
    loaded.weights = to_format(loaded.weights, WeightFormat::kF32, ex);
  return loaded;
}

}  // namespace ddl
