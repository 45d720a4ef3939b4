// Models in folders: out and in through the functions behind `ddl export`, `ddl import` and every command
// that loads one; and folders that are damaged, which must give one error that names the file and the tensor.
#include "infer/model_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "data/bpe.h"
#include "infer/load.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/oracle_model.h"
#include "model/reference_layout.h"
#include "test_folder.h"

namespace ddl {
namespace {

constexpr Index kExchangeVocab = 264;  // 256 bytes, end of text, padding

ModelConfig config_for(const std::string& residual) {
  ModelConfig m = model_config({.residual = residual, .compressor = "block"});
  m.vocab = kExchangeVocab, m.mlp = 0;
  return m;
}

// A folder as a run's checkpoint is, without the optimizer. Returns its tensors' table.
ParamTable write_model(const std::string& folder, const ModelConfig& config) {
  const Weights weights = scrambled_weights(config);
  make_folders(folder);
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  write_safetensors(folder + "/model.safetensors", tensors, {});
  write_file_atomic(folder + "/config.json", to_text(model_config_json(config)));
  load_tokenizer("bytes")->save(folder);
  return weights.table();
}

// After every token of a text, as `generate` would see them. In f32: what is read back says "auto", which is bf16 on
// some machines.
std::vector<float> logits(const std::string& folder) {
  const LoadedModel loaded = load_model(folder, {.precision = "f32"}, Exec{});
  const auto decoder = make_decoder(loaded.weights, {.slots = 1}, Exec{});
  const auto x = tokens(13, 1, kExchangeVocab);
  std::vector<float> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

TEST(Exchange, ExportThenImportGivesTheSameLogitsForEveryRule) {
  std::set<std::string> released;
  for (const std::string& rule : rule_names()) {
    const TestFolder folder;
    write_model(folder / "model", config_for(rule));
    const std::vector<float> before = logits(folder / "model");
    ASSERT_EQ(before.size(), static_cast<std::size_t>(13 * kExchangeVocab));
    EXPECT_EQ(export_model(folder / "model", Layout::kOwn, folder / "own", Exec{}).config.residual(), rule);
    EXPECT_EQ(logits(folder / "own"), before) << rule;
    if (!why_not_in_reference(config_for(rule)).empty()) {
      EXPECT_TRUE(contains(message_of<UserError>([&] {
                             export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
                           }),
                           "cannot express"));
      EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "nothing is written";
      continue;
    }
    released.insert(rule);
    export_model(folder / "model", Layout::kReference, folder / "released", Exec{});
    EXPECT_EQ(logits(folder / "released"), before) << rule << ", read as it is";
    const WrittenModel back = import_model(folder / "released", "", folder / "back", Exec{});
    EXPECT_TRUE(back.has_tokenizer);
    EXPECT_EQ(back.config.residual(), rule);
    EXPECT_EQ(logits(folder / "back"), before) << rule;
    EXPECT_EQ(contents_of(folder / "back/tokenizer.json"), contents_of(folder / "model/tokenizer.json"));
    for (const char* file : {"generation_config.json", "tokenizer_config.json"})
      EXPECT_TRUE(std::filesystem::exists(folder / "back" + std::string("/") + file)) << file;
  }
  EXPECT_EQ(released,
            (std::set<std::string>{"baseline", "ddl-dv1", "ddl-tc-noec", "ddl-cc-noec", "ddl-tc", "ddl-cc"}));
}

std::vector<float> numbers_of(const std::string& folder) {
  const LoadedModel loaded = load_model(folder, {.missing_tokenizer = LoadOptions::kAccept}, Exec{});
  const auto values = loaded.weights.values();
  return {values.begin(), values.end()};
}

// The tokenizer's way to read text goes along, and a model that is read with it uses it.
TEST(Exchange, ATokenizerThatNormalisesStaysOne) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  BpeVocabulary vocabulary = byte_vocabulary();
  vocabulary.nfc = true;
  BpeTokenizer(vocabulary).save(folder / "model");
  for (const Layout layout : {Layout::kOwn, Layout::kTransformers, Layout::kReference}) {
    const std::string out = folder / fmt::format("out{}", static_cast<int>(layout));
    export_model(folder / "model", layout, out, Exec{});
    EXPECT_EQ(parse_json(contents_of(out + "/tokenizer.json"))["normalizer"], Json({{"type", "NFC"}}));
    const bool own = layout == Layout::kOwn;
    if (!own) import_model(out, "", out + "-back", Exec{});
    std::vector<TokenId> ids;
    load_model(own ? out : out + "-back", {}, Exec{}).tokenizer->encode("e\u0301", ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{0xc3, 0xa9}));
  }
}

// Every rule goes to transformers, the baseline as a model they have. What comes back has the same bits.
TEST(Exchange, TransformersAndBackForEveryRule) {
  for (const std::string& rule : rule_names()) {
    const TestFolder folder;
    ModelConfig config = config_for(rule);
    set_if_known(config, "model.compressor", "sublayer");
    write_model(folder / "model", config);
    const WrittenModel there =
        export_model(folder / "model", Layout::kTransformers, folder / "there", Exec{});
    EXPECT_TRUE(there.has_tokenizer);
    const Json json = parse_json(contents_of(folder / "there/config.json"));
    const bool baseline = rule == "baseline";
    EXPECT_EQ(json["architectures"][0], baseline ? "HunYuanDenseV1ForCausalLM" : "DeepDeltaForCausalLM");
    EXPECT_EQ(json["eos_token_id"], 256);
    EXPECT_EQ(json.contains("auto_map"), !baseline) << "no code of ours is needed for the baseline";
    EXPECT_EQ(std::filesystem::exists(folder / "there/modeling_deep_delta.py"), !baseline);
    const bool family = rule.starts_with("ddl-") || rule.starts_with("wo-");  // which has one class
    EXPECT_TRUE(baseline || family ||
                contains(contents_of(folder / "there/modeling_deep_delta.py"), fmt::format("\"{}\": ", rule)))
        << "src/infer/transformers/modeling_deep_delta.py has no " << rule;
    EXPECT_EQ(std::filesystem::exists(folder / "there/configuration_deep_delta.py"), !baseline);
    EXPECT_EQ(logits(folder / "there"), logits(folder / "model")) << rule << ", read as it is";
    const WrittenModel back = import_model(folder / "there", "", folder / "back", Exec{});
    EXPECT_EQ(back.config.residual(), rule);
    EXPECT_EQ(numbers_of(folder / "back"), numbers_of(folder / "model")) << rule;
    EXPECT_FALSE(std::filesystem::exists(folder / "back/modeling_deep_delta.py"));
    EXPECT_TRUE(
        contains(message_of<UserError>([&] { import_model(folder / "back", "", folder / "x", Exec{}); }),
                 "already in this program's layout"));
  }
}

TEST(Exchange, TheBaselineHasTheNamesAndShapesOfHunYuan) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  export_model(folder / "model", Layout::kTransformers, folder / "there", Exec{});
  const SafetensorsFile file(folder / "there/model.safetensors");
  EXPECT_EQ(file.tensors().size(), 2u + 2 * 11);
  file.expect("model.embed_tokens.weight", std::vector<Index>{264, 8});
  file.expect("model.norm.weight", std::vector<Index>{8});
  file.expect("model.layers.1.input_layernorm.weight", std::vector<Index>{8});
  file.expect("model.layers.1.post_attention_layernorm.weight", std::vector<Index>{8});
  for (const char* name : {"q", "k", "v", "o"})
    file.expect(fmt::format("model.layers.1.self_attn.{}_proj.weight", name), std::vector<Index>{8, 8});
  for (const char* name : {"query", "key"})
    file.expect(fmt::format("model.layers.1.self_attn.{}_layernorm.weight", name), std::vector<Index>{4});
  for (const char* name : {"gate", "up"})
    file.expect(fmt::format("model.layers.1.mlp.{}_proj.weight", name), std::vector<Index>{21, 8});
  file.expect("model.layers.1.mlp.down_proj.weight", std::vector<Index>{8, 21});
  // Queries and keys, gate and up are not exchanged: the numbers are those of the own names.
  const SafetensorsFile own(folder / "model/model.safetensors");
  const auto same = [&](const char* theirs, const char* ours, std::vector<Index> shape) {
    std::vector<float> a(static_cast<std::size_t>(shape[0] * shape[1])), b(a.size());
    file.read(theirs, shape, a.data()), own.read(ours, shape, b.data());
    EXPECT_EQ(a, b) << theirs;
  };
  same("model.layers.0.self_attn.q_proj.weight", "transformer.h.0.attn.c_q.weight", {8, 8});
  same("model.layers.0.self_attn.k_proj.weight", "transformer.h.0.attn.c_k.weight", {8, 8});
  same("model.layers.0.mlp.gate_proj.weight", "transformer.h.0.mlp.c_fc1.weight", {21, 8});
  same("model.layers.0.mlp.up_proj.weight", "transformer.h.0.mlp.c_fc2.weight", {21, 8});
}

