#include "infer/exchange.h"

#include <filesystem>

#include "data/partial_folder.h"
#include "data/tokenizer.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/reference_layout.h"
#include "model/stored_model.h"

namespace ddl {
namespace {

// Written beside `out` and renamed, so that one that failed or was killed does not stand in its own way.
PartialFolder new_folder(const std::string& out) {
  return PartialFolder(out, [](const std::string& target) {
    throw UserError("{}: exists and is not empty; name a new folder", target);
  });
}

// A model and its tokenizer on the way from one folder to another.
struct Passage {
  StoredModel stored;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;  // null where there is none

  Passage(const std::string& path, const std::string& tokenizer_path, const Exec& ex) : stored(path) {
    if (!tokenizer_path.empty())
      tokenizer = load_tokenizer(tokenizer_path);
    else if (std::filesystem::exists(stored.folder() + "/tokenizer.json"))
      tokenizer = load_tokenizer(stored.folder());
    const ModelConfig& config = stored.config();
    if (tokenizer && tokenizer->vocab_size() > config.vocab)
      throw UserError("{}: the tokenizer ({}) has {} tokens, the model {}: not this model's", path,
                      tokenizer->name(), tokenizer->vocab_size(), config.vocab);
    model = make_model(config, {1, 1}, Model::Mode::kInfer, 0, ex);
    stored.load(*model, ex);
  }

  Exchanged write(PartialFolder& folder, const std::string& out, const std::vector<TensorToWrite>& tensors,
                  const Json& config) {
    write_safetensors(folder.path() + "/model.safetensors", tensors, {{"format", "pt"}});
    Json generation{{"max_length", stored.config().context}};
    if (tokenizer) {
      tokenizer->save(folder.path());
      generation["bos_token_id"] = tokenizer->end_of_text();
      generation["eos_token_id"] = tokenizer->end_of_text();
    }
    write_file_atomic(folder.path() + "/generation_config.json", to_text(generation));
    write_file_atomic(folder.path() + "/config.json", to_text(config));
    folder.commit();
    return {stored.folder(), out, stored.config(), model->table().parameter_count(), tokenizer != nullptr};
  }

  Exchanged write_own(PartialFolder& folder, const std::string& out) {
    std::vector<TensorToWrite> tensors;
    for (const Param& p : model->table().list())
      tensors.push_back({p.name, "F32", p.shape, model->params().data() + p.offset});
    return write(folder, out, tensors, model_config_json(stored.config()));
  }
};

}  // namespace

Exchanged export_model(const std::string& path, Layout layout, const std::string& out, const Exec& ex) {
  PartialFolder folder = new_folder(out);
  Passage passage(path, "", ex);
  if (layout == Layout::kOwn) return passage.write_own(folder, out);
  const ReferenceModel reference = to_reference(*passage.model);
  return passage.write(folder, out, reference.tensors, reference.config);
}

Exchanged import_model(const std::string& folder, const std::string& tokenizer, const std::string& out,
                       const Exec& ex) {
  PartialFolder partial = new_folder(out);
  Passage passage(folder, tokenizer, ex);
  if (!passage.stored.has_released_names())
    throw UserError("{}: already in this program's layout; every command reads it as it is", folder);
  return passage.write_own(partial, out);
}

}  // namespace ddl
