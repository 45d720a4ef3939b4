#include "serve/report_shelf.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "serve/shelf_name.h"
#include "study/study_document.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr double kReportLookSeconds = 2;
constexpr int kReportDepth = 4;

std::vector<std::string> names_of(const std::map<std::string, std::string>& named) {
  std::vector<std::string> names;
  for (const auto& [name, path] : named) names.push_back(name);
  return names;
}

}  // namespace

ReportShelf::ReportShelf(std::vector<std::string> folders) : folders_(std::move(folders)) {}

void ReportShelf::look() {
  if (now() - looked_ < kReportLookSeconds) return;
  studies_.clear();
  audits_.clear();
  for (const std::string& folder : folders_) {
    std::error_code error;
    const std::string base = fs::absolute(folder, error).lexically_normal().string();
    if (!error) look_below(base, base, kReportDepth);
  }
  looked_ = now();
}

void ReportShelf::look_below(const std::string& base, const std::string& folder, int depth) {
  std::error_code error;
  if (fs::is_regular_file(folder + "/audit.json", error))
    name_below(base, folder, folder + "/audit.json", audits_);
  const bool study = is_study_folder(folder);
  if (study) name_below(base, folder, folder, studies_);
  if (depth == 0) return;
  std::vector<std::string> inner;
  for (const auto& entry :
       fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error)) {
    if (!entry.is_directory(error) || entry.is_symlink(error)) continue;
    const std::string name = entry.path().filename().string();
    // A run's checkpoints and a study's own files are many, and hold neither.
    if (name == "checkpoints" || (study && name != "audits")) continue;
    inner.push_back(entry.path().string());
  }
  std::sort(inner.begin(), inner.end());
  for (const std::string& each : inner) look_below(base, each, depth - 1);
}

std::vector<std::string> ReportShelf::studies() {
  const std::lock_guard lock(mutex_);
  look();
  return names_of(studies_);
}

std::vector<std::string> ReportShelf::audits() {
  const std::lock_guard lock(mutex_);
  look();
  return names_of(audits_);
}

std::optional<std::string> ReportShelf::find(const Named& among, const std::string& name) {
  const std::lock_guard lock(mutex_);
  look();
  const auto found = among.find(name);
  if (found == among.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> ReportShelf::study_folder(const std::string& name) { return find(studies_, name); }
std::optional<std::string> ReportShelf::audit_file(const std::string& name) { return find(audits_, name); }

}  // namespace ddl
