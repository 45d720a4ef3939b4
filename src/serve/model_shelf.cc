#include "serve/model_shelf.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "infer/load.h"
#include "io/checkpoint_folder.h"
#include "model/stored_model.h"
#include "serve/api_error.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCheckpointsKept = 2;
constexpr double kRoomSeconds = 0.3;  // an answer is out a little before its request lets go of the model

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

// None where the folder cannot be read, for whatever reason: it may be there again at the next look.
std::vector<CheckpointEntry> checkpoints_of(const std::string& path) {
  try {
    if (path.empty() || !fs::is_directory(path + "/checkpoints")) return {};
    return list_checkpoints(path + "/checkpoints");
  } catch (const std::exception&) {
    return {};
  }
}

// "NAME@STEP" into both; nothing where it is of another form.
std::optional<std::pair<std::string, Index>> parse_checkpoint(const std::string& name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  Index step = -1;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + at + 1, end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return std::nullopt;
  return std::pair(name.substr(0, at), step);
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

// Whoever listens may be gone (a closed terminal), which is no reason to stop serving.
void ModelShelf::say(const std::string& line) const noexcept {
  try {
    options_.say(line);
  } catch (...) {
  }
}

// entries_ never changes its size; what others read of an entry changes under the lock.
void ModelShelf::load(Entry& entry) {
  try {
    auto model = std::make_shared<ServedModel>(entry.name, entry.path, options_.load, options_.slots, ex_);
    const std::string line = fmt::format("{}: {} of {} parameters{}", entry.name, model->config().residual(),
                                         model->weights().table().parameter_count(),
                                         model->step() < 0 ? "" : fmt::format(", step {}", model->step()));
    const std::string note = slow_weights_note(model->weights());
    {
      const std::lock_guard lock(mutex_);
      entry.model = std::move(model);
      entry.error.clear();
    }
    say(line);
    if (!note.empty()) say(note);
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      entry.error = error.what();
    }
    say(fmt::format("{}: cannot be loaded: {}", entry.name, error.what()));
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
  const auto entry_of = [&](const std::string& wanted) {
    return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == wanted; });
  };
  auto found = entry_of(name);
  if (name.empty() && entries_.size() == 1) found = entries_.begin();
  if (found != entries_.end()) {
    const std::lock_guard lock(mutex_);
    if (found->model) return found->model;
    if (!found->error.empty())
      throw ApiError(503, fmt::format("the model '{}' could not be loaded", found->name), "model",
                     "not_loaded");
    throw ApiError(503, fmt::format("the model '{}' is being loaded; try again soon", found->name), "model",
                   "loading");
  }
  if (name.empty())
    throw ApiError(400, "model is missing; GET /v1/models lists them", "model", "missing_field");
  if (const auto checkpoint = parse_checkpoint(name))
    if (found = entry_of(checkpoint->first); found != entries_.end())
      if (ServedModelPtr model = find_checkpoint(*found, checkpoint->second)) return model;
  throw ApiError(404, fmt::format("there is no model '{}'; GET /v1/models lists them", name.substr(0, 100)),
                 "model", "model_not_found");
}

ServedModelPtr ModelShelf::find_checkpoint(const Entry& entry, Index step) {
  // One name, however the number was written.
  const std::string name = fmt::format("{}@{}", entry.name, step);
  const std::lock_guard one_at_a_time(reading_);
  {
    const std::lock_guard lock(mutex_);
    if (entry.model && entry.model->step() == step) return entry.model;
  }
  if (ServedModelPtr known = known_checkpoint(name)) return known;
  for (const CheckpointEntry& there : checkpoints_of(entry.path)) {
    if (there.step != step) continue;
    if (!make_room())
      throw ApiError(503,
                     fmt::format("{} checkpoints are in use, and no more are kept in memory; try again soon",
                                 kCheckpointsKept),
                     "model", "too_many_checkpoints");
    try {
      auto model = std::make_shared<ServedModel>(name, there.folder, options_.load, options_.slots, ex_);
      const std::lock_guard lock(mutex_);
      checkpoints_.push_front(model);
      return model;
    } catch (const std::exception& error) {
      say(fmt::format("{}: cannot be loaded: {}", name, error.what()));
      throw ApiError(503, fmt::format("the checkpoint '{}' could not be loaded", name), "model",
                     "not_loaded");
    }
  }
  return nullptr;
}

ServedModelPtr ModelShelf::known_checkpoint(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (auto kept = checkpoints_.begin(); kept != checkpoints_.end(); ++kept)
    if ((*kept)->name() == name) {
      checkpoints_.splice(checkpoints_.begin(), checkpoints_, kept);
      return *kept;
    }
  return nullptr;
}

// Lets go of the checkpoint that was asked for longest ago, of those that no request uses; false where all are used.
bool ModelShelf::make_room() {
  for (const double until = now() + kRoomSeconds;;) {
    {
      const std::lock_guard lock(mutex_);
      if (checkpoints_.size() < kCheckpointsKept) return true;
      const auto last = std::find_if(checkpoints_.rbegin(), checkpoints_.rend(),
                                     [](const ServedModelPtr& model) { return model.use_count() == 1; });
      if (last != checkpoints_.rend()) {
        checkpoints_.erase(std::next(last).base());
        return true;
      }
    }
    if (now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
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
