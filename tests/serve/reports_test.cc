// Reports of studies and audits below the watched folders.
#include <gtest/gtest.h>

#include "serve/report_testing.h"
#include "study/study_document.h"

namespace ddl {
namespace {

class ReportsTest : public ServerTest {
 protected:
  ReportsTest() { options_.watch = {folder_ / "runs"}; }
};

TEST_F(ReportsTest, StudiesAndAuditsAreThoseOfTheReportCommand) {
  folder_.write("runs/studies/erasing/study.toml", study_text());
  folder_.write("runs/studies/erasing/records/.keep", "");
  folder_.write("runs/studies/erasing/runs/a/study.toml", "not looked at");
  const std::string audit = small_audit();
  folder_.write("runs/mine/audit.json", audit);
  folder_.write("runs/studies/erasing/audits/first/audit.json", audit);
  start_without_model();
  EXPECT_EQ(get("/api/studies").json(), Json({{"studies", {"studies/erasing"}}}));
  EXPECT_EQ(get("/api/audits").json(), Json({{"audits", {"mine", "studies/erasing/audits/first"}}}));
  const Json study = get("/api/reports?study=studies%2Ferasing").json();
  EXPECT_EQ(study, read_study_document(folder_ / "runs/studies/erasing").json());
  EXPECT_EQ(study["title"], "A test");
  EXPECT_TRUE(contains(to_line(study), "Inside")) << "with the audits that are kept with it";
  const Json both = get("/api/reports?audit=mine&audit=studies/erasing/audits/first").json();
  EXPECT_EQ(both["sections"].size(), 3u) << "models side by side, and each";
  const Reply page = get("/report?study=studies/erasing");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(contains(page.body, "A test"));
}

TEST_F(ReportsTest, NamesAreLookedUpAndNeverPaths) {
  folder_.write("runs/s/study.toml", study_text());
  folder_.write("secret/study.toml", study_text());
  folder_.write("secret/audit.json", small_audit());
  std::filesystem::create_directory_symlink(folder_ / "secret", folder_ / "runs/link");
  start_without_model();
  EXPECT_EQ(get("/api/studies").json(), Json({{"studies", {"s"}}}));
  EXPECT_EQ(get("/api/audits").json(), Json({{"audits", Json::array()}}));
  for (const char* kind : {"study", "audit"})
    for (const char* name : {"none", "../secret", "%2e%2e/secret", "link", "s/../../secret", "/", ""}) {
      const Reply answer = get(fmt::format("/api/reports?{}={}", kind, name));
      EXPECT_EQ(answer.status, 404) << kind << " " << name;
      EXPECT_FALSE(contains(answer.body, folder_ / "")) << answer.body;
    }
  EXPECT_EQ(get("/report?study=s&run=a").status, 400);
  EXPECT_EQ(get("/report?study=s&study=s").status, 400);
}

TEST_F(ReportsTest, ADamagedOneIsAnErrorThatNamesIt) {
  folder_.write("runs/s/study.toml", "title = 3");
  folder_.write("runs/a/audit.json", "{");
  start_without_model();
  for (const char* target : {"/report?study=s", "/report?audit=a"}) {
    const Reply answer = get(target);
    EXPECT_GE(answer.status, 400) << target;
    EXPECT_TRUE(answer.json()["error"]["message"].is_string()) << answer.body;
  }
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace ddl