// HunYuan has one epsilon, and no scale of the logits.
TEST(Exchange, TheBaselineWithMupOrAnotherEpsilon) {
  const TestFolder folder;
  ModelConfig mup = config_for("baseline");
  mup.mup = true, mup.base_width = 24;  // logits times 3
  write_model(folder / "mup", mup);
  export_model(folder / "mup", Layout::kTransformers, folder / "there", Exec{});
  const std::vector<float> before = logits(folder / "mup"), there = logits(folder / "there");
  ASSERT_EQ(before.size(), there.size());
  // Eight products, each rounded once more: where the scale is does not change what is computed.
  const float largest = std::abs(*std::ranges::max_element(before, {}, [](float z) { return std::abs(z); }));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(there[i], before[i], 16 * 0x1p-23f * largest);
  EXPECT_NE(numbers_of(folder / "there"), numbers_of(folder / "mup")) << "the final norm holds the scale";
  EXPECT_FALSE(StoredModel(folder / "there").config().mup);

  ModelConfig eps = config_for("baseline");
  eps.norm_eps = 1e-3;
  write_model(folder / "eps", eps);
  export_model(folder / "eps", Layout::kTransformers, folder / "own-code", Exec{});
  EXPECT_EQ(parse_json(contents_of(folder / "own-code/config.json"))["model_type"], "deep_delta");
  EXPECT_EQ(logits(folder / "own-code"), logits(folder / "eps"));
}

