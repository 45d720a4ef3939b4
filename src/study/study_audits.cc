#include "study/study_audits.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "audit/audit_document.h"
#include "core/error.h"
#include "io/file.h"
#include "study/trial.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

// Each audit is in a folder of its own.
std::vector<Json> read_audits(const StudyFolder& folder) {
  std::vector<std::string> files;
  if (fs::is_directory(folder.audits()))
    for (const auto& entry : fs::directory_iterator(folder.audits()))
      if (const std::string file = entry.path().string() + "/audit.json"; fs::is_regular_file(file))
        files.push_back(file);
  std::sort(files.begin(), files.end());
  std::vector<Json> audits;
  for (const std::string& file : files) audits.push_back(parse_audit(read_file(file), file));
  return audits;
}

// The study's trial whose run the audited model is from; null: of none. Runs are called by their trials.
const Trial* trial_of(const Json& audit, const Records& records) {
  const auto model = audit.find("model");
  if (model == audit.end() || !model->is_object()) return nullptr;
  const auto folder = model->find("folder");
  if (folder == model->end() || !folder->is_string()) return nullptr;
  const std::string path = "/" + folder->get<std::string>();
  for (const auto& [name, record] : records.all())
    if (path.find(fmt::format("/{}.tokens-", name)) != std::string::npos) return &record.trial;
  return nullptr;
}

std::string group_name(const Study& study, const Trial& trial) {
  std::string name = trial.arm;
  if (study.sizes.size() > 1) name += ", " + trial.size;
  if (trial.stage == Stage::kTune) name += fmt::format(", rate {:g}", trial.rate);
  if (trial.stage == Stage::kTune && trial.scale != 1) name += fmt::format(", scale {:g}", trial.scale);
  return name;
}

}  // namespace

std::vector<AuditGroup> read_study_audits(const StudyFolder& folder, const Study& study,
                                          const Records& records) {
  std::vector<AuditGroup> groups;
  std::vector<Json> others;
  for (Json& audit : read_audits(folder)) {
    const Trial* trial = trial_of(audit, records);
    if (!trial) {
      others.push_back(std::move(audit));
      continue;
    }
    const std::string name = group_name(study, *trial);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const AuditGroup& each) { return each.name == name; });
    if (group == groups.end()) group = groups.insert(group, {name, {}});
    group->audits.push_back(std::move(audit));
  }
  for (AuditGroup& group : name_audits(others)) groups.push_back(std::move(group));
  return groups;
}

StudyAuditCounts audit_study(const StudyFolder& folder, const Study& study, const Records& records,
                             AuditRequest request, const Exec& ex) {
  const std::vector<Json> audits = read_audits(folder);
  StudyAuditCounts counts;
  for (const auto& [name, record] : records.all()) {
    if (record.trial.stage != Stage::kConfirm || record.diverged) continue;
    const bool there = std::any_of(
        audits.begin(), audits.end(),
        [&, wanted = &record.trial](const Json& audit) { return trial_of(audit, records) == wanted; });
    request.model = run_folder(folder.runs(), record.trial, budgets(study, record.trial).back());
    if (there) {
      ++counts.there;
    } else if (!fs::is_directory(request.model)) {
      ++counts.missing;
    } else {
      const std::string out = folder.audits() + "/" + name;
      make_folders(out);
      write_file_atomic(out + "/audit.json", to_line(audit_model(request, ex)) + "\n");
      ++counts.made;
    }
  }
  return counts;
}

}  // namespace ddl
