// A trained model, ready to be used: from a run (its newest checkpoint), a checkpoint, or any folder with
// config.json, weights (in this project's layout or the released one) and tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "core/exec.h"
#include "data/tokenizer.h"
#include "model/stored_model.h"
#include "model/weights.h"

namespace ddl {

struct LoadOptions {
  std::string precision = "";  // "" keeps the stored choice, and so does the engine's
  std::string engine = "";
  // "": as stored. "auto": as stored where that is a small format, else bf16 (native engine) or f32. Or the
  // name of a format.
  std::string weights = "";
  std::string tokenizer = "";                             // "" takes the folder's
  enum { kRefuse, kAccept } missing_tokenizer = kRefuse;  // accepted: LoadedModel has none
};

struct LoadedModel {
  std::string folder;
  Weights weights;
  std::unique_ptr<Tokenizer> tokenizer;  // may be null
};
LoadedModel load_model(const std::string& path, const LoadOptions& options, const Exec& ex);

// What to tell a person whose CPU has only portable code for these weights; "" elsewhere.
std::string slow_weights_note(const Weights& weights);

// The tokenizer at `path`, or where that is empty the folder's; null where there is none. Throws UserError where
// it has more tokens than the model.
std::unique_ptr<Tokenizer> load_model_tokenizer(const StoredModel& stored, const std::string& path);

}  // namespace ddl
