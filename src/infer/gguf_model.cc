#include "infer/gguf_model.h"

#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_fields.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "data/byte_alphabet.h"
#include "model/baseline_names.h"
#include "model/config_json.h"
#include "model/hunyuan_layout.h"

namespace ddl {
namespace {

using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

constexpr const char* kGgufArchitecture = "hunyuan-dense";
constexpr const char* kGgufBaseWidth = "deep_delta.base_width";
constexpr const char* kGgufTokenizerJson = "tokenizer.huggingface.json";
std::string arch(const char* key) { return fmt::format("{}.{}", kGgufArchitecture, key); }

std::uint32_t file_type(GgufType type) {  // llama.cpp's number for "mostly of this type"
  return type == GgufType::kQ8 ? 7 : type == GgufType::kBf16 ? 32 : type == GgufType::kF16 ? 1 : 0;
}

GgufKeys model_keys(const ModelConfig& c, GgufType type, const std::string& name) {
  const auto u32 = [](Index value) { return static_cast<std::uint32_t>(value); };
  return {{"general.architecture", std::string(kGgufArchitecture)},
          {"general.name", name},
          {"general.file_type", file_type(type)},
          {arch("context_length"), u32(c.context)},
          {arch("embedding_length"), u32(c.width)},
          {arch("block_count"), u32(c.layers)},
          {arch("feed_forward_length"), u32(c.mlp_width())},
          {arch("attention.head_count"), u32(c.heads)},
          {arch("attention.head_count_kv"), u32(c.heads)},
          {arch("attention.key_length"), u32(c.head_size())},
          {arch("attention.value_length"), u32(c.head_size())},
          {arch("attention.layer_norm_rms_epsilon"), static_cast<float>(c.norm_eps)},
          {arch("rope.freq_base"), static_cast<float>(c.rope_base)},
          {arch("vocab_size"), u32(c.vocab)}};
}

// As llama.cpp calls them.
std::string pretokenizer_name(WordPattern words) {
  switch (words) {
    case WordPattern::kGpt2:
      return "gpt-2";
    case WordPattern::kSmolLm:
      return "smollm";
    case WordPattern::kLlama3:
      return "llama-bpe";
    case WordPattern::kQwen2:
      return "qwen2";
  }
  return "";
}

// A document begins with end of text: add_bos_token, and both are that token.
void add_tokenizer_keys(GgufKeys& keys, const BpeTokenizer& tokenizer, Index vocab) {
  constexpr std::int32_t kNormal = 1, kControl = 3, kUnused = 5;
  const BpeVocabulary& v = tokenizer.vocabulary();
  std::vector<std::string> names;
  for (const std::string& token : v.tokens) names.push_back(to_byte_alphabet(token));
  std::vector<std::int32_t> types(names.size(), kNormal);
  for (const TokenId id : v.specials) names[id] = v.tokens[id], types[id] = kControl;
  for (Index id = 0; id < vocab; ++id) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= names.size()) names.emplace_back(), types.push_back(kUnused);
    // Names must differ
    if (names[at].empty()) names[at] = fmt::format("[unused {}]", id), types[at] = kUnused;
  }
  std::vector<std::string> merges;
  for (const Merge& merge : v.merges) merges.push_back(names[merge.left] + " " + names[merge.right]);
  keys.push_back({"tokenizer.ggml.model", std::string("gpt2")});
  keys.push_back({"tokenizer.ggml.pre", pretokenizer_name(v.words)});
  keys.push_back({"tokenizer.ggml.tokens", std::move(names)});
  keys.push_back({"tokenizer.ggml.token_type", std::move(types)});
  keys.push_back({"tokenizer.ggml.merges", std::move(merges)});
  keys.push_back({"tokenizer.ggml.bos_token_id", v.end_of_text});
  keys.push_back({"tokenizer.ggml.eos_token_id", v.end_of_text});
  keys.push_back({"tokenizer.ggml.add_bos_token", true});
  keys.push_back({kGgufTokenizerJson, tokenizer_json(v)});
}

}  // namespace

