#include "data/bpe_parse.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/record.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

std::string shortened(std::string_view text) {
  if (text.size() <= 80) return std::string(text);
  std::size_t cut = 80;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;  // not inside a character
  return std::string(text.substr(0, cut)) + "...";
}

std::string shown(const Json& value) { return shortened(to_line(value)); }

Json parsed(std::string_view text, const std::string& where) {
  std::string error;
  Json json = parse_json(text, &error);
  if (json.is_discarded())
    throw UserError("{}: expected JSON, found an error: {}", where, error.substr(0, 200));
  return json;
}

const Json& member(const Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) throw UserError("{}: expected a field \"{}\", found none", where, name);
  return *found;
}

std::string string_member(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_set(const Json& object, const char* name) {  // there and not null, false, 0 or ""
  const auto found = object.find(name);
  return found != object.end() && !found->is_null() && *found != Json(false) && *found != Json(0) &&
         *found != Json("");
}

// Tokens and merges as they are read, by the names the file gives them.
class Builder {
 public:
  explicit Builder(std::string where) : where_(std::move(where)) {}

  void add_vocab(const Json& vocab) {
    if (!vocab.is_object())
      throw UserError("{}: expected the vocabulary to be an object of token to id, found {}", where_,
                      shown(vocab));
    id_of_.reserve(vocab.size());
    for (const auto& [key, id] : vocab.items()) {
      const std::optional<std::string> bytes = from_byte_alphabet(key);
      const TokenId checked = claim(key, id);
      // Outside the alphabet: text as it stands, never from text
      result_.tokens[checked] = bytes ? *bytes : key;
      if (!bytes) add_special(checked);
    }
  }

  void add_added_token(const Json& token) {
    const std::string content = string_member(token, "content");
    if (content.empty() || !token.contains("id"))
      throw UserError("{}: expected each of added_tokens to have \"id\" and \"content\", found {}", where_,
                      shown(token));
    const Json& id = token["id"];
    TokenId checked;
    if (const auto known = id_of_.find(content); known != id_of_.end()) {
      checked = known->second;
      if (id != Json(checked))
        throw UserError("{}: expected added token '{}' to have the vocabulary's id {}, found {}", where_,
                        shortened(content), checked, shown(id));
    } else {
      checked = claim(content, id);
    }
    result_.tokens[checked] = content;
    add_special(checked);
    if (result_.nfc && is_set(token, "normalized")) result_.normalized.push_back(checked);
  }

  void add_merge(std::string_view left, std::string_view right, const std::string& line) {
    const Merge merge{find(left, line), find(right, line),
                      find(std::string(left) + std::string(right), line)};
    if (!seen_.insert(merge))
      throw UserError("{}: expected each merge once, found '{} {}' again", line, shortened(left),
                      shortened(right));
    result_.merges.push_back(merge);
  }

  void add_merge(std::string_view both, const std::string& line) {  // "left right"
    const std::size_t space = both.find(' ');
    if (space == both.npos || both.find(' ', space + 1) != both.npos || space == 0 ||
        space + 1 == both.size())
      throw UserError("{}: expected two tokens with a space between them, found '{}'", line, shortened(both));
    add_merge(both.substr(0, space), both.substr(space + 1), line);
  }

  // The end of text is the token of the first name that there is; else it is added after all others.
  BpeVocabulary finish(const std::string& end_of_text) {
    std::vector<std::string> names = {std::string(kEndOfText), "</s>", "<|end_of_text|>", "<eos>",
                                      "<|im_end|>"};
    if (!end_of_text.empty()) names.insert(names.begin(), end_of_text);
    const auto known =
        std::find_if(names.begin(), names.end(), [&](auto& name) { return id_of_.contains(name); });
    if (known != names.end()) {
      result_.end_of_text = id_of_[*known];
      result_.tokens[result_.end_of_text] = *known;
    } else {
      result_.end_of_text = static_cast<TokenId>(result_.tokens.size());
      result_.tokens.emplace_back(kEndOfText);
    }
    add_special(result_.end_of_text);
    std::sort(result_.normalized.begin(), result_.normalized.end());
    std::sort(result_.specials.begin(), result_.specials.end());
    result_.specials.erase(std::unique(result_.specials.begin(), result_.specials.end()),
                           result_.specials.end());
    // A token may be in the merges and also declared special. Text must not lead to it: drop its merges.
    const auto special = [&](TokenId id) {
      return std::binary_search(result_.specials.begin(), result_.specials.end(), id);
    };
    std::erase_if(result_.merges,
                  [&](const Merge& m) { return special(m.left) || special(m.right) || special(m.result); });
    check_all_bytes(result_, where_);
    return std::move(result_);
  }

  BpeVocabulary& result() { return result_; }

 private:
  TokenId claim(const std::string& key, const Json& id) {
    if (key.empty())
      throw UserError("{}: expected tokens to have at least one byte, found an empty one", where_);
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMaxIds)
      throw UserError("{}: expected the id of token '{}' to be a whole number below {}, found {}", where_,
                      shortened(key), kMaxIds, shown(id));
    const auto checked = id.get<TokenId>();
    if (checked >= result_.tokens.size()) result_.tokens.resize(checked + 1);
    if (!result_.tokens[checked].empty())
      throw UserError("{}: expected each id once, found id {} for '{}' and for '{}'", where_, checked,
                      shortened(to_byte_alphabet(result_.tokens[checked])), shortened(key));
    id_of_.emplace(key, checked);
    return checked;
  }

  TokenId find(std::string_view key, const std::string& line) const {
    const auto found = id_of_.find(std::string(key));
    if (found == id_of_.end())
      throw UserError(
          "{}: expected both parts of a merge and their join to be in the vocabulary, found no '{}'", line,
          shortened(key));
    return found->second;
  }

  void add_special(TokenId id) { result_.specials.push_back(id); }

  std::string where_;
  BpeVocabulary result_;
  MergeTable seen_;
  std::unordered_map<std::string, TokenId> id_of_;
};