TEST(Exchange, OtherHunYuanModelsAreRefused) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  export_model(folder / "model", Layout::kTransformers, folder / "there", Exec{});
  const Json good = parse_json(contents_of(folder / "there/config.json"));
  const auto with = [&](const char* key, const Json& value) {
    Json json = good;
    json[key] = value;
    folder.write("there/config.json", to_text(json));
    return message_of<UserError>([&] { load_model(folder / "there", {}, Exec{}); });
  };
  EXPECT_TRUE(contains(with("num_key_value_heads", 1), "num_key_value_heads"));
  EXPECT_TRUE(
      contains(with("rms_norm_eps", 1e-6), "rms_norm_eps is 1e-06; this program's baseline has 1e-05"));
  EXPECT_TRUE(contains(with("tie_word_embeddings", false), "tie_word_embeddings is false"));
  EXPECT_TRUE(contains(with("attention_bias", true), "attention_bias is true"));
  EXPECT_TRUE(contains(with("head_dim", 16), "head_dim"));
  EXPECT_TRUE(contains(with("sliding_window", 4), "a key this program does not know"));
  EXPECT_TRUE(
      contains(with("rope_parameters", Json{{"rope_type", "dynamic"}, {"alpha", 1000.0}}), "rope_type"));
  EXPECT_TRUE(contains(with("vocab_size", 1 << 20), "expected F32 [1048576, 8]"))
      << "before anything is allocated";
  EXPECT_TRUE(contains(with("hidden_size", "8"), "hidden_size"));
  folder.write("there/config.json", to_text(good));
  EXPECT_EQ(logits(folder / "there"), logits(folder / "model"));
}

