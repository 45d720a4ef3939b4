#include "infer/model_folder.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/error.h"
#include "data/partial_folder.h"
#include "data/tokenizer.h"
#include "infer/load.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/packed_folder.h"
#include "model/reference_layout.h"
#include "model/stored_model.h"

namespace ddl {
namespace {

// Written next to `out` and renamed, so that one that failed or was killed does not stand in its own way.
PartialFolder new_folder(const std::string& out) {
  return PartialFolder(out, [](const std::string& target) {
    throw UserError("{}: exists and is not empty; name a new folder", target);
  });
}

Weights read_weights(const StoredModel& stored, const Exec& ex) {
  Weights weights(stored.config());
  stored.load(weights, ex);
  return weights;
}

WrittenModel write_folder(const StoredModel& stored, const Weights& weights, const Tokenizer* tokenizer,
                          const std::vector<TensorToWrite>& tensors, const Json& config,
                          PartialFolder& folder, const std::string& out) {
  write_safetensors(folder.path() + "/model.safetensors", tensors, {{"format", "pt"}});
  std::optional<Index> end_of_text;
  if (tokenizer) {
    tokenizer->save(folder.path());
    end_of_text = tokenizer->end_of_text();
  }
  write_file_atomic(folder.path() + "/generation_config.json",
                    to_text(generation_config_json(stored.config(), end_of_text)));
  write_file_atomic(folder.path() + "/config.json", to_text(config));
  folder.commit();
  return {.from = stored.folder(),
          .to = out,
          .config = stored.config(),
          .parameters = weights.table().parameter_count(),
          .has_tokenizer = tokenizer != nullptr,
          .bytes = std::filesystem::file_size(out + "/model.safetensors")};
}

WrittenModel write_own_layout(const StoredModel& stored, const Weights& weights, const Tokenizer* tokenizer,
                              PartialFolder& folder, const std::string& out) {
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  return write_folder(stored, weights, tokenizer, tensors, model_config_json(stored.config()), folder, out);
}

}  // namespace

WrittenModel export_model(const std::string& path, Layout layout, const std::string& out, const Exec& ex) {
  PartialFolder folder = new_folder(out);
  const StoredModel stored(path);
  const auto tokenizer = load_model_tokenizer(stored, "");
  const Weights weights = read_weights(stored, ex);
  if (layout == Layout::kOwn) return write_own_layout(stored, weights, tokenizer.get(), folder, out);
  const ReferenceModel reference = to_reference(weights);
  return write_folder(stored, weights, tokenizer.get(), reference.tensors, reference.config, folder, out);
}

WrittenModel quantize_model(const std::string& path, WeightFormat format, const std::string& out,
                            const Exec& ex) {
  PartialFolder folder = new_folder(out);
  const StoredModel stored(path);
  if (stored.format() != WeightFormat::kF32)
    throw UserError("{}: its weights are {} already; quantise the model they came from", path,
                    info(stored.format()).name);
  const auto tokenizer = load_model_tokenizer(stored, "");
  Weights weights(stored.config(), format);
  stored.load(weights, ex);
  const PackedTensors packed(weights, ex);
  return write_folder(stored, weights, tokenizer.get(), packed.tensors(),
                      model_config_json(stored.config(), format), folder, out);
}

WrittenModel import_model(const std::string& folder, const std::string& tokenizer_path,
                          const std::string& out, const Exec& ex) {
  PartialFolder partial = new_folder(out);
  const StoredModel stored(folder);
  const auto tokenizer = load_model_tokenizer(stored, tokenizer_path);
  if (!stored.has_released_names())
    throw UserError("{}: already in this program's layout; every command reads it as it is", folder);
  return write_own_layout(stored, read_weights(stored, ex), tokenizer.get(), partial, out);
}

}  // namespace ddl
