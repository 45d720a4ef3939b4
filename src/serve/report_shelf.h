// The studies and audits below some folders, by name. Names come from a listing of the folders: what a request asks
// for is looked up in it and never becomes part of a path.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ddl {

class ReportShelf {
 public:
  explicit ReportShelf(std::vector<std::string> folders);

  std::vector<std::string> studies();
  std::vector<std::string> audits();
  // Where one of this name is.
  std::optional<std::string> study_folder(const std::string& name);
  std::optional<std::string> audit_file(const std::string& name);

 private:
  using Named = std::map<std::string, std::string>;  // name -> path
  void look();                                       // at the folders, not more often than every few seconds
  void look_below(const std::string& base, const std::string& folder, int depth);
  std::optional<std::string> find(const Named& among, const std::string& name);

  const std::vector<std::string> folders_;
  std::mutex mutex_;
  Named studies_, audits_;
  double looked_ = -1e30;
};

}  // namespace ddl
