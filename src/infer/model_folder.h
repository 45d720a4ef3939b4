// Weights that move between programs: a model written as a folder in Hugging Face's conventions
// (model.safetensors, config.json, tokenizer.json, tokenizer_config.json, generation_config.json), in this
// project's layout, in that of the paper's released code or for transformers; or as one GGUF file. And such a folder
// or file read back.
#pragma once

#include <cstddef>
#include <string>

#include "core/exec.h"
#include "core/weight_format.h"
#include "io/gguf.h"
#include "model/config.h"

namespace ddl {

struct WrittenModel {
  std::string from, to;  // folders
  ModelConfig config;
  Index parameters = 0;
  bool has_tokenizer = false;
  std::size_t bytes = 0;  // of the weights
};

// kTransformers: for AutoModelForCausalLM. The baseline as HunYuanDenseV1ForCausalLM, which transformers have; every
// other model under its own names, with the Python files of src/infer/transformers next to it.
enum class Layout { kOwn, kReference, kTransformers };

// `path` is a run, a checkpoint or a model's folder; `out` must be new or empty, and appears whole or not at
// all (data/partial_folder.h). Throws UserError, with the reason, where the released code cannot express the
// model; then nothing is written.
WrittenModel export_model(const std::string& path, Layout layout, const std::string& out, const Exec& ex);
// One file, which must be new; tokenizer: "" takes the model's (gguf_model.h).
WrittenModel export_gguf(const std::string& path, GgufType type, const std::string& tokenizer,
                         const std::string& out, const Exec& ex);

// The same with the large matrices in a small format (core/weight_format.h), as model/packed_folder.h says.
WrittenModel quantize_model(const std::string& path, WeightFormat format, const std::string& out,
                            const Exec& ex);

// A folder in another layout, or a GGUF file, as a folder in this project's. tokenizer: "" takes the folder's or the
// file's, if it has a tokenizer.json.
WrittenModel import_model(const std::string& folder, const std::string& tokenizer, const std::string& out,
                          const Exec& ex);

}  // namespace ddl
