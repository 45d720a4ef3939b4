// Imports never lie: each key of the released configurations is honoured, or changes nothing, or is refused with
// its value and what is supported.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/oracle_model.h"
#include "model/reference_layout.h"
#include "model/released_configs.h"
#include "model/residual/rules.h"
#include "model/stored_model.h"
#include "test_folder.h"

namespace ddl {
namespace {

const char* const kReleasedRules[] = {"baseline",    "ddl-dv1", "ddl-tc-noec",
                                      "ddl-cc-noec", "ddl-tc",  "ddl-cc"};

ModelConfig released_model(const std::string& rule, const std::string& gate = "linear") {
  ModelConfig m = model_config({.residual = rule, .gate = gate, .compressor = "block"});
  m.mlp = 0;
  set_if_known(m, "model.channel_compressor", "convolution");
  return m;
}

// The model's tensors beside this configuration, imported.
ModelConfig import_with(const std::string& rule, const Json& config, const std::string& gate = "linear") {
  const Weights weights = scrambled_weights(released_model(rule, gate));
  const ReferenceModel model = to_reference(weights);
  const TestFolder folder;
  write_safetensors(folder / "model.safetensors", model.tensors, {});
  folder.write("config.json", to_line(config));
  return StoredModel(folder.path()).config();
}

ModelConfig import_changed(const std::string& rule, const std::string& key, const Json& value) {
  Json config = released_config(rule);
  config[key] = value;
  return import_with(rule, config);
}

std::string refusal(const std::string& rule, const std::string& key, const Json& value) {
  return message_of<UserError>([&] { import_changed(rule, key, value); });
}

TEST(ReferenceConfig, EveryReleasedFormIsRead) {
  for (const char* rule : kReleasedRules) {
    const ModelConfig m = import_with(rule, released_config(rule));
    EXPECT_EQ(m.residual(), rule);
    EXPECT_EQ(m.layers, 2);
    EXPECT_EQ(m.width, 8);
    EXPECT_EQ(m.context, 16);
    EXPECT_EQ(m.rope_base, 10000);
    EXPECT_EQ(m.norm_eps, 1e-5);
    EXPECT_FALSE(m.mup);
  }
}

// What each key of the released classes is for: with the value here, which is not its default, an import is
// refused naming the key, or takes it over, or nothing changes.
enum What { kHonoured, kHarmless, kRefused };
struct Key {
  const char* name;
  Json value;
  What what;
};
const std::vector<Key>& released_keys() {
  static const std::vector<Key> keys = {
      // sizes: those of the tensors, so another value is refused
      {"vocab_size", 12, kRefused},
      {"num_hidden_layers", 3, kRefused},
      {"num_attention_heads", 1, kRefused},
      {"hidden_size", 12, kRefused},
      {"head_dim", 8, kRefused},
      {"block_size", 32, kHonoured},
      {"intermediate_size", 20, kRefused},
      {"mlp_hidden_mult", 4.0, kRefused},
      {"ddl_value_channels", 4, kRefused},
      {"ddl_state_shortconv_kernel_size", 2, kRefused},
      {"input_embed_shortconv_kernel_size", 3, kRefused},
      {"ddl_beta_single_linear", false, kRefused},
      {"ddl_beta_hidden_size", 64, kHarmless},  // of the other gate
      // arithmetic
      {"rope_base", 500000.0, kHonoured},
      {"rope_ratio", 0.5, kRefused},
      {"rms_norm_eps", 1e-6, kRefused},  // by the delta rules; the baseline honours it
      {"mup", true, kHonoured},
      {"parameterization", "widthmuP", kHonoured},
      {"hidden_size_base", 4, kHonoured},
      {"use_qk_rmsnorm", false, kRefused},
      {"q_activation", "silu", kRefused},
      {"k_activation", "relu", kRefused},
      {"v_activation", "tanh", kRefused},
      {"bias", true, kRefused},
      {"dropout", 0.1, kRefused},
      {"scale_attn_by_inverse_layer_idx", true, kRefused},
      {"using_groupnorm", true, kRefused},
      {"use_output_gate", true, kRefused},
      {"use_k_shift", true, kRefused},
      {"use_v_shift", true, kRefused},
      {"residual_branch_mult", 0.5, kRefused},
      {"ddl_k_eps", 1e-3, kHonoured},
      {"ddl_v_sigmoid", false, kRefused},
      {"ddl_v_sigmoid_scale", 2.0, kRefused},
      {"ddl_v_constant", true, kRefused},
      {"ddl_v_dim1_constant", true, kRefused},
      {"ddl_state_dv_shortconv_causal", true, kRefused},
      {"ddl_sequence_reduction_version", 2, kRefused},
      {"tie_word_embeddings", false, kRefused},
      // starting values
      {"embedding_init_std", 0.5, kHonoured},
      {"hidden_init_std_factor", 2.0, kHonoured},
      {"ddl_beta_init", 0.25, kHonoured},
      {"ddl_state_read_init", 0.5, kHarmless},
      {"ddl_v_constant_value", 3.0, kHarmless},
      {"ddl_v_dim1_constant_value", 3.0, kHarmless},
      {"num_hidden_layers_base", 24, kHarmless},
      // training and decoding of the released code
      {"embedding_lr_multiplier", 2.0, kRefused},
      {"kv_cache_slot_size", 64, kHarmless},
      {"validate_cached_position_ids", true, kHarmless},
      {"attention_dtype", "float32", kHarmless},
      {"use_cache", false, kHarmless},
      {"architectures", {"Other"}, kHarmless},
      {"torch_dtype", "bfloat16", kHarmless},
      {"transformers_version", "5.0.0", kHarmless},
      {"is_decoder", false, kHarmless}};
  return keys;
}

TEST(ReferenceConfig, EveryKeyIsHonouredHarmlessOrRefused) {
  const std::string plain = to_line(model_config_json(import_with("ddl-cc", released_config("ddl-cc"))));
  for (const Key& key : released_keys()) {
    if (key.what == kRefused) {
      const std::string message = refusal("ddl-cc", key.name, key.value);
      // Sizes that do not fit are seen in the tensors, which are then named instead.
      const bool named = contains(message, key.name) || contains(message, "tensor");
      EXPECT_TRUE(named && contains(message, "config.json") + contains(message, "model.safetensors"))
          << key.name << ": " << message;
      continue;
    }
    const std::string changed = to_line(model_config_json(import_changed("ddl-cc", key.name, key.value)));
    EXPECT_EQ(changed == plain, key.what == kHarmless) << key.name;
  }
  // No field of a released class is missing above.
  std::set<std::string> known = {"model_type"};
  for (const Key& key : released_keys()) known.insert(key.name);
  for (const char* rule : kReleasedRules) {
    const Json config = released_config(rule);
    for (const auto& [name, value] : config.items()) EXPECT_TRUE(known.contains(name)) << name;
  }
}

TEST(ReferenceConfig, RefusalsSayValueAndWhatIsSupported) {
  const auto says = [](const std::string& message, std::vector<std::string> parts) {
    for (const std::string& part : parts) EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
  };
  says(refusal("ddl-dv1", "ddl_v_dim1_constant", true),
       {"ddl_v_dim1_constant is true", "false: the value is computed"});
  says(refusal("baseline", "q_activation", "silu"),
       {"q_activation is \"silu\"", "null: queries have no activation"});
  says(refusal("ddl-cc", "rms_norm_eps", 1e-6), {"rms_norm_eps is 1e-06", "1e-5 whatever it says"});
  says(refusal("ddl-tc", "parameterization", "completeP"), {"parameterization is \"completeP\"", "widthmuP"});
  says(refusal("ddl-tc", "ddl_value_channels", 4), {"ddl_value_channels is 4, but the tensors have 3"});
  says(refusal("ddl-cc", "window_size", 128), {"window_size is 128", "does not know"});
  says(refusal("baseline", "ddl_k_eps", 1e-5), {"ddl_k_eps is 1e-05", "additive baseline"});
  says(refusal("ddl-cc", "use_qk_rmsnorm", nullptr), {"use_qk_rmsnorm is null", "true"});
  Json both = released_config("ddl-cc");
  both["mup"] = false, both["parameterization"] = "widthmuP";
  says(message_of<UserError>([&] { import_with("ddl-cc", both); }),
       {"mup is false, but parameterization is"});
}

TEST(ReferenceConfig, HonoursRotaryBaseNormEpsAndParameterization) {
  Json config = released_config("baseline");
  config["rope_base"] = 500000.0, config["rms_norm_eps"] = 1e-6;
  config["parameterization"] = "widthmuP", config["hidden_size_base"] = 32;
  const ModelConfig m = import_with("baseline", config);
  EXPECT_EQ(m.rope_base, 500000);
  EXPECT_EQ(m.norm_eps, 1e-6);
  EXPECT_TRUE(m.mup);
  EXPECT_EQ(m.logit_scale(), 4);
  EXPECT_EQ(import_changed("ddl-cc", "rope_base", 123.0).rope_base, 123);
  EXPECT_FALSE(import_changed("ddl-cc", "parameterization", nullptr).mup);
  EXPECT_FALSE(import_changed("ddl-cc", "parameterization", "SP").mup);
}

// Out and back: the arithmetic's settings travel with the weights, bit for bit.
TEST(ReferenceConfig, SettingsComeBackFromAnExport) {
  for (const char* rule : kReleasedRules) {
    ModelConfig m = released_model(rule);
    m.rope_base = 777, m.mup = true;
    if (m.residual() == "baseline") m.norm_eps = 1e-3;
    const Weights weights = scrambled_weights(m);
    const ReferenceModel model = to_reference(weights);
    const TestFolder folder;
    write_safetensors(folder / "model.safetensors", model.tensors, {});
    folder.write("config.json", to_line(model.config));
    const StoredModel stored(folder.path());
    EXPECT_EQ(stored.config().rope_base, 777) << rule;
    EXPECT_EQ(stored.config().norm_eps, m.norm_eps) << rule;
    EXPECT_TRUE(stored.config().mup) << rule;
    Weights back(stored.config(), 9, Exec{});
    stored.load(back, Exec{});
    ASSERT_EQ(back.values().size(), weights.values().size()) << rule;
    EXPECT_TRUE(std::equal(back.values().begin(), back.values().end(), weights.values().begin())) << rule;
  }
  ModelConfig delta = released_model("ddl-cc");
  delta.norm_eps = 1e-3;
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { to_reference(Weights(delta)); }), "model.norm_eps is 0.001"));
}

