// config.json of the paper's released code, key by key. A key is honoured, or accepted with the one value
// that this project has, or known to change nothing, or the model is refused: what is left out in silence
// would give other logits than the released code does.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/residual_pass.h"
#include "model/config_json.h"
#include "model/reference_layout.h"
#include "model/residual/channel_conv.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

// Of the delta rules, and of queries and keys, whatever rms_norm_eps says
constexpr double kReleasedNormEps = 1e-5;

// Read below.
const std::set<std::string_view> kHonoured = {
    "model_type",
    // sizes
    "vocab_size", "num_hidden_layers", "num_attention_heads", "hidden_size", "head_dim", "block_size",
    "intermediate_size", "mlp_hidden_mult",
    // arithmetic
    "rope_base", "rms_norm_eps", "mup", "parameterization", "hidden_size_base", "ddl_k_eps",
    // starting values, for training that continues with other weights
    "embedding_init_std", "hidden_init_std_factor", "ddl_beta_init",
    // what the tensors say too
    "ddl_value_channels", "ddl_state_shortconv_kernel_size", "input_embed_shortconv_kernel_size",
    "ddl_beta_single_linear", "ddl_beta_hidden_size"};

// Keys with one value that this project has.
struct OneValue {
  const char* key;
  std::vector<Json> accepted;
  const char* supported;
};
const std::vector<OneValue>& one_values() {
  static const std::vector<OneValue> all = {
      {"use_qk_rmsnorm", {true}, "true: queries and keys are normalised"},
      {"rope_ratio", {1.0}, "1: rotary positions turn all features"},
      {"q_activation", {nullptr}, "null: queries have no activation"},
      {"k_activation", {nullptr}, "null: keys have no activation"},
      {"v_activation", {nullptr}, "null: values have no activation"},
      {"bias", {false}, "false: linear layers have no bias"},
      {"dropout", {0.0}, "0: there is no dropout"},
      {"scale_attn_by_inverse_layer_idx", {false}, "false: scores are scaled by 1/sqrt(head size)"},
      {"using_groupnorm", {false}, "false: heads are not normalised"},
      {"use_output_gate", {false}, "false: attention has no output gate"},
      {"use_k_shift", {false}, "false: keys are not shifted"},
      {"use_v_shift", {false}, "false: values are not shifted"},
      {"ddl_v_sigmoid", {true}, "true: the value is 4 sigmoid(W x + b)"},
      {"ddl_v_sigmoid_scale", {DeltaOptions::kValueScale}, "4: the value is 4 sigmoid(W x + b)"},
      {"ddl_v_constant", {false}, "false: the value is computed"},
      {"ddl_v_dim1_constant", {false}, "false: the value is computed"},
      {"ddl_state_dv_shortconv_causal", {false}, "false: the channel compressor is padded on both sides"},
      {"ddl_sequence_reduction_version", {1}, "1"},
      {"residual_branch_mult", {nullptr, 1.0}, "1: sublayers' outputs are not scaled"},
      {"embedding_lr_multiplier", {1.0}, "1: the embedding has train.lr"},
      {"tie_word_embeddings", {true}, "true: the head is the embedding"},
      {"is_encoder_decoder", {false}, "false"},
      {"add_cross_attention", {false}, "false"},
      {"pruned_heads", {nullptr, Json::object()}, "none"}};
  return all;
}

