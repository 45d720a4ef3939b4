// Options of residual rules: each rule has its own, keeps those it shares with the rule before, and refuses
// those of others.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "model/config_json.h"
#include "model/oracle_model.h"
#include "model/residual/registry.h"
#include "model/residual/rules.h"
#include "test_folder.h"

namespace ddl {
namespace {

const std::vector<std::string> kShippedRules = rule_names();  // before a test registers another

ModelConfig with_rule(const std::string& rule) {
  ModelConfig m;
  m.use_residual(rule);
  return m;
}

// The keys of the rule's own options.
std::set<std::string> own_keys(ModelConfig m) {
  ModelConfig plain = with_rule("baseline");
  Options all, common;
  m.describe(all), plain.describe(common);
  std::set<std::string> keys;
  for (const Options::Option& option : all.list())
    if (!common.contains(option.key())) keys.insert(option.key().substr(std::string("model.").size()));
  return keys;
}

TEST(RuleOptions, EachRuleHasItsOwn) {
  using Keys = std::set<std::string>;
  const Keys rewrite{"gate", "gate_hidden", "beta_init", "value", "value_bias_start", "k_eps", "store_state"};
  const Keys expanded{"channels", "compressor", "compressor_start"},
      mix{"channel_compressor", "channel_kernel"};
  const auto and_also = [&](Keys more, const Keys& others = {}) {
    for (const Keys& keys : {rewrite, expanded, others}) more.insert(keys.begin(), keys.end());
    return more;
  };
  std::map<std::string, Keys> expected = {{"baseline", {}},
                                          {"ddl-cc-noec", and_also({}, mix)},
                                          {"ddl-tc-noec", and_also({"state_kernel"})},
                                          {"ddl-ew-dv1", rewrite},
                                          {"ddl-ew-cc", and_also({"embed_kernel"}, mix)},
                                          {"norm-write", {"write_init"}},
                                          {"ihc", {"channels", "compressor", "embed_kernel"}},
                                          {"decay-x0", {}},
                                          {"highway", {"gate_bias"}},
                                          {"attnres", {}},
                                          {"attnres-block", {"block_size"}},
                                          {"hc", {"channels"}},
                                          {"hc-static", {"channels"}},
                                          {"mhc", {}}};
  for (const std::string update : {"ddl-", "wo-"}) {
    expected[update + "dv1"] = rewrite;
    expected[update + "cc"] = and_also({"embed_kernel"}, mix);
    expected[update + "tc"] = and_also({"embed_kernel", "state_kernel"});
  }
  for (const std::string& rule : kShippedRules) {
    ASSERT_TRUE(expected.contains(rule)) << "add a row with the options of " << rule;
    EXPECT_EQ(own_keys(with_rule(rule)), expected[rule]) << rule;
  }
}

// Headings of docs/rules.md: "## ddl-ew-dv1, ddl-ew-cc: ..." and "## wo-*: ...".
TEST(RulesPage, HasAScreenForEveryRule) {
  std::istringstream page(contents_of(DDL_SOURCE_DIR "/docs/rules.md"));
  std::set<std::string> exact, families;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("## ")) continue;
    std::istringstream names(line.substr(3, line.find(':') - 3));
    for (std::string name; std::getline(names >> std::ws, name, ',');)
      if (name.ends_with('*'))
        families.insert(name.substr(0, name.size() - 1));
      else
        exact.insert(name);
  }
  for (const std::string& rule : kShippedRules)
    EXPECT_TRUE(exact.contains(rule) || families.contains(rule.substr(0, rule.find('-') + 1))) << rule;
}

TEST(RuleOptions, ThoseOfOthersAreRefusedWithTheListOfOnesOwn) {
  const auto refusal = [](const std::string& rule, const std::string& assignment) {
    ModelConfig m = with_rule(rule);
    return message_of<UserError>([&] { m.set(assignment); });
  };
  const std::string none = refusal("baseline", "model.channels=2");
  EXPECT_TRUE(contains(none, "model.channels")) << none;
  EXPECT_TRUE(contains(none, "baseline has no options of its own")) << none;
  EXPECT_TRUE(contains(none, "ddl-cc") && contains(none, "wo-tc")) << "whose it is: " << none;

  const std::string one_channel = refusal("ddl-dv1", "model.compressor=block");
  EXPECT_TRUE(contains(one_channel, "ddl-dv1 has model.gate, model.gate_hidden")) << one_channel;
  const std::string channel_mix = refusal("ddl-cc", "model.state_kernel=2");
  EXPECT_TRUE(contains(channel_mix, "ddl-cc has model.channels, ")) << channel_mix;
  EXPECT_TRUE(contains(channel_mix, "model.residual = ddl-tc-noec or ddl-tc or wo-tc")) << channel_mix;

  // A name that no rule has is another matter.
  EXPECT_TRUE(contains(refusal("ddl-cc", "model.chanels=2"), "model.channels")) << "the nearest";
  EXPECT_TRUE(contains(refusal("ddl-cc", "model.channels=0"), "1 to 16"));
  for (const char* rule : {"hc", "hc-static"}) {
    for (const char* count : {"1", "9"})
      EXPECT_TRUE(contains(refusal(rule, std::string("model.channels=") + count), "2 to 8")) << rule << count;
    const std::string gate = refusal(rule, "model.gate=linear");
    EXPECT_TRUE(contains(gate, rule + std::string(" has model.channels"))) << gate;
  }
  const std::string four = refusal("mhc", "model.channels=4");
  EXPECT_TRUE(contains(four, "mhc has no options of its own")) << four;
}