// Some programs write the head although it is the embedding. One that is not would be lost.
TEST(Exchange, AHeadOfItsOwnIsRefused) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  export_model(folder / "model", Layout::kTransformers, folder / "there", Exec{});
  std::vector<std::pair<std::string, std::vector<float>>> numbers;
  std::vector<TensorToWrite> tensors;
  const SafetensorsFile file(folder / "there/model.safetensors");
  for (const TensorInfo& t : file.tensors()) {
    Index count = 1;
    for (const Index extent : t.shape) count *= extent;
    numbers.emplace_back(t.name, std::vector<float>(static_cast<std::size_t>(count)));
    file.read(t.name, t.shape, numbers.back().second.data());
    if (t.name == "model.embed_tokens.weight")
      numbers.emplace_back("lm_head.weight", std::vector(numbers.back().second));
  }
  const auto write = [&] {
    tensors.clear();
    for (const auto& [name, values] : numbers) {
      const std::string& known = name == "lm_head.weight" ? "model.embed_tokens.weight" : name;
      const auto info = std::ranges::find(file.tensors(), known, &TensorInfo::name);
      tensors.push_back({name, "F32", info->shape, values.data()});
    }
    write_safetensors(folder / "there/model.safetensors", tensors, {{"format", "pt"}});
  };
  write();
  EXPECT_EQ(logits(folder / "there"), logits(folder / "model"));
  for (auto& [name, values] : numbers)
    if (name == "lm_head.weight") values.back() += 1;
  write();
  EXPECT_TRUE(contains(message_of<UserError>([&] { load_model(folder / "there", {}, Exec{}); }),
                       "'lm_head.weight' differs"));
}

TEST(Exchange, TheBaselinesConfigurationForTransformers) {
  const TestFolder folder;
  ModelConfig config = config_for("baseline");
  config.rope_base = 5000;
  write_model(folder / "model", config);
  export_model(folder / "model", Layout::kTransformers, folder / "there", Exec{});
  const Json json = parse_json(contents_of(folder / "there/config.json"));
  EXPECT_EQ(json["rope_theta"], 5000.0) << "of transformers 4";
  EXPECT_EQ(json["rope_parameters"], Json({{"rope_type", "default"}, {"rope_theta", 5000.0}})) << "of 5";
  EXPECT_EQ(json["bos_token_id"], 256);
  EXPECT_TRUE(json["pad_token_id"].is_null()) << "its embedding would not be trained";
}

TEST(Exchange, GgufAndBack) {
  const TestFolder folder;
  ModelConfig config = config_for("baseline");
  config.width = 64, config.heads = 4, config.mlp = 96, config.rope_base = 5000;
  write_model(folder / "model", config);
  const std::vector<float> numbers = numbers_of(folder / "model");
  double worst_before = 0;
  for (const GgufType type : {GgufType::kF32, GgufType::kBf16, GgufType::kQ8}) {
    const std::string file = folder / (gguf_type_name(type) + ".gguf"), back = folder / gguf_type_name(type);
    const WrittenModel there = export_gguf(folder / "model", type, "", file, Exec{});
    EXPECT_EQ(there.parameters, std::ssize(numbers));
    const WrittenModel done = import_model(file, "bytes", back, Exec{});
    EXPECT_TRUE(done.has_tokenizer);
    EXPECT_EQ(done.config.heads, 4);
    EXPECT_EQ(done.config.mlp_width(), 96);
    EXPECT_EQ(done.config.rope_base, 5000);
    const std::vector<float> found = numbers_of(back);
    ASSERT_EQ(found.size(), numbers.size());
    double worst = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      worst = std::max(worst, double{std::abs(found[i] - numbers[i])});
    EXPECT_TRUE(type != GgufType::kF32 || found == numbers);
    EXPECT_LT(worst, 0.02);
    EXPECT_TRUE(type == GgufType::kF32 || worst > worst_before) << "each is coarser than the one before";
    worst_before = worst;
  }
  const GgufFile file(folder / "Q8_0.gguf");
  EXPECT_EQ(file.keys()["general.architecture"], "hunyuan-dense");
  EXPECT_EQ(file.keys()["tokenizer.ggml.add_bos_token"], true);
  EXPECT_EQ(file.keys()["tokenizer.ggml.bos_token_id"], 256);
  EXPECT_EQ(file.keys()["tokenizer.ggml.tokens"].size(), 264u) << "one for every row of the embedding";
  EXPECT_EQ(file.keys()["tokenizer.ggml.tokens"][32], "\u0120") << "a space in the byte alphabet";
  for (const GgufTensor& t : file.tensors())
    EXPECT_EQ(t.type, t.shape.size() == 2 ? GgufType::kQ8 : GgufType::kF32) << t.name;
}