// GPT-2's pattern in the two spellings in use.
bool is_gpt2_pattern(const std::string& pattern) {
  return pattern == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" ||
         pattern == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What is known of a pre_tokenizer that this program does not have, by the family's name.
std::string family_of(const Json& pretokenizer) {
  const std::string text = to_line(pretokenizer);
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  if (has("\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}")) return "GPT-4o's pattern (o200k)";
  if (has("\\\\u4e00") || has("\u4e00") || has("一-龥")) return "DeepSeek's pattern";
  if (has("\"Metaspace\"")) return "SentencePiece's words (Metaspace)";
  if (has("\"BertPreTokenizer\"")) return "BERT's words";
  if (has("(?i:[sdmt]|ll|ve|re)")) return "GPT-4's pattern (cl100k)";
  return shown(pretokenizer);
}

bool is_split(const Json& step, std::string_view pattern) {
  return string_member(step, "type") == "Split" && step.contains("pattern") &&
         string_member(step["pattern"], "Regex") == pattern &&
         string_member(step, "behavior") == "Isolated" && !is_set(step, "invert");
}

// One of:  ByteLevel with its pattern (GPT-2's)        Split by a known pattern, then ByteLevel
//          Digits one by one, then ByteLevel with its pattern (SmolLM's)
WordPattern pattern_of(const Json& pretokenizer, const std::string& where) {
  std::vector<Json> steps = {pretokenizer};
  if (string_member(pretokenizer, "type") == "Sequence" && pretokenizer.contains("pretokenizers") &&
      pretokenizer["pretokenizers"].is_array())
    steps = pretokenizer["pretokenizers"].get<std::vector<Json>>();
  const bool ends_well = !steps.empty() && string_member(steps.back(), "type") == "ByteLevel" &&
                         !is_set(steps.back(), "add_prefix_space");
  if (ends_well && steps.size() <= 2) {
    const Json& first = steps.front();
    const bool own_pattern = !steps.back().contains("use_regex") || is_set(steps.back(), "use_regex");
    if (steps.size() == 1 && own_pattern) return WordPattern::kGpt2;
    if (steps.size() == 2) {
      // GPT-2's pattern over the words of the same pattern changes nothing.
      if (first.contains("pattern") && is_gpt2_pattern(string_member(first["pattern"], "Regex")) &&
          is_split(first, string_member(first["pattern"], "Regex")))
        return WordPattern::kGpt2;
      if (is_split(first, kLlama3Pattern) && !own_pattern) return WordPattern::kLlama3;
      if (is_split(first, kQwen2Pattern) && !own_pattern) return WordPattern::kQwen2;
      if (string_member(first, "type") == "Digits" && is_set(first, "individual_digits") && own_pattern)
        return WordPattern::kSmolLm;
    }
  }
  throw UserError(
      "{}: expected the pre_tokenizer to be ByteLevel with the pattern of GPT-2, SmolLM, Llama 3 or Qwen 2 "
      "and without "
      "add_prefix_space, found {}",
      where, family_of(pretokenizer));
}

// Whether text is normalised to form C; anything else that would change it is refused.
bool asks_for_nfc(const Json& root, const std::string& where) {
  if (!is_set(root, "normalizer")) return false;
  const Json* normalizer = &root["normalizer"];
  if (string_member(*normalizer, "type") == "Sequence" && normalizer->contains("normalizers")) {
    const Json& steps = (*normalizer)["normalizers"];
    if (steps.is_array() && steps.size() == 1) normalizer = &steps[0];
  }
  if (string_member(*normalizer, "type") == "NFC") return true;
  throw UserError("{}: expected no normalizer, or NFC alone (others would change text), found {}", where,
                  shown(root["normalizer"]));
}

WordPattern check_kind(const Json& root, const Json& model, const std::string& where) {
  std::string type = string_member(model, "type");
  if (type.empty() && model.contains("merges")) type = "BPE";  // old files do not say it
  if (type != "BPE")
    throw UserError("{}: expected a byte-level BPE tokenizer (model.type \"BPE\"), found {}", where,
                    model.contains("type") ? shown(model["type"]) : "no type");
  for (const char* option : {"byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (is_set(model, option))
      throw UserError("{}: expected byte-level BPE without {}, found model.{} = {}", where, option, option,
                      shown(model[option]));
  return pattern_of(member(root, "pre_tokenizer", where), where);
}

}  // namespace

std::string_view split_pattern(WordPattern pattern) {
  return pattern == WordPattern::kLlama3 ? kLlama3Pattern : kQwen2Pattern;
}

BpeVocabulary parse_tokenizer_json(std::string_view json, const std::string& where,
                                   const std::string& end_of_text) {
  const Json root = parsed(json, where);
  if (!root.is_object()) throw UserError("{}: expected a JSON object, found {}", where, shown(root));
  const Json& model = member(root, "model", where);
  if (!model.is_object())
    throw UserError("{}: expected \"model\" to be an object, found {}", where, shown(model));
  Builder builder(where);
  builder.result().words = check_kind(root, model, where);
  builder.result().nfc = asks_for_nfc(root, where);
  builder.add_vocab(member(model, "vocab", where));
  const Json& merges = member(model, "merges", where);
  if (!merges.is_array())
    throw UserError("{}: expected \"merges\" to be a list, found {}", where, shown(merges));
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const std::string at = fmt::format("{}: merge {}", where, i + 1);
    if (merge.is_string()) {
      builder.add_merge(merge.get_ref<const std::string&>(), at);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      builder.add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), at);
    } else {
      throw UserError("{}: expected \"left right\" or [\"left\", \"right\"], found {}", at, shown(merge));
    }
  }
  if (const auto added = root.find("added_tokens"); added != root.end() && !added->is_null()) {
    if (!added->is_array())
      throw UserError("{}: expected \"added_tokens\" to be a list, found {}", where, shown(*added));
    for (const Json& token : *added) builder.add_added_token(token);
  }
  builder.result().whole_words_first = is_set(model, "ignore_merges");
  return builder.finish(end_of_text);
}

BpeVocabulary parse_vocab_and_merges(std::string_view vocab_json, const std::string& vocab_where,
                                     std::string_view merges, const std::string& merges_where) {
  Builder builder(vocab_where);
  builder.add_vocab(parsed(vocab_json, vocab_where));
  Index line_number = 0;
  while (!merges.empty()) {
    const std::size_t newline = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, newline);
    merges.remove_prefix(std::min(newline + 1, merges.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    // "#version" is a header only in the first line: "# #" is a merge like any other.
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    builder.add_merge(line, fmt::format("{}:{}", merges_where, line_number));
  }
  return builder.finish("");
}

}  // namespace ddl