// Every rule with every option of every other.
TEST(RuleOptions, EveryRuleRefusesWhatItHasNotWithItsOwnList) {
  std::set<std::string> all;
  for (const std::string& rule : rule_names()) {
    const auto own = own_keys(with_rule(rule));
    all.insert(own.begin(), own.end());
  }
  EXPECT_TRUE(all.contains("block_size") && all.contains("write_init") && all.contains("gate_bias"));
  for (const std::string& rule : rule_names()) {
    const auto own = own_keys(with_rule(rule));
    for (const std::string& key : all) {
      ModelConfig m = with_rule(rule);
      if (own.contains(key)) continue;
      const std::string refusal = message_of<UserError>([&] { m.set("model." + key + "=1"); });
      EXPECT_TRUE(contains(refusal, "model." + key)) << rule << ": " << refusal;
      EXPECT_TRUE(contains(refusal, rule + (own.empty() ? " has no options of its own" : " has model.")))
          << refusal;
      for (const std::string& mine : own) EXPECT_TRUE(contains(refusal, "model." + mine)) << refusal;
    }
    if (!own.contains("channels")) continue;
    ModelConfig m = with_rule(rule);
    for (const char* count : {"0", "17"}) {
      const std::string refusal =
          message_of<UserError>([&] { m.set(std::string("model.channels=") + count); });
      EXPECT_TRUE(contains(refusal, "model.channels") && contains(refusal, " to "))
          << rule << ": " << refusal;
    }
  }
}

TEST(RuleOptions, ThoseThatBothHaveSurviveAChangeOfRule) {
  ModelConfig m = with_rule("ddl-cc");
  m.set("model.channels=2"), m.set("model.gate=two-layer"), m.set("model.k_eps=0.001");
  m.use_residual("wo-cc");
  EXPECT_EQ(m.residual(), "wo-cc");
  EXPECT_EQ(m.rule<DeltaOptions>().channels, 2);
  EXPECT_EQ(m.rule<DeltaOptions>().gate, GateBranch::kTwoLayer);
  EXPECT_EQ(m.rule<DeltaOptions>().k_eps, 0.001);
  m.set("model.residual=ddl-dv1");  // the same by key
  EXPECT_EQ(m.rule<DeltaOptions>().gate, GateBranch::kTwoLayer);
  m.use_residual("ddl-cc");
  EXPECT_EQ(m.rule<DeltaOptions>().gate, GateBranch::kTwoLayer);
  EXPECT_EQ(m.rule<DeltaOptions>().channels, 4) << "forgotten by ddl-dv1, which has none";
}

// Values to try, valid ones and others.
std::vector<std::string> values_around(const Options::Option& option) {
  std::vector<std::string> candidates = {"true", "false"};
  const std::string expected = option.expected(), choices = "one of ";
  if (expected.starts_with(choices)) {
    std::istringstream names(expected.substr(choices.size()));
    for (std::string name; std::getline(names >> std::ws, name, ',');) candidates.push_back(name);
  }
  for (const double more : {1.0, -1.0, 0.25, -0.25})
    candidates.push_back(fmt::format("{}", std::strtod(option.value().c_str(), nullptr) + more));
  return candidates;
}

