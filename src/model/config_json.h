// A model's configuration as config.json: the keys other programs look for (vocab_size, hidden_size, ...)
// and, under "ddl", every option of ModelConfig, from which it is read back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/record.h"
#include "core/weight_format.h"
#include "model/config.h"

namespace ddl {

// Where the weights are stored in a small format, "ddl_weights" names it.
Json model_config_json(const ModelConfig& config, WeightFormat format = WeightFormat::kF32);
WeightFormat parse_stored_format(const std::string& text, const std::string& source_name);
// The same for Hugging Face transformers, which find the classes of modeling_deep_delta.py through it.
Json transformers_config_json(const ModelConfig& config, std::optional<Index> end_of_text);
bool is_transformers_config(std::string_view config_json);
// generation_config.json, with the token that ends a document where it is known.
Json generation_config_json(const ModelConfig& config, std::optional<Index> end_of_text);

// Throws UserError naming the source where the text is no JSON, lacks "ddl", holds an unknown or impossible
// option, or contradicts itself.
ModelConfig parse_model_config(const std::string& text, const std::string& source_name);

// Throws UserError where the text is too long for a configuration.
void check_config_size(std::string_view text, const std::string& source_name);
// ModelConfig::check() and every option's range, for a configuration that came from `source_name`.
void check_config(const ModelConfig& config, const std::string& source_name);

}  // namespace ddl