// Names, kinds and merges as llama.cpp reads them, with an id that no token has.
TEST(Exchange, GgufHasTheTokenizer) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  BpeVocabulary v = byte_vocabulary();
  v.tokens = {v.tokens.begin(), v.tokens.begin() + 256};
  v.tokens.insert(v.tokens.end(), {" t", "", "<|endoftext|>", "<|im_start|>"});
  v.merges = {{' ', 't', 256}};
  v.specials = {258, 259};
  v.end_of_text = 258;
  for (const auto& [words, name] :
       {std::pair(WordPattern::kGpt2, "gpt-2"), std::pair(WordPattern::kSmolLm, "smollm"),
        std::pair(WordPattern::kLlama3, "llama-bpe"), std::pair(WordPattern::kQwen2, "qwen2")}) {
    v.words = words;
    BpeTokenizer(v).save(folder / "model");
    const std::string path = folder / fmt::format("{}.gguf", name);
    export_gguf(folder / "model", GgufType::kF32, "", path, Exec{});
    const GgufFile file(path);
    const Json& keys = file.keys();
    EXPECT_EQ(keys["tokenizer.ggml.pre"], name);
    EXPECT_EQ(keys["tokenizer.ggml.model"], "gpt2");
    EXPECT_EQ(keys["tokenizer.ggml.merges"], Json::array({"\u0120 t"}));
    EXPECT_EQ(keys["tokenizer.ggml.bos_token_id"], 258);
    EXPECT_EQ(keys["tokenizer.ggml.eos_token_id"], 258);
    const Json &names = keys["tokenizer.ggml.tokens"], &types = keys["tokenizer.ggml.token_type"];
    ASSERT_EQ(names.size(), 264u);
    ASSERT_EQ(types.size(), 264u);
    EXPECT_EQ(names[256], "\u0120t");
    EXPECT_EQ(names[258], "<|endoftext|>");
    for (std::size_t id = 0; id < types.size(); ++id)
      EXPECT_EQ(types[id], id == 258 || id == 259 ? 3 : id == 257 || id > 259 ? 5 : 1) << id;
  }
}

// With all that llama.cpp's own keys do not say: form C, words before merges, where end of text is looked for.
TEST(Exchange, GgufBringsTheTokenizerBack) {
  const TestFolder folder;
  write_model(folder / "model", config_for("baseline"));
  BpeVocabulary v = byte_vocabulary();
  v.tokens = {v.tokens.begin(), v.tokens.begin() + 256};
  v.tokens.insert(v.tokens.end(), {" t", "", "</s>", "<|endoftext|>"});
  v.merges = {{' ', 't', 256}};
  v.specials = {258, 259};
  v.end_of_text = 258;  // not the one that is looked for first
  v.words = WordPattern::kQwen2, v.nfc = true, v.normalized = {259}, v.whole_words_first = true;
  BpeTokenizer(v).save(folder / "model");
  export_gguf(folder / "model", GgufType::kF32, "", folder / "new/a.gguf", Exec{});  // makes its folder
  EXPECT_TRUE(import_model(folder / "new/a.gguf", "", folder / "back", Exec{}).has_tokenizer);
  for (const std::string name : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(contents_of(folder / ("back/" + name)), contents_of(folder / ("model/" + name))) << name;

  const std::string bytes = contents_of(folder / "new/a.gguf");
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string file = bytes;
    file.replace(file.find(from), from.size(), to);
    folder.write("b.gguf", file);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    change(from, to);
    return message_of<UserError>([&] { import_model(folder / "b.gguf", "", folder / "x", Exec{}); });
  };
  EXPECT_TRUE(contains(changed("\"type\": \"BPE\"", "\"type\": \"ABC\""),
                       "b.gguf: tokenizer.huggingface.json: expected a byte-level BPE tokenizer"));
  const std::string eos = std::string("eos_token_id") + std::string("\4\0\0\0\2\1\0\0", 8);  // a uint32: 258
  ASSERT_NE(bytes.find(eos), bytes.npos);
  for (const char number : {'\0', '\3'}) {  // 2, a byte of text, and 770, which is none
    std::string other = eos;
    other[other.size() - 3] = number;
    EXPECT_TRUE(contains(changed(eos, other), "b.gguf: ")) << changed(eos, other);
  }
  // Of another program: weights alone.
  change("tokenizer.huggingface.json", "tokenizer.huggingface.jsom");
  EXPECT_FALSE(import_model(folder / "b.gguf", "", folder / "weights", Exec{}).has_tokenizer);
}

