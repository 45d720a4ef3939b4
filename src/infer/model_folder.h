// Weights that move between programs: a model written as a folder in Hugging Face's conventions
// (model.safetensors, config.json, tokenizer.json, tokenizer_config.json, generation_config.json), in this
// project's layout or in that of the paper's released code, and such a folder read back.
#pragma once

#include <cstddef>
#include <string>

#include "core/exec.h"
#include "core/weight_format.h"
#include "model/config.h"

namespace ddl {

struct WrittenModel {
  std::string from, to;  // folders
  ModelConfig config;
  Index parameters = 0;
  bool has_tokenizer = false;
  std::size_t bytes = 0;  // of the weights
};

enum class Layout { kOwn, kReference };

// `path` is a run, a checkpoint or a model's folder; `out` must be new or empty, and appears whole or not at
// all (data/partial_folder.h). Throws UserError, with the reason, where the released code cannot express the
// model; then nothing is written.
WrittenModel export_model(const std::string& path, Layout layout, const std::string& out, const Exec& ex);

// The same with the large matrices in a small format (core/weight_format.h), as model/packed_folder.h says.
WrittenModel quantize_model(const std::string& path, WeightFormat format, const std::string& out,
                            const Exec& ex);

// A folder in the released layout as one in this project's. tokenizer: "" takes the folder's, if it has one.
WrittenModel import_model(const std::string& folder, const std::string& tokenizer, const std::string& out,
                          const Exec& ex);

}  // namespace ddl
