#include "cli/describe_model.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "infer/model_folder.h"
#include "model/config_json.h"
#include "model/plan.h"
#include "small_run.h"

namespace ddl {
namespace {

class Describe : public ::testing::Test {
 protected:
  Describe() : data_(make_data(folder_)) {
    run(small_request(data_, folder_ / "run",
                      {"train.steps=4", "checkpoint.every_steps=2", "model.compressor=block"}));
  }
  static bool has_line(const Json& d, const std::string& start) {
    return contains("\n" + model_screen(d), "\n" + start);
  }
  TestFolder folder_;
  std::string data_;
};

TEST_F(Describe, ARun) {
  const Json d = describe_model(folder_ / "run");
  EXPECT_EQ(d["kind"], "run");
  EXPECT_EQ(d["weights"], folder_ / "run/checkpoints/step-00000004");
  EXPECT_EQ(d["config"]["residual"], "ddl-cc");
  const ModelConfig config =
      parse_model_config(contents_of(folder_ / "run/checkpoints/step-00000004/config.json"), "c");
  EXPECT_EQ(d["parameters"], plan_model(config, {1, 48}).table.parameter_count());
  Index parts = 0;
  for (const auto& [name, count] : d["parameters_by_part"].items()) parts += count.get<Index>();
  EXPECT_EQ(d["parameters"], parts);
  const Json last = records(folder_ / "run", "step").back(),
             validation = records(folder_ / "run", "validation").back();
  EXPECT_EQ(d["training"]["step"], 4);
  EXPECT_EQ(d["training"]["steps"], 4);
  EXPECT_EQ(d["training"]["flops"], last["flops"]);
  EXPECT_EQ(d["training"]["last_validation"]["loss"], validation["loss"]);
  EXPECT_EQ(d["training"]["last_validation"]["exact_answers"], validation["exact_answers"]);
  EXPECT_EQ(d["data"]["folder"], data_);
  EXPECT_EQ(d["data"]["present"], true);
  EXPECT_EQ(d["checkpoints"], (Json{2, 4}));
  EXPECT_EQ(d["next"]["continue"],
            fmt::format("./ddl train --resume --out {}/run --set train.steps=8", folder_.path()));
  for (const char* label : {"model ", "parameters ", "training     step 4 of 4", "loss ", "answers ", "data ",
                            "generate     ./ddl generate", "export       ./ddl export"})
    EXPECT_TRUE(has_line(d, label)) << label << " is not in\n" << model_screen(d);
  EXPECT_LE(std::ranges::count(model_screen(d), '\n'), 24) << "one screen";
}

TEST_F(Describe, ARunWithoutACheckpointAndWithoutItsData) {
  std::filesystem::remove_all(folder_ / "run/checkpoints");
  std::filesystem::remove_all(data_);
  const Json d = describe_model(folder_ / "run");
  EXPECT_TRUE(d["weights"].is_null());
  EXPECT_EQ(d["training"]["step"], 4) << "from the records";
  EXPECT_EQ(d["data"]["present"], false);
  EXPECT_FALSE(d["next"].contains("generate"));
  EXPECT_TRUE(contains(model_screen(d), "no checkpoint yet"));
  EXPECT_TRUE(contains(model_screen(d), "not there now"));
}

TEST_F(Describe, ACheckpointIsOfItsOwnStep) {
  const Json d = describe_model(folder_ / "run/checkpoints/step-00000002");
  EXPECT_EQ(d["kind"], "checkpoint");
  EXPECT_EQ(d["training"]["step"], 2);
  EXPECT_EQ(d["training"]["last_validation"]["loss"], records(folder_ / "run", "validation")[0]["loss"]);
  EXPECT_EQ(d["next"]["continue"], fmt::format("./ddl train --resume --out {}/run", folder_.path()));
}

TEST_F(Describe, ExportedFolders) {
  for (const Layout layout : {Layout::kOwn, Layout::kReference}) {
    const bool own = layout == Layout::kOwn;
    const std::string out = folder_ / (own ? "own model" : "released");
    export_model(folder_ / "run", layout, out, kOneThread);
    const Json d = describe_model(out);
    EXPECT_EQ(d["kind"], "model");
    EXPECT_EQ(d["layout"], own ? "own" : "reference");
    EXPECT_EQ(d["config"]["residual"], "ddl-cc");
    EXPECT_EQ(d["tokenizer"], "bytes");
    EXPECT_FALSE(d.contains("training"));
    EXPECT_EQ(d["next"].contains("import"), !own);
    EXPECT_TRUE(contains(d["next"]["continue"].get<std::string>(), "--from"));
    EXPECT_EQ(contains(d["next"]["generate"].get<std::string>(), "own model'"), own) << "quoted";
    EXPECT_EQ(contains(model_screen(d), "released layout"), !own);
  }
}

TEST_F(Describe, WhatIsNone) {
  EXPECT_TRUE(contains(message_of<UserError>([&] { describe_model(folder_ / "no"); }), "no such folder"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { describe_model(data_); }), "expected a run"));
}

}  // namespace
}  // namespace ddl
