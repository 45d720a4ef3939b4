#include "serve/model_shelf.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/error.h"
#include "io/checkpoint_folder.h"
#include "model/stored_model.h"
#include "serve/api_error.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCheckpointsKept = 2;

// The folder's own name, with a number where another model has it.
std::string free_name(const std::string& path, const std::vector<std::string>& taken) {
  fs::path normal = fs::absolute(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  const std::string name = normal.filename().string();
  std::string free = name;
  for (int i = 2; std::find(taken.begin(), taken.end(), free) != taken.end(); ++i)
    free = fmt::format("{}-{}", name, i);
  return free;
}

std::vector<CheckpointEntry> checkpoints_of(const std::string& path) {
  if (path.empty() || !fs::is_directory(path + "/checkpoints")) return {};
  try {
    return list_checkpoints(path + "/checkpoints");
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

ModelShelf::ModelShelf(const ModelShelfOptions& options, const Exec& ex) : options_(options), ex_(ex) {
  for (const std::string& path : options.paths) {
    const StoredModel stored(path);
    if (!fs::exists(stored.folder() + "/tokenizer.json"))
      throw UserError("{}: there is no tokenizer.json, and a server needs one", stored.folder());
    entries_.push_back({free_name(path, names()), path, nullptr, "", {}});
  }
  loading_ = !entries_.empty();
  for (const ServedModelPtr& model : options.ready) entries_.push_back({model->name(), "", model, "", {}});
  thread_ = std::thread([this] { run(); });
}

ModelShelf::~ModelShelf() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ModelShelf::run() {
  for (Entry& entry : entries_) {
    if (!entry.model) load(entry);
    const std::lock_guard lock(mutex_);
    if (ending_) return;
  }
  std::unique_lock lock(mutex_);
  loading_ = false;
  const auto pause = std::chrono::duration<double>(options_.look_s);
  while (!changed_.wait_for(lock, pause, [&] { return ending_; })) {
    lock.unlock();
    for (Entry& entry : entries_) look_for_newer(entry);
    lock.lock();
  }
}

// entries_ never changes its size; what others read of an entry changes under the lock.
void ModelShelf::load(Entry& entry) {
  try {
    auto model = std::make_shared<ServedModel>(entry.name, entry.path, options_.load, options_.slots, ex_);
    options_.say(fmt::format("{}: {} of {} parameters{}", entry.name, model->config().residual(),
                             model->weights().table().parameter_count(),
                             model->step() < 0 ? "" : fmt::format(", step {}", model->step())));
    const std::lock_guard lock(mutex_);
    entry.model = std::move(model);
    entry.error.clear();
  } catch (const std::exception& error) {
    options_.say(fmt::format("{}: cannot be loaded: {}", entry.name, error.what()));
    const std::lock_guard lock(mutex_);
    entry.error = error.what();
  }
}

void ModelShelf::look_for_newer(Entry& entry) {
  const auto there = checkpoints_of(entry.path);
  const Index known = entry.model ? entry.model->step() : -1;
  if (there.empty() || there.back().step <= known) return;
  const Index newest = there.back().step;
  if (std::find(entry.refused.begin(), entry.refused.end(), newest) != entry.refused.end()) return;
  load(entry);
  if (!entry.model || entry.model->step() < newest) entry.refused.push_back(newest);
}

ServedModelPtr ModelShelf::find(const std::string& name) {
  std::string base = name, path;
  std::optional<Index> step;
  {
    const std::lock_guard lock(mutex_);
    auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
    if (name.empty() && entries_.size() == 1) found = entries_.begin();
    if (found != entries_.end()) {
      if (found->model) return found->model;
      if (!found->error.empty())
        throw ApiError(503, fmt::format("the model '{}' could not be loaded", found->name), "model",
                       "not_loaded");
      throw ApiError(503, fmt::format("the model '{}' is being loaded; try again soon", found->name), "model",
                     "loading");
    }
    if (name.empty())
      throw ApiError(400, "model is missing; GET /v1/models lists them", "model", "missing_field");
    if (const std::size_t at = name.rfind('@'); at != std::string::npos) {
      Index number = -1;
      const auto [end, error] = std::from_chars(name.data() + at + 1, name.data() + name.size(), number);
      base = name.substr(0, at);
      found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == base; });
      if (error == std::errc() && end == name.data() + name.size() && found != entries_.end())
        path = found->path, step = number;
    }
  }
  if (step)
    if (ServedModelPtr model = find_checkpoint(name, path, *step)) return model;
  throw ApiError(404, fmt::format("there is no model '{}'; GET /v1/models lists them", name.substr(0, 100)),
                 "model", "model_not_found");
}

ServedModelPtr ModelShelf::find_checkpoint(const std::string& name, const std::string& path, Index step) {
  {
    const std::lock_guard lock(mutex_);
    for (auto kept = checkpoints_.begin(); kept != checkpoints_.end(); ++kept)
      if ((*kept)->name() == name) {
        checkpoints_.splice(checkpoints_.begin(), checkpoints_, kept);
        return *kept;
      }
  }
  for (const CheckpointEntry& entry : checkpoints_of(path)) {
    if (entry.step != step) continue;
    auto model = std::make_shared<ServedModel>(name, entry.folder, options_.load, options_.slots, ex_);
    const std::lock_guard lock(mutex_);
    checkpoints_.push_front(model);
    if (checkpoints_.size() > kCheckpointsKept) checkpoints_.pop_back();
    return model;
  }
  return nullptr;
}

bool ModelShelf::loading() const {
  const std::lock_guard lock(mutex_);
  return loading_;
}

std::vector<std::string> ModelShelf::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

Json ModelShelf::list() const {
  Json data = Json::array();
  for (const Entry& entry : entries_) {
    ServedModelPtr model;
    {
      const std::lock_guard lock(mutex_);
      model = entry.model;
    }
    Json json{{"id", entry.name},
              {"object", "model"},
              {"created", model ? model->created() : 0},
              {"owned_by", "ddl"}};
    json["max_model_len"] = model ? Json(model->context()) : Json();
    json["ddl"] = model ? model->description() : Json();
    json["checkpoints"] = Json::array();
    for (const CheckpointEntry& checkpoint : checkpoints_of(entry.path))
      json["checkpoints"].push_back(checkpoint.step);
    data.push_back(std::move(json));
  }
  return Json{{"object", "list"}, {"data", std::move(data)}};
}

}  // namespace ddl
