// The built-in rules, and those of their options that other files read, too.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/option_set.h"
#include "model/residual/fused_rule.h"
#include "ref/paper_rule.h"

namespace ddl {

enum class Compressor { kSublayer, kBlock };
constexpr auto names_of(Compressor) { return std::array{"sublayer", "block"}; }
enum class CompressorStart { kAverage, kNormal };
constexpr auto names_of(CompressorStart) { return std::array{"average", "normal"}; }
enum class ChannelCompressor { kWeights, kConvolution };
constexpr auto names_of(ChannelCompressor) { return std::array{"weights", "convolution"}; }
enum class GateBranch { kLinear, kTwoLayer };
constexpr auto names_of(GateBranch) { return std::array{"linear", "two-layer"}; }
enum class ValueBranch { kSigmoid, kBiased, kLinear };
constexpr auto names_of(ValueBranch) { return std::array{"sigmoid", "biased", "linear"}; }
enum class ValueBiasStart { kConstant, kUniform };
constexpr auto names_of(ValueBiasStart) { return std::array{"constant", "uniform"}; }

// Options of rules that write along k with a gate and a target. Which of them a rule lists depends on how it
// makes and reads its state.
struct DeltaOptions final : OptionSetOf<DeltaOptions> {
  static constexpr float kValueScale = 4;  // of the sigmoid value branch

  Index channels = 4;      // D, the paper's d_v
  Index state_kernel = 4;  // taps of the token compressor
  Index embed_kernel = 4;  // taps of the embedding convolution
  Compressor compressor = Compressor::kSublayer;
  CompressorStart compressor_start = CompressorStart::kAverage;
  ChannelCompressor channel_compressor = ChannelCompressor::kWeights;
  Index channel_kernel = 0;  // taps of its convolution; 0: as many as channels
  GateBranch gate = GateBranch::kLinear;
  Index gate_hidden = 128;
  double beta_init = 1.0;
  ValueBranch value = ValueBranch::kSigmoid;
  ValueBiasStart value_bias_start = ValueBiasStart::kConstant;
  double k_eps = 1e-5;
  bool store_state = false;

  DeltaOptions(Expand expand, Read read) : expand_(expand), read_(read) {}
  void describe(Options& options) override;

  // Taps of the channel compressor's convolution; 0 where it has one weight per feature and channel.
  Index channel_taps() const {
    if (channel_compressor == ChannelCompressor::kWeights) return 0;
    return channel_kernel > 0 ? channel_kernel : channels;
  }

  // The parts of a FusedSpec that these options decide.
  FusedSpec stream() const;
  BranchSpec gate_branch(const std::string& name, const ModelConfig& config) const;
  BranchSpec value_branch(Index channels_written, const ModelConfig& config) const;
  ref::PaperChoices oracle_choices(ref::Write write) const;

 private:
  Expand expand_;
  Read read_;
};

// Of hc and hc-static.
struct HyperOptions final : OptionSetOf<HyperOptions> {
  Index channels = 4;
  void describe(Options& options) override;
};

// Of attnres-block.
struct DepthBlockOptions final : OptionSetOf<DepthBlockOptions> {
  Index block_size = 2;
  void describe(Options& options) override;
};

// The options of an expanded state and of the embedding convolution, for rules that have them.
void describe_expanded_state(Options& options, Index& channels, Compressor& compressor);
void describe_embedding_convolution(Options& options, Index& taps);

std::vector<RuleEntry> delta_rules();                // baseline, ddl-*, wo-*
std::vector<RuleEntry> erase_write_rules();          // ddl-ew-*
std::vector<RuleEntry> norm_write_rules();           // norm-write
std::vector<RuleEntry> additive_expanded_rules();    // ihc
std::vector<RuleEntry> decay_rules();                // decay-x0
std::vector<RuleEntry> highway_rules();              // highway
std::vector<RuleEntry> depth_attention_rules();      // attnres, attnres-block
std::vector<RuleEntry> hyper_connection_rules();     // hc, hc-static
std::vector<RuleEntry> manifold_connection_rules();  // mhc

}  // namespace ddl