// The released channel compressor stays a convolution and a read vector, of any length.
TEST(ReferenceConfig, KeepsTheChannelConvolution) {
  for (const Index taps : {1, 2, 3}) {
    ModelConfig m = released_model("ddl-cc");
    m.set(fmt::format("model.channel_kernel={}", taps));
    const Weights weights = scrambled_weights(m);
    const ReferenceModel model = to_reference(weights);
    const TestFolder folder;
    write_safetensors(folder / "model.safetensors", model.tensors, {});
    folder.write("config.json", to_line(model.config));
    const StoredModel stored(folder.path());
    EXPECT_EQ(stored.config().rule<DeltaOptions>().channel_taps(), taps);
    Weights back(stored.config(), 9, Exec{});
    stored.load(back, Exec{});
    EXPECT_TRUE(std::equal(back.values().begin(), back.values().end(), weights.values().begin()));
    // Feature i, tap m, as the released code has it.
    for (const TensorToWrite& t : model.tensors)
      if (t.name == "readout.weight") {
        EXPECT_EQ(t.shape, (std::vector<Index>{8, taps}));
        EXPECT_EQ(static_cast<const float*>(t.data)[5 * taps + taps - 1],
                  back.tensor("readout.weight")[(taps - 1) * 8 + 5]);
      }
  }
}

TEST(ReferenceConfig, PyTorchsOwnFormatIsNamedWithItsConversion) {
  const TestFolder folder;
  folder.write("config.json", to_line(released_config("ddl-cc")));
  EXPECT_FALSE(contains(message_of<UserError>([&] { StoredModel{folder.path()}; }), "Python"));
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const TestFolder other;
    other.write("config.json", to_line(released_config("ddl-cc")));
    other.write(name, "PK");
    const std::string message = message_of<UserError>([&] { StoredModel{other.path()}; });
    for (const char* part : {"pytorch_model.bin", "no model.safetensors", "two lines of Python",
                             "import glob, torch", "torch.load", "save_file"})
      EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
  }
}

}  // namespace
}  // namespace ddl