TEST(Exchange, GgufHoldsTheScaleOfTheLogits) {
  const TestFolder folder;
  ModelConfig mup = config_for("baseline");
  mup.mup = true, mup.base_width = 24;  // logits times 3
  const ParamTable table = write_model(folder / "mup", mup);
  export_gguf(folder / "mup", GgufType::kF32, "", folder / "mup.gguf", Exec{});
  import_model(folder / "mup.gguf", "bytes", folder / "back", Exec{});
  const std::vector<float> before = numbers_of(folder / "mup"), after = numbers_of(folder / "back");
  const Param& norm = table.find("ln_f.weight");
  for (Index i = 0; i < std::ssize(before); ++i) {
    const bool scaled = i >= norm.offset && i < norm.offset + norm.count;
    EXPECT_EQ(after[i], scaled ? 3 * before[i] : before[i]) << i;
  }
}

// A scale that is a power of two changes no digit, so it can be taken out again.
TEST(Exchange, MupComesBackWhereItsScaleIsAPowerOfTwo) {
  const TestFolder folder;
  for (const Index base : {4, 8, 32}) {  // logits times 1/2, 1 and 4
    const std::string name = std::to_string(base);
    ModelConfig mup = config_for("baseline");
    mup.mup = true, mup.base_width = base;
    write_model(folder / name, mup);
    export_model(folder / name, Layout::kTransformers, folder / (name + "-there"), Exec{});
    import_model(folder / (name + "-there"), "", folder / (name + "-back"), Exec{});
    export_gguf(folder / name, GgufType::kF32, "", folder / (name + ".gguf"), Exec{});
    import_model(folder / (name + ".gguf"), "bytes", folder / (name + "-from-gguf"), Exec{});
    for (const char* back : {"-back", "-from-gguf"}) {
      EXPECT_EQ(numbers_of(folder / (name + back)), numbers_of(folder / name)) << name << back;
      const ModelConfig config = StoredModel(folder / (name + back)).config();
      EXPECT_TRUE(config.mup) << name << back;
      EXPECT_EQ(config.base_width, base) << name << back;
    }
  }
  Json json = parse_json(contents_of(folder / "32-there/config.json"));
  json["deep_delta_base_width"] = 24;
  folder.write("32-there/config.json", to_text(json));
  EXPECT_TRUE(contains(message_of<UserError>([&] { load_model(folder / "32-there", {}, Exec{}); }),
                       "'deep_delta_base_width' is 24, expected 8 times a power of two"));
  // Programs that do not know the key see a final norm that has the scale.
  json.erase("deep_delta_base_width");
  folder.write("32-there/config.json", to_text(json));
  EXPECT_FALSE(StoredModel(folder / "32-there").config().mup);
  EXPECT_EQ(logits(folder / "32-there"), logits(folder / "32"));
}

