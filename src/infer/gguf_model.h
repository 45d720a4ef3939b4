// The additive baseline as one GGUF file for llama.cpp (architecture hunyuan-dense), and such a file read back.
#pragma once

#include <memory>
#include <string>

#include "core/exec.h"
#include "data/tokenizer.h"
#include "io/gguf.h"
#include "model/weights.h"

namespace ddl {

// Matrices in `type`, norms in F32. Rows that are no whole blocks of Q8_0 stay F32. Throws UserError where the model is no
// baseline, and where there is no tokenizer: llama.cpp cannot use a model without its own.
void write_gguf_model(const std::string& path, const Weights& weights, const Tokenizer* tokenizer,
                      GgufType type, const std::string& name);

// Throws UserError where it is another model than this program's baseline. The weights are f32.
Weights read_gguf_model(const std::string& path, const Exec& ex);

// The tokenizer.json that write_gguf_model put into the file. Null where there is none: the form that
// llama.cpp reads says less.
std::unique_ptr<Tokenizer> read_gguf_tokenizer(const std::string& path);

}  // namespace ddl
