// Weights that move: out in the released layout, back in, the same logits bit for bit.
#include "model/reference_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "io/file.h"
#include "model/oracle_model.h"
#include "model/stored_model.h"
#include "test_folder.h"

namespace ddl {
namespace {

ModelConfig exportable(const std::string& residual, const std::string& gate = "linear", Index channels = 3) {
  ModelConfig m =
      model_config({.residual = residual, .channels = channels, .gate = gate, .compressor = "block"});
  m.mlp = 0;
  return m;
}

std::vector<float> logits(const Weights& weights) {
  const auto decoder = make_decoder(weights, {}, Exec{});
  const auto x = tokens(12, 1);
  std::vector<float> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

void write(const TestFolder& folder, const ReferenceModel& reference) {
  write_safetensors(folder / "model.safetensors", reference.tensors, {});
  write_file_atomic(folder / "config.json", to_line(reference.config));
}

Weights import_from(const std::string& folder) {
  const StoredModel stored(folder);
  EXPECT_EQ(stored.layout(), StoredLayout::kReleased);
  ModelConfig config = stored.config();
  config.precision = Precision::kF32;  // as in the tests' other models; "auto" is bf16 on some machines
  Weights weights(config, 9, Exec{});
  stored.load(weights, Exec{});
  return weights;
}

const TensorToWrite& find(const ReferenceModel& r, const std::string& name) {
  for (const TensorToWrite& t : r.tensors)
    if (t.name == name) return t;
  throw std::runtime_error("no " + name);
}

TEST(ReferenceLayout, ThereAndBackGivesTheSameBits) {
  std::set<std::string> exported;
  for (const std::string& rule : rule_names())
    for (const char* gate : {"linear", "two-layer"})
      for (Index channels : {1, 2, 3, 4}) {
        if (find_rule(rule).why_not_in_reference(model_config({})) == "a rule of its own") continue;
        const ModelConfig config = exportable(rule, gate, channels);
        if (!why_not_in_reference(config).empty()) continue;
        exported.insert(rule);
        const Weights weights = scrambled_weights(config);
        const TestFolder folder;
        write(folder, to_reference(weights));
        const Weights back = import_from(folder.path());
        EXPECT_EQ(back.config().residual(), rule);
        ASSERT_EQ(back.values().size(), weights.values().size()) << rule;
        EXPECT_TRUE(std::equal(back.values().begin(), back.values().end(), weights.values().begin())) << rule;
        EXPECT_EQ(logits(back), logits(weights)) << rule << " " << gate << " " << channels;
      }
  EXPECT_EQ(exported,
            (std::set<std::string>{"baseline", "ddl-dv1", "ddl-tc-noec", "ddl-cc-noec", "ddl-tc", "ddl-cc"}));
}

TEST(ReferenceLayout, NamesAndShapesAreTheReleasedOnes) {
  const auto shape = [](const std::string& rule, const std::string& name) {
    return find(to_reference(Weights(exportable(rule))), name).shape;
  };
  using Shape = std::vector<Index>;
  EXPECT_EQ(shape("ddl-cc", "transformer.h.1.compress.weight"), (Shape{8, 3}));
  EXPECT_EQ(shape("ddl-cc", "transformer.h.1.compress.read"), (Shape{3}));
  EXPECT_EQ(shape("ddl-cc", "readout.weight"), (Shape{8, 3}));
  EXPECT_EQ(shape("ddl-tc", "transformer.h.0.compress.shortconv.weight"), (Shape{24, 3}));
  EXPECT_EQ(shape("ddl-tc", "readout.shortconv.weight"), (Shape{24, 3}));
  EXPECT_EQ(shape("ddl-tc", "readout.read"), (Shape{3}));
  EXPECT_EQ(shape("ddl-tc", "input_embed.conv.weight"), (Shape{24, 1, 4}));
  EXPECT_EQ(shape("ddl-dv1", "transformer.h.0.ddl_mlp.v_proj.weight"), (Shape{1, 8}));
}

// Feature i, channel j, last tap: the current token.
TEST(ReferenceLayout, TheLastTapIsTheCurrentToken) {
  Weights weights(exportable("ddl-tc"));
  const std::span<float> conv = weights.tensor("input_embed.conv.weight");
  for (std::size_t i = 0; i < conv.size(); ++i) conv[i] = static_cast<float>(i);
  const ReferenceModel r = to_reference(weights);
  const float* released = static_cast<const float*>(find(r, "input_embed.conv.weight").data);
  const Index C = 8, D = 3, E = 4, i = 5, j = 2;
  EXPECT_EQ(released[(i * D + j) * E + E - 1], static_cast<float>(((E - 1) * D + j) * C + i));
}

TEST(ReferenceLayout, ReadsShardsAndATiedHead) {
  const Weights weights = scrambled_weights(exportable("ddl-cc"));
  ReferenceModel r = to_reference(weights);
  TensorToWrite head = find(r, "transformer.wte.weight");
  head.name = "lm_head.weight";
  r.tensors.push_back(head);
  const TestFolder folder;
  Json index{{"weight_map", Json::object()}};
  for (std::size_t half = 0; half < 2; ++half) {
    const std::size_t middle = r.tensors.size() / 2;
    const std::span<const TensorToWrite> part(r.tensors.data() + half * middle,
                                              half ? r.tensors.size() - middle : middle);
    const std::string name = fmt::format("model-0000{}-of-00002.safetensors", half + 1);
    write_safetensors(folder / name, part, {});
    for (const TensorToWrite& t : part) index["weight_map"][t.name] = name;
  }
  folder.write("config.json", to_line(r.config));
  folder.write("model.safetensors.index.json", to_line(index));
  EXPECT_EQ(logits(import_from(folder.path())), logits(weights));

  index["weight_map"]["ln_f.weight"] = "../elsewhere.safetensors";
  folder.write("model.safetensors.index.json", to_line(index));
  EXPECT_TRUE(contains(message_of<UserError>([&] { import_from(folder.path()); }), "ln_f.weight"));
}

TEST(ReferenceLayout, RefusesWithTheReason) {
  const auto reason = [](const ModelConfig& m) {
    return message_of<UserError>([&] { to_reference(Weights(m)); });
  };
  EXPECT_TRUE(contains(reason(exportable("wo-cc")), "write-only"));
  ModelConfig m = exportable("ddl-cc");
  m.set("model.compressor=sublayer");
  EXPECT_TRUE(contains(reason(m), "one compressor for both"));
  m = exportable("ddl-cc"), m.set("model.value=biased");
  EXPECT_TRUE(contains(reason(m), "4 sigmoid"));
  m = exportable("baseline"), m.mlp = 7;
  EXPECT_TRUE(contains(reason(m), "floor(8/3 width) = 21"));

  const Weights weights(exportable("ddl-cc"), 1, Exec{});
  const ReferenceModel good = to_reference(weights);
  const auto refusal = [&](auto change) {
    const TestFolder folder;
    ReferenceModel r{good.config, good.tensors, {}};
    change(r);
    write(folder, r);
    return message_of<UserError>([&] { import_from(folder.path()); });
  };
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["model_type"] = "gpt2"; }), "nanogpt-pro"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config.erase("vocab_size"); }), "vocab_size is missing"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["hidden_size"] = "8"; }), "hidden_size"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["ddl_v_constant"] = true; }), "ddl_v_constant"));
  EXPECT_TRUE(
      contains(refusal([](auto& r) { r.config["ddl_v_sigmoid_scale"] = 2.0; }), "ddl_v_sigmoid_scale"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["use_qk_rmsnorm"] = false; }), "use_qk_rmsnorm"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.tensors.pop_back(); }), "is missing, expected F32 ["));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.tensors[1].name = "transformer.h.0.attn.bias"; }), "c_q"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["num_hidden_layers"] = 1; }), "has no place"));
  EXPECT_TRUE(contains(refusal([](auto& r) { r.config["vocab_size"] = Index{1} << 60; }), "model.vocab"));
  const std::vector<float> zeros(static_cast<std::size_t>(11 * 8));
  EXPECT_TRUE(contains(refusal([&](auto& r) {
                         r.tensors.push_back({"lm_head.weight", "F32", {11, 8}, zeros.data()});
                       }),
                       "'lm_head.weight' differs"));
}

}  // namespace
}  // namespace ddl