TEST(Exchange, GgufRefusals) {
  const TestFolder folder;
  write_model(folder / "delta", config_for("ddl-cc"));
  write_model(folder / "model", config_for("baseline"));
  const auto error = [](auto body) { return message_of<UserError>(body); };
  const std::string delta =
      error([&] { export_gguf(folder / "delta", GgufType::kF32, "", folder / "x.gguf", Exec{}); });
  EXPECT_TRUE(contains(delta, "its residual rule is ddl-cc") && contains(delta, "--layout transformers"))
      << delta;
  EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
  export_gguf(folder / "model", GgufType::kF32, "", folder / "a.gguf", Exec{});
  EXPECT_TRUE(
      contains(error([&] { export_gguf(folder / "model", GgufType::kF32, "", folder / "a.gguf", Exec{}); }),
               "exists"));
  std::filesystem::remove(folder / "model/tokenizer.json");
  EXPECT_TRUE(
      contains(error([&] { export_gguf(folder / "model", GgufType::kF32, "", folder / "b.gguf", Exec{}); }),
               "--tokenizer"));
  // Rows of 8 are no whole blocks: such matrices stay f32, so nothing is lost.
  export_gguf(folder / "model", GgufType::kQ8, "bytes", folder / "b.gguf", Exec{});
  import_model(folder / "b.gguf", "", folder / "back", Exec{});
  EXPECT_EQ(numbers_of(folder / "back"), numbers_of(folder / "model"));

  std::string bytes = contents_of(folder / "a.gguf");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    changed.replace(changed.find(from), from.size(), to);
    folder.write("c.gguf", changed);
    return error([&] { import_model(folder / "c.gguf", "", folder / "y", Exec{}); });
  };
  EXPECT_TRUE(contains(with("hunyuan-dense", "hunyuan-thick"), "hunyuan-thick"));
  EXPECT_TRUE(contains(with("output_norm.weight", "output_norm.bright"), "output_norm"));
  EXPECT_TRUE(contains(with(".context_length", ".context_lengtx"), "context_length"));
  for (const char* key : {"head_count_kv", "key_length", "value_length"}) {
    const std::string name = fmt::format("hunyuan-dense.attention.{}", key);
    const std::size_t at = bytes.find(name) + name.size();
    const std::string type_and_value = bytes.substr(at, 8);  // u32
    std::string other = type_and_value;
    other[4] = static_cast<char>(other[4] == 1 ? 2 : 1);
    EXPECT_TRUE(contains(with(name + type_and_value, name + other), key));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "y"));
}

TEST(Exchange, AnswersOddRequests) {
  const TestFolder folder;
  write_model(folder / "model", config_for("ddl-tc"));
  const auto error = [](auto body) { return message_of<UserError>(body); };
  EXPECT_TRUE(contains(error([&] { import_model(folder / "model", "", folder / "x", Exec{}); }),
                       "already in this program's layout"));
  EXPECT_TRUE(contains(error([&] { export_model(folder / "none", Layout::kOwn, folder / "x", Exec{}); }),
                       "no such folder"));
  EXPECT_TRUE(contains(error([&] { export_model(folder / "model", Layout::kOwn, folder / "model", Exec{}); }),
                       "not empty"));
  folder.write("file", "");
  EXPECT_TRUE(contains(error([&] { export_model(folder / "model", Layout::kOwn, folder / "file", Exec{}); }),
                       "is a file"));
  // Without a tokenizer weights still move; text needs one.
  std::filesystem::remove(folder / "model/tokenizer.json");
  EXPECT_FALSE(export_model(folder / "model", Layout::kReference, folder / "bare", Exec{}).has_tokenizer);
  EXPECT_TRUE(contains(error([&] { load_model(folder / "bare", {}, Exec{}); }), "--tokenizer"));
  EXPECT_EQ(load_model(folder / "bare", {.tokenizer = "bytes"}, Exec{}).tokenizer->vocab_size(), 257);
  EXPECT_FALSE(load_model(folder / "bare", {.missing_tokenizer = LoadOptions::kAccept}, Exec{}).tokenizer);
}

