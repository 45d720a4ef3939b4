// A trained model, ready to be used: from a run (its newest checkpoint), a checkpoint, or any folder with
// config.json, weights (in this project's layout or the released one) and tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "model/stored_model.h"

namespace ddl {

struct LoadedModel {
  std::string folder;
  std::unique_ptr<Model> model;  // for inference, one token: a decoder borrows its weights
  std::unique_ptr<Tokenizer> tokenizer;
};
enum class MissingTokenizer { kRefuse, kAccept };  // accepted: `tokenizer` is null
// precision: "" keeps the stored choice. tokenizer: "" takes the folder's.
LoadedModel load_model(const std::string& path, const std::string& precision, const Exec& ex,
                       const std::string& tokenizer = "",
                       MissingTokenizer missing = MissingTokenizer::kRefuse);

}  // namespace ddl
