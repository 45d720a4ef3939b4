#include "infer/load.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/weight_format.h"
#include "model/engine.h"
#include "model/instruction_set.h"

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

WeightFormat chosen_format(const StoredModel& stored, const LoadOptions& options, const Engine& engine) {
  if (!options.weights.empty() && options.weights != "auto") {
    const WeightFormat format = parse_weight_format(options.weights);
    // Where all is f64 nobody wants to save anything: such an engine shows what the format does to a model.
    const bool saves_nothing = !engine.takes_packed_weights() && !engine.computes_in_f64();
    if (saves_nothing && format != WeightFormat::kF32 && format != stored.format())
      throw UserError(
          "--weights {}: the {} engine would widen them again; leave it out (--precision bf16 halves the "
          "numbers that are multiplied), or use --engine native",
          options.weights, engine.name());
    return format;
  }
  if (options.weights.empty() || stored.format() != WeightFormat::kF32) return stored.format();
  // Whoever names a precision means the stored numbers themselves.
  return options.precision.empty() && engine.takes_packed_weights() ? WeightFormat::kBf16
                                                                    : WeightFormat::kF32;
}

std::optional<Precision> chosen_precision(const StoredModel& stored, WeightFormat format,
                                          const LoadOptions& options) {
  const std::string& text = options.precision;
  if (text.empty()) return std::nullopt;
  const auto precision = find_named<Precision>(text);
  if (!precision) throw UserError("precision '{}': expected auto, f32 or bf16", text);
  if (format == WeightFormat::kF32 || precision == Precision::kF32) return precision;
  const std::string name(info(format).name);
  if (stored.format() == format)
    throw UserError(
        "{}: the weights are stored as {}, and small weights are multiplied with f32 numbers: leave out "
        "--precision {}, or ask for --weights f32 as well",
        stored.folder(), name, text);
  throw UserError(
      "--weights {} and --precision {}: small weights are multiplied with f32 numbers; leave one out", name,
      text);
}

}  // namespace

LoadedModel load_model(const std::string& path, const LoadOptions& options, const Exec& ex) {
  const StoredModel stored(path);
  ModelConfig config = stored.config();
  if (!options.engine.empty()) config.engine = options.engine;
  const Engine& engine = engine_or_native(config.engine);
  const WeightFormat format = chosen_format(stored, options, engine);
  const std::optional<Precision> precision = chosen_precision(stored, format, options);
  if (precision) config.precision = *precision;
  auto tokenizer = load_model_tokenizer(stored, options.tokenizer);
  if (!tokenizer && options.missing_tokenizer == LoadOptions::kRefuse)
    throw UserError("{}: there is no tokenizer.json; name a tokenizer (--tokenizer)", stored.folder());
  LoadedModel loaded{stored.folder(), Weights(config, format), std::move(tokenizer)};
  stored.load(loaded.weights, ex);
  if (loaded.weights.packed() && !engine.takes_packed_weights())
    loaded.weights = to_format(loaded.weights, WeightFormat::kF32, ex);
  return loaded;
}

std::string slow_weights_note(const Weights& weights) {
  if (!weights.packed() || current_isa() != "scalar") return "";
  return fmt::format("note: {} weights run on portable code here (no AVX2), which is right but slow",
                     info(weights.format()).name);
}

}  // namespace ddl
