#include "study/studies_document.h"

#include <gtest/gtest.h>

#include "study/study_run.h"
#include "study_testing.h"

namespace ddl {
namespace {

// A folder as a finished study leaves it, with ddl-cc ahead by `lead`.
std::string finished_study(const TestFolder& folder, const std::string& name, const std::string& text,
                           double lead) {
  const StudyFolder place{folder / name};
  make_folders(place.path);
  write_file_atomic(place.study(), text);
  const Study study = read_study(place.study());
  const Records records = simulate(study, [&](const Trial& trial) {
    const double noise = 0.001 * static_cast<double>(trial.seed % 5);
    return 4 + std::abs(std::log2(trial.rate / 0.016)) + (trial.arm == "ddl-cc" ? 0.9 * noise - lead : noise);
  });
  make_folders(place.records());
  for (const auto& [trial, record] : records.all()) Records::write(place.records(), record);
  return place.path;
}

TEST(StudiesDocument, ShowsAllDifferencesInOnePicture) {
  const TestFolder folder;
  std::string other = study_text();
  other.replace(other.find("A test"), 6, "Another");
  const Json document = read_studies_document({finished_study(folder, "one", study_text(), 0.3),
                                               finished_study(folder, "two", other, -0.2)})
                            .json();
  EXPECT_EQ(document["title"], "2 studies");
  const Json& sections = document["sections"];
  ASSERT_EQ(sections[0]["blocks"].size(), 1u);
  const Json& rows = sections[0]["blocks"][0]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["name"], "one, XS: ddl-cc - baseline");
  EXPECT_NEAR(rows[0]["mean"].get<double>(), -0.3, 0.001);
  EXPECT_EQ(rows[1]["name"], "two, XS: ddl-cc - baseline");
  EXPECT_NEAR(rows[1]["mean"].get<double>(), 0.2, 0.001);
  EXPECT_EQ(rows[1]["verdict"], "worse");
  EXPECT_EQ(sections[1]["title"], "one: A test");
  EXPECT_EQ(sections[2]["title"], "two: Another");
}

TEST(StudiesDocument, MarginsAndUnitsAreNotMixed) {
  const TestFolder folder;
  std::string other = study_text("metric = \"wrong_answers\"\n");
  const Json document = read_studies_document({finished_study(folder, "one", study_text(), 0.3),
                                               finished_study(folder, "two", other, 0.3)})
                            .json();
  const Json& pictures = document["sections"][0]["blocks"];
  ASSERT_EQ(pictures.size(), 2u);
  EXPECT_EQ(pictures[0]["unit"], "nats");
  EXPECT_EQ(pictures[1]["unit"], "share of wrong answers");
}

}  // namespace
}  // namespace ddl
