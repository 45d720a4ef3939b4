// The tokenizer formats people have, parsed from memory. `where` is the file's name, for messages. All throw
// UserError that says what was expected and what was found; no input crashes them, and ids are bounded so
// that a wrong one cannot ask for gigabytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/bpe.h"

namespace ddl {

// One more than the largest id a file may have. Real vocabularies end near 300 000.
inline constexpr std::uint64_t kMaxIds = std::uint64_t{1} << 21;

// The pattern of a "Split" step, as Hugging Face's files spell it: of llama3 and qwen2.
std::string_view split_pattern(WordPattern pattern);

// Hugging Face tokenizer.json holding byte-level BPE. `end_of_text` names the end-of-text token where it is
// known (from tokenizer_config.json); "" looks for the usual names.
BpeVocabulary parse_tokenizer_json(std::string_view json, const std::string& where,
                                   const std::string& end_of_text = "");

// encoder.json + vocab.bpe, or vocab.json + merges.txt: the same two files under two names.
BpeVocabulary parse_vocab_and_merges(std::string_view vocab_json, const std::string& vocab_where,
                                     std::string_view merges, const std::string& merges_where);

// Lines of a token's bytes in base64 and its rank, which is also its id. Merges are derived from the ranks;
// end of text takes the first id that is not used (50256 in r50k_base and p50k_base).
BpeVocabulary parse_tiktoken(std::string_view text, const std::string& where);

}  // namespace ddl
