#include "study/study_document.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "study_testing.h"

namespace ddl {
namespace {

double loss_of(const Trial& trial) {
  const double x = std::log2(trial.rate / 0.016), noise = 0.001 * static_cast<double>(trial.seed % 5);
  return 4 + 0.1 * x * x + (trial.arm == "ddl-cc" ? -0.3 + noise * 0.1 : 0) + noise;
}

// The first block of a kind, or null.
Json find_block(const Json& document, const std::string& kind) {
  for (const Json& section : document["sections"])
    for (const Json& block : section["blocks"])
      if (block["kind"] == kind) return block;
  return nullptr;
}

// A cell of the table of costs, by its arm and column.
Json cost(const Study& study, const Records& records, const std::string& arm, const std::string& column) {
  const Json document = study_document(study, records, {}).json();
  for (const Json& section : document["sections"])
    for (const Json& block : section["blocks"]) {
      if (section["id"] != "costs" || block["kind"] != "table") continue;
      for (std::size_t i = 0; i < block["columns"].size(); ++i)
        for (const Json& row : block["rows"])
          if (row[0] == arm && block["columns"][i]["name"] == column) return row[i];
    }
  return "no such cell";
}

// All records, changed by `change`.
Records changed(const Records& records, const std::function<void(TrialRecord&)>& change) {
  Records result;
  for (auto [name, record] : records.all()) change(record), result.add(record);
  return result;
}

// Of equal tokens and FLOPs, a bound beyond the end of the curve is 1.00 and says nothing.
TEST(StudyDocument, ABoundOfTheComputeGainIsShownWhereItSaysSomething) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const auto gain = [&](const Records& records) {
    return cost(study, records, "ddl-cc", "compute-equivalent gain");
  };
  const Records better = changed(simulate(study, loss_of), [](TrialRecord& record) {
    if (!record.endpoints.empty()) record.endpoints.front().loss += 0.1;  // the curve falls
  });
  EXPECT_EQ(gain(better), "beyond the reference's curve");
  const Records cheaper = changed(better, [](TrialRecord& record) {
    for (Endpoint& end : record.endpoints) end.flops *= record.trial.arm == "ddl-cc" ? 0.5 : 1;
  });
  EXPECT_EQ(gain(cheaper), "at least 2.00");
  const Records worse = changed(better, [](TrialRecord& record) {
    for (Endpoint& end : record.endpoints) end.loss += record.trial.arm == "ddl-cc" ? 0.5 : 0;
  });
  EXPECT_EQ(gain(worse), "at most 0.50");
  const Records worse_and_cheaper = changed(worse, [](TrialRecord& record) {
    for (Endpoint& end : record.endpoints) end.flops *= record.trial.arm == "ddl-cc" ? 0.5 : 1;
  });
  EXPECT_EQ(gain(worse_and_cheaper), "short of the reference's curve");
}

TEST(StudyDocument, SaysWhatTheRecordsSay) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Records records = simulate(study, loss_of);
  const Json document = study_document(study, records, {}).json();
  EXPECT_EQ(document["title"], "A test");
  const Json answer = find_block(document, "answers")["rows"][0];
  EXPECT_EQ(answer["verdict"], "better");
  const Json row = find_block(document, "forest")["rows"][0];
  EXPECT_EQ(row["name"], "ddl-cc - baseline");
  EXPECT_NEAR(row["mean"].get<double>(), -0.3, 0.001);
  EXPECT_EQ(row["points"].size(), 4u);
  const Json lines = find_block(document, "lines");
  EXPECT_EQ(lines["series"].size(), 2u);
  EXPECT_EQ(lines["series"][0]["x"]["tokens"], (std::vector<double>{1920, 3840}));
  const std::string text = to_line(document);
  EXPECT_NE(text.find(study.hash), std::string::npos);
  EXPECT_EQ(text.find("not finished"), std::string::npos);
  EXPECT_EQ(text.find("different versions"), std::string::npos);
}

TEST(StudyDocument, AQuestionWithoutDataHasNoVerdict) {
  const TestFolder folder;
  const std::string size = R"([[size]]
name = "S"
settings = ["model.layers=1", "model.width=16", "model.heads=1"]
tokens = [1920]
arms = ["ddl-cc", "baseline"]
)";
  const Study study = make_study(folder, study_text("", size));
  Records records = simulate(study, loss_of), of_one_size;
  for (const auto& [name, record] : records.all())
    if (record.trial.size == "XS") of_one_size.add(record);
  const Json document = study_document(study, of_one_size, {}).json();
  const Json answers = find_block(document, "answers");
  ASSERT_EQ(answers["rows"].size(), 1u) << to_line(answers);
  EXPECT_NE(to_line(document).find("1 question has no pairs yet: Is it better? (S, primary)."),
            std::string::npos);
  const Json empty = study_document(study, Records(), {}).json();
  EXPECT_TRUE(find_block(empty, "answers").is_null());
  EXPECT_NE(to_line(empty).find("2 questions have no pairs yet: Is it better? (XS, primary); Is it better?"),
            std::string::npos);
}

TEST(StudyDocument, TellsOfWhatIsUnfinishedMixedOrLeftOut) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  Records records;
  TrialRecord first = make_trial_record(study, {"XS", "ddl-cc", Stage::kTune, 0.004, 1, 1}, 4);
  TrialRecord second = make_trial_record(study, {"XS", "ddl-cc", Stage::kTune, 0.004, 1, 2},
                                         std::numeric_limits<double>::infinity());
  second.program = "another";
  records.add(first), records.add(second);
  const std::string text = to_line(study_document(study, records, {"a file was damaged"}).json());
  for (const char* part : {"not finished", "different versions", "a file was damaged"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_NE(to_line(study_document(study, Records(), {}).json()).find("not finished"), std::string::npos);
}

}  // namespace
}  // namespace ddl
