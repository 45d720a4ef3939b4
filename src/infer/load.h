// A trained model, ready to be used: from a run (its newest checkpoint), a checkpoint, or any folder with
// config.json, model.safetensors and tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "model/model.h"

namespace ddl {

// The folder with the weights: `path` itself, or the newest valid checkpoint in it. Throws UserError saying
// what was looked for.
std::string find_model_folder(const std::string& path);

struct LoadedModel {
  std::string folder;
  std::unique_ptr<Model> model;  // for inference, one token: a decoder borrows its weights
  std::unique_ptr<Tokenizer> tokenizer;
};
// precision: "" keeps the stored choice.
LoadedModel load_model(const std::string& path, const std::string& precision, const Exec& ex);

}  // namespace ddl