// The same tensors, and the same loss with the same numbers in them: then another value only moves where
// weights start, or how they are computed. Both ways, so that no list elsewhere has to know which options
// these are.
TEST(RuleOptions, SayWhatAnotherValueChanges) {
  using Changes = Options::Changes;
  const BatchShape shape{1, 6};
  const auto x = tokens(shape.N(), 1), y = tokens(shape.N(), 2);
  const auto loss = [&](const ModelConfig& m) {
    const auto model = trainable(m, shape);
    scramble(*model);
    return model->loss({x.data(), y.data()}, {}, Exec{});
  };
  const auto tensors = [](const ModelConfig& m) {
    std::vector<std::pair<std::string, std::vector<Index>>> all;
    const auto table = param_table(m);
    for (const Param& p : table.list()) all.emplace_back(p.name, p.shape);
    return all;
  };
  std::set<std::string> start, computing;
  for (const std::string& rule : kShippedRules) {
    // So that every option is at work
    ModelConfig m = model_config({.residual = rule, .gate = "two-layer", .mup = true});
    set_if_known(m, "model.channel_compressor", "convolution");
    const double before = loss(m);
    Options options;
    m.describe(options);
    for (const Options::Option& option : options.list()) {
      // Context: how far to look
      if (option.key() == "model.residual" || option.key() == "model.context") continue;
      if (option.changes() == Changes::kStart) start.insert(option.key());
      if (option.changes() == Changes::kComputing) computing.insert(option.key());
      for (const std::string& value : values_around(option)) {
        ModelConfig other = m;
        try {
          other.set(option.key() + "=" + value);
          other.check();
          param_table(other);
        } catch (const UserError&) {
          continue;
        }
        Options changed;
        other.describe(changed);
        if (option_changes(options, changed).empty()) continue;
        if (other.engine == "torch") continue;  // may not be here
        const std::string what = rule + " " + option.key() + " = " + value;
        const bool same = tensors(other) == tensors(m) && loss(other) == before;
        switch (option.changes()) {
          case Changes::kStart:
            EXPECT_TRUE(same) << what;
            break;
          case Changes::kAnything:
            EXPECT_FALSE(same) << what << " only moves where weights start";
            break;
          case Changes::kComputing:
            EXPECT_EQ(tensors(other), tensors(m)) << what;
            break;
        }
      }
    }
  }
  // Of these the loss may differ in its last bits, which is no test: so they are named.
  const std::set<std::string> may_round = {"model.engine", "model.precision", "model.recompute",
                                           "model.store_state"};
  EXPECT_EQ(computing, may_round);
  EXPECT_TRUE(start.contains("model.write_init") && start.contains("model.gate_bias"));
}

TEST(RuleOptions, AnUnknownRuleChangesNothing) {
  ModelConfig m = with_rule("ddl-cc");
  m.set("model.channels=2");
  EXPECT_TRUE(contains(message_of<UserError>([&] { m.use_residual("ddl-ccc"); }), "nearest: ddl-cc"));
  EXPECT_FALSE(contains(message_of<UserError>([&] { m.use_residual("foo"); }), "nearest")) << "far-fetched";
  EXPECT_EQ(m.residual(), "ddl-cc");
  EXPECT_EQ(m.rule<DeltaOptions>().channels, 2);
}

TEST(RuleOptions, CopiesAreIndependent) {
  ModelConfig a = with_rule("ddl-cc"), b = a;
  b.rule<DeltaOptions>().channels = 7;
  EXPECT_EQ(a.rule<DeltaOptions>().channels, 4);
}

// config.json as version 0.1 wrote it: the options of all rules with every model.
TEST(RuleOptions, AnOlderConfigurationWithAllOptionsStillLoads) {
  const std::string text =
      R"({"model_type": "deep-delta", "ddl": {"layers": 2, "width": 16, "heads": 2, "mlp": 0,
      "vocab": 11, "context": 16, "residual": "RULE", "channels": 2, "state_kernel": 3, "embed_kernel": 3,
      "compressor": "block", "gate": "two-layer", "gate_hidden": 5, "beta_init": 0.5, "value": "biased",
      "k_eps": 1e-05, "mup": true, "base_width": 8, "embedding_std": 0.02, "hidden_std_factor": 0.5,
      "precision": "f32", "recompute": "none"}})";
  const auto parse = [&](const std::string& rule) {
    std::string own = text;
    return parse_model_config(own.replace(own.find("RULE"), 4, rule), "config.json");
  };
  const ModelConfig plain = parse("baseline");
  EXPECT_EQ(plain.residual(), "baseline");
  EXPECT_EQ(plain.width, 16);
  EXPECT_TRUE(plain.mup);
  const ModelConfig delta = parse("ddl-cc");
  EXPECT_EQ(delta.rule<DeltaOptions>().channels, 2);
  EXPECT_EQ(delta.rule<DeltaOptions>().compressor, Compressor::kBlock);
  EXPECT_EQ(delta.rule<DeltaOptions>().beta_init, 0.5);
  EXPECT_EQ(delta.rule<DeltaOptions>().value, ValueBranch::kBiased);
  EXPECT_EQ(delta.rule<DeltaOptions>().state_kernel, 4) << "not one of ddl-cc's";

  // What no rule ever had is still an error.
  std::string misspelt = text;
  misspelt.replace(misspelt.find("RULE"), 4, "baseline").replace(misspelt.find("channels"), 8, "chanels");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { parse_model_config(misspelt, "config.json"); }), "chanels"));
}

TEST(RuleOptions, AConfigurationListsTheRulesOwnAndReadsBack) {
  for (const std::string& rule : rule_names()) {
    const ModelConfig m = with_rule(rule);
    const Json json = model_config_json(m);
    const std::set<std::string> own = own_keys(m);
    for (const char* key : {"channels", "compressor", "state_kernel", "embed_kernel", "gate", "store_state"})
      EXPECT_EQ(json["ddl"].contains(key), own.count(key) == 1) << rule << " " << key;
    EXPECT_EQ(model_config_json(parse_model_config(to_line(json), "again")), json) << rule;
  }
}

}  // namespace
}  // namespace ddl