void write_gguf_model(const std::string& path, const Weights& weights, const Tokenizer* tokenizer,
                      GgufType type, const std::string& name) {
  const ModelConfig& config = weights.config();
  if (const std::string reason = why_not_hunyuan(config); !reason.empty())
    throw UserError(
        "llama.cpp cannot compute this model: {}. --layout transformers exports it with a modeling file of "
        "its own",
        reason);
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer);
  if (!bpe)
    throw UserError("the model has no tokenizer.json, which a GGUF file must hold; name one (--tokenizer)");
  GgufKeys keys = model_keys(config, type, name);
  if (const auto base = kept_base_width(config))
    keys.push_back({kGgufBaseWidth, static_cast<std::uint32_t>(*base)});
  add_tokenizer_keys(keys, *bpe, config.vocab);
  const std::vector<float> final_norm = scaled_final_norm(weights);
  std::vector<GgufTensorToWrite> tensors;
  for (const Param& p : weights.table().list()) {
    const bool matrix = p.shape.size() == 2;
    const bool whole_blocks = p.shape.back() % kGgufBlock == 0;
    tensors.push_back({baseline_name(p.name, BaselineNames::kGguf),
                       matrix && (type != GgufType::kQ8 || whole_blocks) ? type : GgufType::kF32, p.shape,
                       p.name == "ln_f.weight" ? final_norm.data() : weights.values().data() + p.offset});
  }
  write_gguf(path, keys, tensors);
}

Weights read_gguf_model(const std::string& path, const Exec& ex) {
  const GgufFile file(path);
  const JsonFields fields(file.keys(), path);
  if (const std::string found = fields.text("general.architecture"); found != kGgufArchitecture)
    throw UserError("{}: general.architecture is {}; this program reads {}, its baseline", path,
                    found.substr(0, 80), kGgufArchitecture);
  const auto size = [&](const char* key) { return fields.whole(arch(key), 1, Index{1} << 40); };
  ModelConfig c;
  c.use_residual(kBaselineRule);
  c.context = size("context_length"), c.width = size("embedding_length"), c.layers = size("block_count");
  c.heads = size("attention.head_count");
  if (const Index mlp = size("feed_forward_length"); mlp != c.mlp_width()) c.mlp = mlp;
  if (size("attention.head_count_kv") != c.heads)
    fields.refuse(arch("attention.head_count_kv"), fmt::format("{}, one for every head", c.heads));
  if (static_cast<float>(fields.number(arch("attention.layer_norm_rms_epsilon"))) != 1e-5f)
    fields.refuse(arch("attention.layer_norm_rms_epsilon"), "1e-5");
  c.rope_base = fields.number(arch("rope.freq_base"));
  c.precision = Precision::kF32;
  use_kept_base_width(c, fields, kGgufBaseWidth);
  const std::string embedding = baseline_name("transformer.wte.weight", BaselineNames::kGguf);
  for (const GgufTensor& t : file.tensors())
    if (t.name == embedding && t.shape.size() == 2) c.vocab = t.shape[0];
  check_config(c, path);
  for (const char* key : {"attention.key_length", "attention.value_length"})
    if (fields.has(arch(key)) && size(key) != c.head_size())
      fields.refuse(arch(key), fmt::format("{}, embedding_length / head_count", c.head_size()));

  // Shapes before memory: nothing is made for a file that cannot fill it.
  const ParamTable table = param_table(c);
  std::set<std::string> known;
  for (const Param& p : table.list()) {
    const std::string& name = *known.insert(baseline_name(p.name, BaselineNames::kGguf)).first;
    file.expect(name, p.shape);
  }
  for (const GgufTensor& t : file.tensors())
    if (!known.contains(t.name))
      throw UserError("{}: tensor '{}' has no place in this model", path, t.name.substr(0, 80));
  Weights weights(c);
  for (const Param& p : table.list())
    file.read(baseline_name(p.name, BaselineNames::kGguf), p.shape, weights.values().data() + p.offset);
  take_scale_out_of_final_norm(weights);
  weights.update_copy(ex);
  return weights;
}

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const std::string& path) {
  const GgufFile file(path);
  const JsonFields fields(file.keys(), path);
  if (!fields.has(kGgufTokenizerJson)) return nullptr;
  constexpr const char* kEnd = "tokenizer.ggml.eos_token_id";
  const Index end = fields.whole(kEnd, 0, static_cast<Index>(kMaxIds) - 1);
  const Json* names =
      file.keys().contains("tokenizer.ggml.tokens") ? &file.keys()["tokenizer.ggml.tokens"] : nullptr;
  if (!names || !names->is_array() || end >= std::ssize(*names) ||
      !(*names)[static_cast<std::size_t>(end)].is_string())
    fields.refuse(kEnd, "the number of one of tokenizer.ggml.tokens");
  const std::string where = fmt::format("{}: {}", path, kGgufTokenizerJson);
  BpeVocabulary vocabulary = parse_tokenizer_json(fields.text(kGgufTokenizerJson), where,
                                                  (*names)[static_cast<std::size_t>(end)].get<std::string>());
  if (static_cast<Index>(vocabulary.end_of_text) != end)
    fields.refuse(kEnd, fmt::format("{}, the end of text in {}", vocabulary.end_of_text, kGgufTokenizerJson));
  return std::make_unique<BpeTokenizer>(std::move(vocabulary));
}

}  // namespace ddl
