// Runs as JSON for the page.
#include <gtest/gtest.h>

#include <fstream>

#include "serve/metrics_file.h"
#include "serve/serve_testing.h"

namespace ddl {
namespace {

std::string step_record(Index step, double loss) {
  return fmt::format(R"({{"v":1,"event":"step","step":{},"loss":{},"tokens":{},"flops":1,"elapsed_s":{}}})"
                     "\n",
                     step, loss, 10 * step, 0.5 * static_cast<double>(step));
}
const char* const kStart =
    R"({"v":1,"event":"start","step":0,"config":{"model":{"residual":"ddl-cc"},"train":{"steps":100,"seed":4,"lr":0.1}}})"
    "\n";

class RunsTest : public ServerTest {
 protected:
  RunsTest() { options_.watch = {folder_ / "runs"}; }
  void append(const std::string& run, const std::string& text) {
    std::filesystem::create_directories(folder_ / "runs/" + run);
    std::ofstream(folder_ / "runs/" + run + "/metrics.jsonl", std::ios::app) << text;
  }
};

TEST_F(RunsTest, ListsWhatIsThereAndWhatComes) {
  append("a", kStart + step_record(1, 5));
  append("deep/b", kStart + step_record(1, 5) +
                       R"({"v":1,"event":"done","step":100})"
                       "\n");
  start_without_model();
  Json runs = get("/api/runs").json()["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["name"], "a");
  EXPECT_EQ(runs[0]["status"], "unfinished: step 1 of 100");
  EXPECT_EQ(runs[0]["residual"], "ddl-cc");
  EXPECT_EQ(runs[0]["seed"], 4);
  EXPECT_EQ(runs[0]["loss"], 5.0);
  EXPECT_TRUE(runs[0]["validation_loss"].is_null());
  EXPECT_LT(runs[0]["updated_s_ago"].get<double>(), 60);
  EXPECT_EQ(runs[1]["name"], "deep/b");
  EXPECT_EQ(runs[1]["done"], true);
  EXPECT_EQ(get("/api/runs/deep/b").json()["status"], "done");
  EXPECT_EQ(get("/api/runs/deep%2Fb").json()["status"], "done");
  append("c", kStart);
  EXPECT_TRUE(soon([&] { return get("/api/runs").json()["runs"].size() == 3; }));
}

TEST_F(RunsTest, AFolderWithoutRunsIsAnEmptyList) {
  std::filesystem::create_directories(folder_ / "runs");
  start_without_model();
  EXPECT_EQ(get("/api/runs").json(), Json({{"runs", Json::array()}}));
  EXPECT_EQ(get("/api/reports").status, 404);
}

TEST_F(RunsTest, CurvesAreThinnedAndGrow) {
  std::string text = kStart;
  for (Index step = 1; step <= 100; ++step) text += step_record(step, static_cast<double>(step % 10));
  append("a", text +
                  R"({"v":1,"event":"validation","step":50,"loss":2.5,"tokens":500,"flops":1,"elapsed_s":25})"
                  "\n" +
                  R"({"v":1,"event":"gates","step":60,"sublayers":[{"sublayer":0}]})"
                  "\n");
  start_without_model();
  Json run = get("/api/runs/a?points=10").json();
  EXPECT_EQ(run["config"]["train"]["steps"], 100);
  EXPECT_EQ(run["training"]["step"], Json({10, 20, 30, 40, 50, 60, 70, 80, 90, 100}));
  EXPECT_EQ(run["training"]["tokens"][9], 1000.0);
  EXPECT_EQ(run["training"]["loss"]["mean"][0], 4.5);
  EXPECT_EQ(run["training"]["loss"]["min"][0], 0.0);
  EXPECT_EQ(run["training"]["loss"]["max"][0], 9.0);
  EXPECT_EQ(run["validation"]["loss"]["mean"], Json({2.5}));
  EXPECT_EQ(run["gates"], Json::array({{{"step", 60}, {"sublayers", {{{"sublayer", 0}}}}}}));
  append("a", step_record(101, 7) + R"({"v":1,"event":"st)");
  run = get("/api/runs/a?after=100").json();
  EXPECT_EQ(run["training"]["step"], Json({101}));
  EXPECT_EQ(run["training"]["loss"]["mean"], Json({7.0}));
  EXPECT_FALSE(run["training"]["loss"].contains("min"));
  EXPECT_FALSE(run.contains("config"));
  EXPECT_EQ(run["gates"], Json::array());
  append("a", R"(ep","step":102,"loss":8,"tokens":1,"flops":1,"elapsed_s":1})"
              "\n");
  EXPECT_EQ(get("/api/runs/a?after=101").json()["training"]["step"], Json({102}))
      << "the line was cut in the middle";
  EXPECT_EQ(run["restarts"], 0);
  // Another run in the same place.
  std::ofstream(folder_ / "runs/a/metrics.jsonl") << kStart << step_record(1, 1);
  run = get("/api/runs/a").json();
  EXPECT_EQ(run["restarts"], 1);
  EXPECT_EQ(run["training"]["step"], Json({1}));
}

TEST_F(RunsTest, AResumedRunReplacesItsSteps) {
  append("a", kStart + step_record(1, 1) + step_record(2, 2) + step_record(3, 3) + step_record(2, 20) +
                  "damaged\n{}\n[]\n");
  start_without_model();
  const Json run = get("/api/runs/a").json();
  EXPECT_EQ(run["training"]["step"], Json({1, 2}));
  EXPECT_EQ(run["training"]["loss"]["mean"], Json({1.0, 20.0}));
}

TEST_F(RunsTest, NamesAndParametersAreChecked) {
  append("a", kStart + step_record(1, 5));
  folder_.write("secret/metrics.jsonl", kStart);
  start_without_model();
  for (const char* name : {"b", "../secret", "%2e%2e/secret", "a/../a", "/a", "", "a/metrics.jsonl", "a%00"})
    EXPECT_EQ(get(std::string("/api/runs/") + name).status, 404) << name;
  for (const char* bad :
       {"points=0", "points=20001", "points=x", "points=5x", "points=", "after=-2", "after=1e9"})
    EXPECT_EQ(get(std::string("/api/runs/a?") + bad).status, 400) << bad;
  EXPECT_EQ(get("/api/runs/a?points=x").error("param"), "points");
  EXPECT_EQ(get("/api/reports?run=none").status, 404);
}

TEST_F(RunsTest, ReportsAreThoseOfTheReportCommand) {
  append("a", kStart + step_record(1, 5) + step_record(2, 4));
  append("b", kStart + step_record(1, 5) + step_record(2, 4));
  start_without_model();
  const Json document = get("/api/reports?run=a&run=b").json();
  EXPECT_TRUE(document["title"].is_string());
  EXPECT_TRUE(document["sections"].is_array());
  const Reply page = get("/report?run=a");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-security-policy"), "frame-ancestors 'none'");
  EXPECT_TRUE(contains(page.body, "sha256-"));
}

TEST_F(RunsTest, ThePageIsFilesOfTheProgram) {
  std::filesystem::create_directories(folder_ / "runs");
  start_without_model();
  const Reply page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(get("/index.html").body, page.body);
  EXPECT_EQ(get("/style.css").headers.at("content-type"), "text/css; charset=utf-8");
}

}  // namespace
}  // namespace ddl
