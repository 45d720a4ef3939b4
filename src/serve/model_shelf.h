// The models that are served, by name. A thread loads them, and loads a run's newer checkpoint when there is one:
// requests under way finish on the model they began with.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/exec.h"
#include "core/json.h"
#include "serve/served_model.h"

namespace ddl {

struct ModelShelfOptions {
  std::vector<std::string> paths;          // runs, checkpoints, models' folders
  std::vector<ServedModelPtr> ready = {};  // those that are in memory already
  Index slots = 16;                        // of each
  LoadOptions load = {};
  double look_s = 2;  // how often to look for a newer checkpoint
  std::function<void(const std::string& line)> say = [](const std::string&) {};  // for a person
};

class ModelShelf {
 public:
  // Names the models after their folders and looks at their headers: throws UserError where one cannot be used.
  // Loading continues in the background.
  ModelShelf(const ModelShelfOptions& options, const Exec& ex);
  ~ModelShelf();
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  // The newest there is; "NAME@STEP" is a certain checkpoint of a run, read now where it is not in memory. Throws
  // ApiError: 404 where there is none of this name, 503 while it is being read, where it cannot be, and where requests
  // use as many checkpoints as there may be. "" is the only model there is.
  ServedModelPtr find(const std::string& name);

  bool loading() const;
  std::vector<std::string> names() const;
  Json list() const;  // GET /v1/models

 private:
  struct Entry {
    std::string name, path;
    ServedModelPtr model;        // null: not loaded yet
    std::string error;           // why not
    std::vector<Index> refused;  // steps of checkpoints that cannot be read
  };
  void run();
  void load(Entry& entry);
  void look_for_newer(Entry& entry);
  void say(const std::string& line) const noexcept;
  ServedModelPtr find_checkpoint(const Entry& entry, Index step);
  ServedModelPtr known_checkpoint(const std::string& name);
  bool make_room();

  const ModelShelfOptions options_;
  const Exec ex_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  // Asked for by step, the last in front. One that a request uses stays here, so these are all there are in memory.
  std::list<ServedModelPtr> checkpoints_;
  std::mutex reading_;  // held by whoever reads a checkpoint: one at a time
  bool ending_ = false, loading_ = true;
  std::thread thread_;
};

}  // namespace ddl