// Killed in the middle of the weights, by a file that may not grow: there is no folder, and the next one is
// not disturbed.
TEST(Exchange, OneThatWasKilledDoesNotBlockTheNext) {
  const TestFolder folder;
  write_model(folder / "model", config_for("ddl-cc"));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{1000, 1000}, no_core{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &limit), ::setrlimit(RLIMIT_CORE, &no_core);
    export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
  EXPECT_EQ(logits(folder / "out"), logits(folder / "model"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.partial"));
}

// --- damaged folders

class Damaged : public ::testing::Test {
 protected:
  Damaged() : table_(write_model(folder_ / "model", config_for("ddl-cc"))) {}

  std::string weights() const { return folder_ / "model/model.safetensors"; }
  std::string message() {
    return message_of<UserError>([&] { load_model(folder_ / "model", {}, Exec{}); });
  }
  // Writes the weights again with a header that was changed.
  template <class Change>
  void change_header(Change change) {
    const std::string bytes = contents_of(weights());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    Json header = parse_json(std::string_view(bytes).substr(8, length));
    change(header);
    const std::string text = to_line(header), data = bytes.substr(8 + length);
    length = text.size();
    folder_.write("model/model.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
  }
  void expect_names(const std::string& found, std::initializer_list<const char*> parts) {
    EXPECT_TRUE(contains(found, "model.safetensors")) << found;
    for (const char* part : parts) EXPECT_TRUE(contains(found, part)) << found << "\nlacks " << part;
  }

  TestFolder folder_;
  ParamTable table_;
};

TEST_F(Damaged, NotANumber) {
  std::string bytes = contents_of(weights());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  folder_.write("model/model.safetensors", bytes);
  expect_names(message(), {table_.list().back().name.c_str(), "nan", "expected finite numbers"});
}

TEST_F(Damaged, Truncated) {
  std::string bytes = contents_of(weights());
  for (const std::size_t size : {bytes.size() - 1, bytes.size() / 2, std::size_t{20}, std::size_t{3}}) {
    folder_.write("model/model.safetensors", bytes.substr(0, size));
    expect_names(message(), {"not a valid safetensors file"});
  }
}

TEST_F(Damaged, HeadersThatLie) {
  const std::string good = contents_of(weights());
  const auto again = [&] { folder_.write("model/model.safetensors", good); };
  change_header([](Json& h) { h["ln_f.weight"]["data_offsets"][0] = 0; });
  expect_names(message(), {"ln_f.weight"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["shape"] = {Index{1} << 60, Index{1} << 60}; });
  expect_names(message(), {"ln_f.weight", "needs more than the file's"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["dtype"] = "F7"; });
  expect_names(message(), {"ln_f.weight", "unknown dtype 'F7'"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["shape"] = {2, 4}; });
  expect_names(message(), {"ln_f.weight", "F32 [2, 4]", "expected F32 [8]"});
  again();
  change_header([](Json& h) {  // the same bytes under another name
    h["other"] = h["ln_f.weight"];
    h.erase("ln_f.weight");
  });
  expect_names(message(), {"ln_f.weight", "missing", "expected F32 [8]"});
  again();
  const std::string deep(100000, '[');
  folder_.write("model/model.safetensors", std::string("\xff\xff\0\0\0\0\0\0{\"a\":", 13) + deep);
  expect_names(message(), {"not a JSON object"});
}

// A small file whose configuration asks for gigabytes: refused before anything is allocated.
TEST_F(Damaged, AConfigurationLargerThanItsWeights) {
  ModelConfig config = config_for("ddl-cc");
  config.width = 4096, config.layers = 24;
  folder_.write("model/config.json", to_text(model_config_json(config)));
  const std::string found = message();
  expect_names(found, {"transformer.wte.weight", "F32 [264, 8]", "expected F32 [264, 4096]"});
}

TEST_F(Damaged, Configurations) {
  const auto with = [&](const std::string& text) {
    folder_.write("model/config.json", text);
    return message();
  };
  EXPECT_TRUE(contains(with(""), "config.json: not a JSON object"));
  EXPECT_TRUE(contains(with("{\"ddl\":{\"layers\":" + std::string(100000, '[')), "not a JSON object"));
  EXPECT_TRUE(contains(with(std::string(1 << 20, ' ')), "too large for a model's configuration"));
  EXPECT_TRUE(contains(with("{}"), "expected \"ddl\""));
  EXPECT_TRUE(contains(with(R"({"ddl":{"layers":-1}})"), "model.layers is -1"));
  EXPECT_TRUE(contains(with(R"({"ddl":{"layer":1}})"), "did you mean 'model.layers'"));
  EXPECT_TRUE(contains(with(R"({"ddl":{"heads":3}})"), "config.json: model.heads is 3"));
  Json json = model_config_json(config_for("ddl-cc"));
  json["vocab_size"] = 5;
  EXPECT_TRUE(contains(with(to_line(json)), "vocab_size is 5"));
}

}  // namespace
}  // namespace ddl
