// tokenizer.json and tokenizer_config.json as Hugging Face's libraries read them.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/record.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {
namespace {

std::string quoted(const std::string& text) { return to_line(Json(text)); }

// Specials are written as they read, all other tokens in the byte alphabet.
std::vector<std::string> written_names(const BpeVocabulary& vocabulary) {
  std::vector<std::string> names;
  for (const std::string& token : vocabulary.tokens) names.push_back(to_byte_alphabet(token));
  for (const TokenId id : vocabulary.specials) names[id] = vocabulary.tokens[id];
  return names;
}

// As bpe_parse.cc reads it back.
Json pretokenizer_json(WordPattern words) {
  Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  if (words == WordPattern::kGpt2) return byte_level;
  Json first = {{"type", "Digits"}, {"individual_digits", true}};
  if (words != WordPattern::kSmolLm) {
    byte_level["use_regex"] = false;
    first = {{"type", "Split"},
             {"pattern", {{"Regex", split_pattern(words)}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  }
  return {{"type", "Sequence"}, {"pretokenizers", {first, byte_level}}};
}

}  // namespace

// Vocabulary and merges are written as text: filling a Json object that keeps its order takes quadratic time.
std::string tokenizer_json(const BpeVocabulary& vocabulary) {
  const std::vector<std::string> names = written_names(vocabulary);
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json added = Json::array();
  const auto& late = vocabulary.normalized;
  for (const TokenId id : vocabulary.specials)
    added.push_back({{"id", id},
                     {"content", names[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", std::binary_search(late.begin(), late.end(), id)},
                     {"special", true}});
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  text += "  \"added_tokens\": " + to_line(added) + ",\n";
  text += "  \"normalizer\": " + to_line(vocabulary.nfc ? Json{{"type", "NFC"}} : Json()) + ",\n";
  text += "  \"pre_tokenizer\": " + to_line(pretokenizer_json(vocabulary.words)) +
          ",\n  \"post_processor\": null,\n";
  text += "  \"decoder\": " + to_line(byte_level) + ",\n";
  text += "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n";
  text += "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n";
  text += "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n";
  if (vocabulary.whole_words_first) text += "    \"ignore_merges\": true,\n";
  text += "    \"vocab\": {";
  const char* separator = "\n      ";
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    text += separator + quoted(names[id]) + ": " + std::to_string(id);
    separator = ",\n      ";
  }
  text += "\n    },\n    \"merges\": [";
  separator = "\n      ";
  for (const Merge& merge : vocabulary.merges) {
    text += separator + quoted(names[merge.left] + " " + names[merge.right]);
    separator = ",\n      ";
  }
  return text + "\n    ]\n  }\n}\n";
}

void BpeTokenizer::save(const std::string& folder) const {
  make_folders(folder);
  const std::string& end_of_text = vocabulary_.tokens[vocabulary_.end_of_text];
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"bos_token", end_of_text},
                       {"eos_token", end_of_text},
                       {"clean_up_tokenization_spaces", false}};
  write_file_atomic(folder + "/tokenizer_config.json", to_text(config));
  write_file_atomic(folder + "/tokenizer.json", tokenizer_json(vocabulary_));  // last: it is what makes one
}

}  // namespace ddl
