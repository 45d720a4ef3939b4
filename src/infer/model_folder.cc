#include "infer/model_folder.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/partial_folder.h"
#include "data/tokenizer.h"
#include "infer/gguf_model.h"
#include "infer/load.h"
#include "infer/transformers_files.h"
#include "io/file.h"
#include "model/baseline_names.h"
#include "model/config_json.h"
#include "model/hunyuan_layout.h"
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

struct FolderContents {
  std::vector<TensorToWrite> tensors;
  Json config;
  std::vector<std::pair<std::string, std::string_view>> more = {};  // files: name and contents
};

WrittenModel write_folder(const std::string& from, const Weights& weights, const Tokenizer* tokenizer,
                          const FolderContents& contents, PartialFolder& folder, const std::string& out) {
  write_safetensors(folder.path() + "/model.safetensors", contents.tensors, {{"format", "pt"}});
  std::optional<Index> end_of_text;
  if (tokenizer) {
    tokenizer->save(folder.path());
    end_of_text = tokenizer->end_of_text();
  }
  for (const auto& [name, text] : contents.more) write_file_atomic(folder.path() + "/" + name, text);
  write_file_atomic(folder.path() + "/generation_config.json",
                    to_text(generation_config_json(weights.config(), end_of_text)));
  write_file_atomic(folder.path() + "/config.json", to_text(contents.config));
  folder.commit();
  return {.from = from,
          .to = out,
          .config = weights.config(),
          .parameters = weights.table().parameter_count(),
          .has_tokenizer = tokenizer != nullptr,
          .bytes = std::filesystem::file_size(out + "/model.safetensors")};
}

std::vector<TensorToWrite> own_tensors(const Weights& weights) {
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  return tensors;
}

WrittenModel write_own_layout(const std::string& from, const Weights& weights, const Tokenizer* tokenizer,
                              PartialFolder& folder, const std::string& out) {
  return write_folder(from, weights, tokenizer, {own_tensors(weights), model_config_json(weights.config())},
                      folder, out);
}

WrittenModel write_for_transformers(const std::string& from, const Weights& weights,
                                    const Tokenizer* tokenizer, PartialFolder& folder,
                                    const std::string& out) {
  const std::optional<Index> end = tokenizer ? std::optional<Index>(tokenizer->end_of_text()) : std::nullopt;
  if (why_not_hunyuan(weights.config()).empty()) {
    const HunyuanModel model = to_hunyuan(weights, end);
    return write_folder(from, weights, tokenizer, {model.tensors, model.config}, folder, out);
  }
  return write_folder(from, weights, tokenizer,
                      {own_tensors(weights),
                       transformers_config_json(weights.config(), end),
                       {{"modeling_deep_delta.py", transformers_files::kModeling},
                        {"configuration_deep_delta.py", transformers_files::kConfiguration}}},
                      folder, out);
}

}  // namespace

WrittenModel export_model(const std::string& path, Layout layout, const std::string& out, const Exec& ex) {
  PartialFolder folder = new_folder(out);
  const StoredModel stored(path);
  const auto tokenizer = load_model_tokenizer(stored, "");
  const Weights weights = read_weights(stored, ex);
  const std::string& from = stored.folder();
  if (layout == Layout::kOwn) return write_own_layout(from, weights, tokenizer.get(), folder, out);
  if (layout == Layout::kTransformers)
    return write_for_transformers(from, weights, tokenizer.get(), folder, out);
  const ReferenceModel reference = to_reference(weights);
  return write_folder(from, weights, tokenizer.get(), {reference.tensors, reference.config}, folder, out);
}

WrittenModel export_gguf(const std::string& path, GgufType type, const std::string& tokenizer_path,
                         const std::string& out, const Exec& ex) {
  if (std::filesystem::exists(out)) throw UserError("{}: exists; name a new file", out);
  const StoredModel stored(path);
  const auto tokenizer = load_model_tokenizer(stored, tokenizer_path);
  const Weights weights = read_weights(stored, ex);
  const std::string name = std::filesystem::path(out).stem().string();
  write_gguf_model(out, weights, tokenizer.get(), type, name);
  return {.from = stored.folder(),
          .to = out,
          .config = weights.config(),
          .parameters = weights.table().parameter_count(),
          .has_tokenizer = true,
          .bytes = std::filesystem::file_size(out)};
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
  return write_folder(stored.folder(), weights, tokenizer.get(),
                      {packed.tensors(), model_config_json(stored.config(), format)}, folder, out);
}

WrittenModel import_model(const std::string& source, const std::string& tokenizer_path,
                          const std::string& out, const Exec& ex) {
  PartialFolder partial = new_folder(out);
  if (source.ends_with(".gguf")) {
    const Weights weights = read_gguf_model(source, ex);
    const auto tokenizer =
        tokenizer_path.empty() ? read_gguf_tokenizer(source) : load_tokenizer(tokenizer_path);
    if (tokenizer && tokenizer->vocab_size() > weights.config().vocab)
      throw UserError("{}: has {} tokens, and the model {}",
                      tokenizer_path.empty() ? "the tokenizer in " + source : tokenizer_path,
                      tokenizer->vocab_size(), weights.config().vocab);
    return write_own_layout(source, weights, tokenizer.get(), partial, out);
  }
  const StoredModel stored(source);
  const auto tokenizer = load_model_tokenizer(stored, tokenizer_path);
  if (stored.layout() == StoredLayout::kOwn)
    throw UserError("{}: already in this program's layout; every command reads it as it is", source);
  return write_own_layout(stored.folder(), read_weights(stored, ex), tokenizer.get(), partial, out);
}

}  // namespace ddl