// Keys that change no logit of a model whose weights are given.
const std::set<std::string_view> kHarmless = {
    // starting values only, or read only where another key is refused
    "ddl_state_read_init", "ddl_v_constant_value", "ddl_v_dim1_constant_value", "num_hidden_layers_base",
    // memory, checks and number types of the released code's own decoding
    "kv_cache_slot_size", "validate_cached_position_ids", "attention_dtype", "use_cache",
    // what transformers writes into every config.json
    "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version", "_name_or_path",
    "_commit_hash", "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
    "attn_implementation", "_nanogpt_preserved_use_cache", "is_decoder", "torchscript", "return_dict",
    "output_hidden_states", "output_attentions", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "tie_encoder_decoder", "finetuning_task", "id2label", "label2id",
    "num_labels", "tokenizer_class", "prefix", "bos_token_id", "pad_token_id", "eos_token_id", "sep_token_id",
    "decoder_start_token_id", "task_specific_params", "problem_type",
    // defaults of generation, which `ddl generate` has options for
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"};

// "ddl_" and the embedding convolution: those of the delta rules.
bool belongs_to_delta(std::string_view key) {
  return key.starts_with("ddl_") || key == "input_embed_shortconv_kernel_size";
}

class ReleasedConfig {
 public:
  ReleasedConfig(const Json& json, const std::string& source, const WeightFolder& weights)
      : json_(json), source_(source), weights_(weights) {}

  ModelConfig model() {
    check_keys();
    read_sizes();
    read_arithmetic();
    read_rule();
    check_config(c_, source_);
    return c_;
  }

 private:
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  std::string shown(const Json& value) const { return to_line(value).substr(0, 80); }

  [[noreturn]] void refuse(const std::string& key, const std::string& supported) const {
    throw UserError("{}: {} is {}; this program has {}", source_, key,
                    json_.contains(key) ? shown(json_[key]) : "missing", supported);
  }
  Index integer(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_number_integer() || json_[key].get<Index>() < 1)
      throw UserError("{}: {} is {}, expected a whole number from 1", source_, key,
                      json_.contains(key) ? shown(json_[key]) : "missing");
    return json_[key].get<Index>();
  }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_number())
      throw UserError("{}: {} is {}, expected a number", source_, key, shown(json_[key]));
    return json_[key].get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean())
      throw UserError("{}: {} is {}, expected true or false", source_, key, shown(json_[key]));
    return json_[key].get<bool>();
  }
  // What the tensors have, where the configuration does not say otherwise.
  void agree(const char* key, Index tensors) const {
    if (has(key) && integer(key) != tensors)
      throw UserError("{}: {} is {}, but the tensors have {}", source_, key, shown(json_[key]), tensors);
  }
  Index extent(const std::string& name, std::size_t dimensions, std::size_t which) const {
    const TensorInfo& t = weights_.info(name);
    if (t.shape.size() != dimensions)
      throw UserError("{}: tensor '{}' is {}, expected {} dimensions", weights_.path_of(name), name,
                      describe_tensor(t.dtype, t.shape), dimensions);
    return t.shape[which];
  }

  void check_keys() const {
    for (const auto& item : json_.items()) {
      const std::string& key = item.key();
      const Json& value = item.value();
      if (kHonoured.contains(key) || kHarmless.contains(key)) continue;
      const auto& known = one_values();
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const OneValue& k) { return k.key == key; });
      if (found == known.end())
        throw UserError(
            "{}: {} is {}, a key this program does not know. If it changes nothing the model computes, take "
            "it out; "
            "otherwise the model cannot be imported",
            source_, key, shown(value));
      if (std::find(found->accepted.begin(), found->accepted.end(), value) == found->accepted.end())
        refuse(key, found->supported);
    }
  }

  void read_sizes() {
    c_.vocab = integer("vocab_size"), c_.layers = integer("num_hidden_layers");
    c_.heads = integer("num_attention_heads"), c_.width = integer("hidden_size"),
    c_.context = integer("block_size");
    if (has("head_dim") && integer("head_dim") * c_.heads != c_.width)
      refuse("head_dim", fmt::format("heads of hidden_size / num_attention_heads features, which is {} / {}",
                                     c_.width, c_.heads));
    const std::string first = block_ + "mlp.c_fc1.weight";
    const Index mlp = weights_.contains(first) ? extent(first, 2, 0) : c_.mlp_width();
    if (mlp != c_.mlp_width()) c_.mlp = mlp;
    if (has("intermediate_size"))
      agree("intermediate_size", mlp);
    else if (has("mlp_hidden_mult")) {
      const double width = std::floor(number("mlp_hidden_mult", 0) * static_cast<double>(c_.width));
      if (width != static_cast<double>(mlp))
        refuse("mlp_hidden_mult", fmt::format("what the tensors have: an MLP of width {}", mlp));
    }
  }

  void read_arithmetic() {
    c_.rope_base = number("rope_base", c_.rope_base);
    c_.norm_eps = number("rms_norm_eps", kReleasedNormEps);
    c_.embedding_std = number("embedding_init_std", 0.02);
    c_.hidden_std_factor = number("hidden_init_std_factor", c_.hidden_std_factor);
    // Older code reads "mup", newer code "parameterization".
    c_.mup = flag("mup", false);
    if (has("parameterization")) {
      const Json& value = json_["parameterization"];
      const bool width = value == "widthmuP" || value == "widthmup", none = value == "SP" || value == "sp";
      if (!width && !none) refuse("parameterization", "widthmuP (the same as mup: true) and SP (none)");
      if (has("mup") && c_.mup != width)
        throw UserError("{}: mup is {}, but parameterization is {}", source_, shown(json_["mup"]),
                        shown(value));
      c_.mup = width;
    }
    if (has("hidden_size_base")) c_.base_width = integer("hidden_size_base");
  }

  // The tensors say which rule it is, and their shapes which sizes.
  void read_rule() {
    const std::string gate = block_ + "ddl_attn.", weight = block_ + "compress.weight",
                      conv = "input_embed.conv.weight", shortconv = block_ + "compress.shortconv.weight";
    const bool token = weights_.contains(shortconv), channel = weights_.contains(weight);
    if (!weights_.contains(gate + "v_proj.weight")) {
      for (const auto& [key, value] : json_.items())
        if (belongs_to_delta(key))
          throw UserError(
              "{}: {} is {}, but the tensors are those of the additive baseline ('{}v_proj.weight' is "
              "missing)",
              source_, key, shown(value), gate);
      c_.use_residual(kBaselineRule);
      return;
    }
    if (c_.norm_eps != kReleasedNormEps)
      refuse(
          "rms_norm_eps",
          "what the released delta rules have, norms with 1e-5 whatever it says: write that, or take it out");
    c_.use_residual((token     ? "ddl-tc"
                     : channel ? "ddl-cc"
                               : "ddl-dv1") +
                    std::string((token || channel) && !weights_.contains(conv) ? "-noec" : ""));
    auto& options = c_.rule<DeltaOptions>();
    options.compressor = Compressor::kBlock;
    options.channels = extent(gate + "v_proj.weight", 2, 0);
    if (options.channels < 1 || options.channels > kMaxChannels)
      throw UserError("{}: {} value channels; this program has 1 to {}", source_, options.channels,
                      kMaxChannels);
    if (!token && !channel && options.channels != 1)
      throw UserError("{}: {} value channels without a compressor, which this program does not have", source_,
                      options.channels);
    agree("ddl_value_channels", options.channels);
    if (weights_.contains(conv)) {
      options.embed_kernel = extent(conv, 3, 2);
      agree("input_embed_shortconv_kernel_size", options.embed_kernel);
    }
    if (token) {
      options.state_kernel = extent(shortconv, 2, 1);
      agree("ddl_state_shortconv_kernel_size", options.state_kernel);
    } else if (channel) {
      const Index taps = extent(weight, 2, 1);
      agree("ddl_state_shortconv_kernel_size", taps);
      if (!reads_one_position(taps, options.channels)) {
        options.channel_compressor = ChannelCompressor::kConvolution;
        options.channel_kernel = taps == options.channels ? 0 : taps;
      }
    }
    options.gate = weights_.contains(gate + "beta.weight") ? GateBranch::kLinear : GateBranch::kTwoLayer;
    if (has("ddl_beta_single_linear") &&
        flag("ddl_beta_single_linear", true) != (options.gate == GateBranch::kLinear))
      throw UserError("{}: ddl_beta_single_linear is {}, but the tensors are those of a {} gate", source_,
                      shown(json_["ddl_beta_single_linear"]), name_of(options.gate));
    if (options.gate == GateBranch::kTwoLayer) {
      options.gate_hidden = extent(gate + "beta_in.weight", 2, 0);
      agree("ddl_beta_hidden_size", options.gate_hidden);
    }
    options.value = ValueBranch::kSigmoid;
    options.k_eps = number("ddl_k_eps", options.k_eps);
    options.beta_init = std::clamp(number("ddl_beta_init", options.beta_init), 0.0, 2.0);
  }

  // Whether every read vector picks the one position at which the convolution is a weight per channel: so
  // this program writes models whose channel compressor has such weights.
  bool reads_one_position(Index taps, Index D) const {
    if (taps != D) return false;
    std::vector<float> read(static_cast<std::size_t>(D)), picks(read.size(), 0.0f);
    picks[static_cast<std::size_t>(channel_conv_pad(D))] = 1;
    for (const std::string& name : weights_.names()) {
      if (!name.ends_with("compress.read") && name != "readout.read") continue;
      const Index shape[] = {D};
      weights_.read(name, shape, read.data());
      if (read != picks) return false;
    }
    return true;
  }

  const Json& json_;
  const std::string& source_;
  const WeightFolder& weights_;
  const std::string block_ = "transformer.h.0.";
  ModelConfig c_;
};

}  // namespace

ModelConfig from_reference_config(std::string_view config_json, const std::string& source,
                                  const WeightFolder& weights) {
  const Json json = parse_json(config_json);
  if (!json.is_object() || !json.contains("model_type") || json["model_type"] != kReferenceModelType)
    throw UserError("{}: expected \"model_type\": \"{}\"", source, kReferenceModelType);
  return ReleasedConfig(json, source, weights).model();
}

}  // namespace ddl
