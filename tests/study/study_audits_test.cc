// A study's models audited, and shown by arm.
#include "study/study_audits.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "small_study.h"
#include "study/study_document.h"
#include "study/trial_runner.h"

namespace ddl {
namespace {

void keep_audit(const StudyFolder& folder, const std::string& name, Json audit, const std::string& model,
                double loss) {
  make_folders(folder.audits() + "/" + name);
  audit["model"]["folder"] = model, audit["loss"] = loss;
  write_file_atomic(folder.audits() + "/" + name + "/audit.json", to_line(audit));
}

TEST(StudyAudits, SeedsOfAnArmAreOneGroup) {
  TestFolder folder;
  const Study study = make_study(folder, study_text());
  const StudyFolder out{folder / "out"};
  Records records;
  for (const Trial& trial :
       {Trial{"XS", "ddl-cc", Stage::kConfirm, 0.0163, 1, 101},
        Trial{"XS", "ddl-cc", Stage::kConfirm, 0.0163, 1, 102},
        Trial{"XS", "ddl-cc", Stage::kTune, 0.016, 2, 1}, Trial{"XS", "baseline", Stage::kTune, 0.016, 1, 1}})
    records.add(make_trial_record(study, trial, 4));
  const Json audit = {{"format", "ddl-audit"}, {"version", 1}, {"model", {{"residual", "x"}}}};
  const std::string runs = "elsewhere/runs/", end = ".tokens-3840/checkpoints/step-00000020";
  keep_audit(out, "a", audit, runs + "XS.ddl-cc.confirm.rate-0.0163.scale-1.seed-101" + end, 4.1);
  keep_audit(out, "b", audit, runs + "XS.ddl-cc.confirm.rate-0.0163.scale-1.seed-102" + end, 4.3);
  keep_audit(out, "c", audit, runs + "XS.ddl-cc.tune.rate-0.016.scale-2.seed-1" + end, 4.4);
  keep_audit(out, "d", audit, runs + "XS.ddl-cc.confirm.rate-0.0163.scale-1.seed-1011" + end, 4.5);
  const std::vector<AuditGroup> groups = read_study_audits(out, study, records);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "ddl-cc");
  ASSERT_EQ(groups[0].audits.size(), 2u);
  EXPECT_DOUBLE_EQ(average_audits(groups[0].audits)["loss"].get<double>(), 4.2);
  EXPECT_EQ(groups[1].name, "ddl-cc, rate 0.016, scale 2");
  EXPECT_EQ(groups[2].name, "x") << "of no trial of this study";
}

// Real models: what has an audit is not audited again, what is not there is counted, and the report shows the arm's average.
TEST(StudyAudits, EveryConfirmedModelIsAuditedOnce) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  open_study_folder(s.out, s.study);
  for (const Index seed : {101, 102})
    Records::write(s.out.records(),
                   *runner.run({"XS", "ddl-cc", Stage::kConfirm, 0.016, 1, seed}, [](const std::string&) {}));
  Records::write(s.out.records(),
                 make_trial_record(s.study, {"XS", "ddl-cc", Stage::kConfirm, 0.016, 1, 103}, 4));
  Records::write(s.out.records(), make_trial_record(s.study, {"XS", "ddl-cc", Stage::kTune, 0.016, 1, 1}, 4));
  const Records records = Records::read(s.out.records(), s.study);
  const AuditRequest request{.model = "", .data = "", .text = "", .tokenizer = "", .tokens = 96};
  const StudyAuditCounts first = audit_study(s.out, s.study, records, request, kOneThread);
  EXPECT_EQ(first.made, 2);
  EXPECT_EQ(first.there, 0);
  EXPECT_EQ(first.missing, 1);
  std::filesystem::remove_all(s.out.runs());  // nothing is computed again
  const StudyAuditCounts second = audit_study(s.out, s.study, records, request, kOneThread);
  EXPECT_EQ(second.made, 0);
  EXPECT_EQ(second.there, 2);
  EXPECT_EQ(second.missing, 1);
  const std::vector<AuditGroup> groups = read_study_audits(s.out, s.study, records);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].name, "ddl-cc");
  EXPECT_EQ(groups[0].audits.size(), 2u);
  const Json page = read_study_document(s.out.path).json();
  EXPECT_EQ(page["sections"].back()["title"], "Inside ddl-cc");
}

}  // namespace
}  // namespace ddl
