// What a model is audited on: whole windows of its context, from the validation split of a dataset or from text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "data/tokenizer.h"
#include "model/stored_model.h"

namespace ddl {

struct AuditText {
  std::string source;
  std::string kind;  // "validation split" | "text"
  Index context = 0;
  std::vector<std::int32_t> input_N, target_N;  // windows one after another
  Index tokens() const { return std::ssize(input_N); }
  Index windows() const { return tokens() / context; }
};

// At most `tokens` of the dataset in `folder`, in windows spread evenly over its validation split. Throws UserError
// where its tokens are not the model's and where it has less than one window.
AuditText text_of_dataset(const std::string& folder, const StoredModel& model, Index tokens, const Exec& ex);

// At most `tokens` from the beginning of a file or a folder of text. Every document follows an end of text. Throws
// UserError where there is less than one window.
AuditText text_of_files(const std::string& path, const StoredModel& model, const Tokenizer& tokenizer,
                        Index tokens);

}  // namespace ddl
