#include "core/options.h"

#include <gtest/gtest.h>

#include "test_folder.h"

namespace ddl {
namespace {

enum class Gate { kLinear, kTwoLayer };
constexpr auto names_of(Gate) { return std::array{"linear", "two-layer"}; }

struct Sample {
  Index layers = 12;
  double lr = 1e-3;
  bool mup = false;
  std::string residual = "ddl-cc";
  Gate gate = Gate::kLinear;
  Options options;
  Sample() {
    options.add("model.layers", layers, "Transformer blocks").range(1, 1000);
    options.add("model.residual", residual, "residual rule").choices({"baseline", "ddl-cc", "ddl-tc"});
    options.add("model.gate", gate, "gate branch");
    options.add("model.mup", mup, "width scaling");
    options.add("train.lr", lr, "peak learning rate").range(0, 10);
  }
  std::string error(const std::string& toml) {
    try {
      options.load_text(toml, "run.toml");
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
};

TEST(Options, LoadsEveryType) {
  Sample s;
  s.options.load_text("[model]\nlayers = 3\nresidual = \"baseline\"\nmup = true\n[train]\nlr = 1\n",
                      "run.toml");
  EXPECT_EQ(s.layers, 3);
  EXPECT_EQ(s.residual, "baseline");
  EXPECT_TRUE(s.mup);
  EXPECT_EQ(s.lr, 1.0);
}

TEST(Options, UnknownKeyNamesLineAndNearestKey) {
  EXPECT_EQ(Sample().error("[model]\nlayer = 3\n"),
            "run.toml:2: unknown option 'model.layer'; did you mean 'model.layers'?");
}

TEST(Options, WrongTypeSaysExpectedAndFound) {
  const std::string error = Sample().error("model.layers = \"six\"");
  EXPECT_EQ(
      error.rfind("run.toml:1: model.layers expects a whole number from 1 to 1000, found the string", 0), 0u);
  EXPECT_NE(error.find("six"), std::string::npos);
  EXPECT_NE(Sample().error("model.layers = 2.5").find("found the floating-point 2.5"), std::string::npos);
  EXPECT_NE(Sample().error("model.mup = 1").find("expects true or false"), std::string::npos);
  EXPECT_NE(Sample().error("model.layers = [1]").find("found an array"), std::string::npos);
}

TEST(Options, RangeAndChoices) {
  EXPECT_NE(
      Sample().error("model.layers = 0").find("model.layers is 0, expected a whole number from 1 to 1000"),
      std::string::npos);
  EXPECT_NE(Sample().error("model.residual = \"ddl-c\"").find("nearest: ddl-cc"), std::string::npos);
  EXPECT_EQ(Sample().error("model.residual = \"foo\"").find("nearest"), std::string::npos) << "far-fetched";
  EXPECT_NE(Sample().error("train.lr = nan").find("expected a number from 0 to 10"), std::string::npos);
}

TEST(Options, BadTomlNamesTheLine) {
  EXPECT_EQ(Sample().error("a = 1\nb = = 2").rfind("run.toml:2: not valid TOML", 0), 0u);
}

TEST(Options, AFailedLoadChangesNothing) {
  Sample s;
  s.layers = 7;
  EXPECT_NE(s.error("model.layers = 5\nmodel.nope = 1"), "");
  EXPECT_EQ(s.layers, 7);
}

TEST(Options, SetTakesBareStrings) {
  Sample s;
  s.options.set("model.residual=baseline");
  s.options.set("train.lr=0.5");
  EXPECT_EQ(s.residual, "baseline");
  EXPECT_EQ(s.lr, 0.5);
  EXPECT_THROW(s.options.set("train.lr"), UserError);
  EXPECT_THROW(s.options.set("train.lr=fast"), UserError);
}

TEST(Options, JsonIsCheckedLikeToml) {
  Sample a, b;
  a.layers = 3, a.lr = 0.1 + 0.2, a.residual = "ddl-tc";
  b.options.load_json(a.options.to_json(), "config.json");
  EXPECT_EQ(a.options.to_json(), b.options.to_json());
  const auto error = [](const char* text) {
    Sample s;
    std::string message;
    try {
      s.options.load_json(parse_json(text), "config.json");
    } catch (const UserError& e) {
      message = e.what();
    }
    EXPECT_EQ(s.options.to_json(), Sample().options.to_json()) << "a failed load changes nothing";
    return message;
  };
  EXPECT_EQ(error(R"({"model":{"layers":5,"layer":3}})"),
            "config.json: unknown option 'model.layer'; did you mean 'model.layers'?");
  EXPECT_EQ(error(R"({"model":{"layers":2.0}})"),
            "config.json: model.layers expects a whole number from 1 to 1000, found 2.0");
  EXPECT_NE(error(R"({"model":{"layers":0}})").find("model.layers is 0"), std::string::npos);
  EXPECT_NE(error(R"({"model":{"residual":["ddl-cc"]}})").find("found [\"ddl-cc\"]"), std::string::npos);
  EXPECT_NE(error(R"({"model":3})"), "");
  a.lr = 11;
  EXPECT_THROW(a.options.check("here"), UserError);
}

TEST(Options, AnEnumIsReadAndWrittenByItsNames) {
  Sample s;
  EXPECT_NE(s.options.to_toml().find("model.gate = 'linear'\n"), std::string::npos) << s.options.to_toml();
  s.options.load_text("model.gate = \"two-layer\"", "run.toml");
  EXPECT_EQ(s.gate, Gate::kTwoLayer);
  EXPECT_EQ(s.options.to_json()["model"]["gate"], "two-layer");
  s.options.set("model.gate=linear");
  EXPECT_EQ(s.gate, Gate::kLinear);
  s.options.load_json(parse_json(R"({"model":{"gate":"two-layer"}})"), "config.json");
  EXPECT_EQ(s.gate, Gate::kTwoLayer);

  const std::string unknown = " is \"two-layers\", expected one of linear, two-layer (nearest: two-layer)";
  EXPECT_EQ(s.error("model.layers = 5\nmodel.gate = \"two-layers\""), "run.toml:2: model.gate" + unknown);
  EXPECT_EQ(message_of<UserError>([&] {
              s.options.load_json(parse_json(R"({"model":{"gate":"two-layers"}})"), "config.json");
            }),
            "config.json: model.gate" + unknown);
  EXPECT_EQ(s.error("model.gate = 1"),
            "run.toml:1: model.gate expects one of linear, two-layer, found the integer 1");
  EXPECT_EQ(s.layers, 12);
  EXPECT_EQ(s.gate, Gate::kTwoLayer) << "a failed load changes nothing";
}

TEST(Options, ResolvedTomlRestoresEveryValueExactly) {
  Sample a;
  a.lr = 0.1 + 0.2;
  a.residual = "ddl-tc";
  Sample b;
  b.options.load_text(a.options.to_toml(), "stored");
  EXPECT_EQ(a.lr, b.lr);
  EXPECT_EQ(a.options.to_json(), b.options.to_json());
  EXPECT_EQ(a.options.to_json()["model"]["residual"], "ddl-tc");
}

}  // namespace
}  // namespace ddl
