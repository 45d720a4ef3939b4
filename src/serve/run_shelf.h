// The runs below some folders, by name. Names come from a listing of the folders: what a request asks for is looked
// up in it and never becomes part of a path.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "serve/metrics_file.h"

namespace ddl {

class RunShelf {
 public:
  // Folders that are runs or hold runs, or will.
  explicit RunShelf(std::vector<std::string> folders);

  // Each run with its state, by name: {"name", "status", "done", "step", "steps", "updated_s_ago", ...}.
  Json list();
  // One run: state, configuration, curves after a step in at most `points` points. Null: there is no such run.
  Json run(const std::string& name, Index after, Index points);
  // The folders of runs; "" stands for none of this name.
  std::vector<std::string> folders(const std::vector<std::string>& names);
  std::vector<std::string> all_folders();

 private:
  struct Shelved {
    std::string folder;
    MetricsFile metrics;
  };
  void look();  // at the folders, not more often than every second
  Json state(const std::string& name, Shelved& run);

  const std::vector<std::string> folders_;
  std::mutex mutex_;
  std::map<std::string, Shelved> runs_;  // by name
  double looked_ = -1e30;
};

}  // namespace ddl
