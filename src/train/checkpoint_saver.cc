#include "train/checkpoint_saver.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>

#include "core/clock.h"
#include "core/error.h"
#include "core/json_fields.h"
#include "data/tokenizer.h"
#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "model/config_json.h"
#include "train/schedule.h"
#include "train/shared_state.h"

namespace ddl {
namespace {

// A tensor of a checkpoint's file, and where its values are.
struct StoredTensor {
  std::string name;
  std::vector<Index> shape;
  float* data = nullptr;
};

std::vector<StoredTensor> stored_tensors(const ParamTable& table, float* array) {
  std::vector<StoredTensor> tensors;
  for (const Param& param : table.list()) tensors.push_back({param.name, param.shape, array + param.offset});
  return tensors;
}

std::vector<StoredTensor> stored_tensors(const ParamTable& table, const std::vector<NamedArray>& state) {
  std::vector<StoredTensor> tensors;
  for (const NamedArray& array : state)
    for (const NamedArray::Tensor& t : array.tensors) {
      const Param& param = table.list()[t.param];
      tensors.push_back({array.name + "." + param.name, param.shape, array.data + t.offset});
    }
  return tensors;
}

void write_tensors(CheckpointWriter& writer, const char* file, const std::vector<StoredTensor>& tensors) {
  std::vector<TensorToWrite> to_write;
  for (const StoredTensor& t : tensors) to_write.push_back({t.name, "F32", t.shape, t.data});
  writer.add_tensors(file, to_write);
}

// The optimizer's state as a file has it; what other ranks keep has no data here.
std::vector<StoredTensor> state_tensors(Trainer& trainer) {
  const ParamTable& table = trainer.model().weights().table();
  std::vector<StoredTensor> tensors;
  for (const StateTensor& t :
       locate_state(whole_state(trainer.config(), table), trainer.model().optimizer().state(), table)) {
    const Param& param = table.list()[t.param];
    tensors.push_back({t.array + "." + param.name, param.shape, t.data});
  }
  return tensors;
}

// A tensor that nobody asks for means that the file belongs to another model or another optimizer. Nothing is
// read before all are known to be there.
void read_tensors(const std::string& path, const std::vector<StoredTensor>& tensors,
                  const std::string& whose) {
  const SafetensorsFile file(path);
  for (const StoredTensor& t : tensors) file.expect(t.name, t.shape);
  if (file.tensors().size() != tensors.size())
    throw UserError("{}: holds {} tensors, {} has {}", path, file.tensors().size(), whose, tensors.size());
  for (const StoredTensor& t : tensors)
    if (t.data) file.read(t.name, t.shape, t.data);
}

// The optimizer whose state a checkpoint holds. The first ones do not say: there was one.
std::string stored_optimizer(const JsonFields& trainer) {
  const JsonFields train = trainer.object("config").object("train");
  return train.has("optimizer") ? train.text("optimizer") : "adamw";
}

}  // namespace

FixedFiles fixed_files(const ModelConfig& model, const Dataset& data) {
  FixedFiles files;
  files["config.json"] = to_text(model_config_json(model));
  files["generation_config.json"] = to_text(generation_config_json(model, data.end_of_text()));
  if (!data.tokenizer_path().empty()) {
    files["tokenizer.json"] = read_file(data.tokenizer_path(), kTokenizerFileBytes);
    const std::string config = parent_folder(data.tokenizer_path()) + "/tokenizer_config.json";
    if (std::filesystem::exists(config))
      files["tokenizer_config.json"] = read_file(config, kTokenizerFileBytes);
  }
  return files;
}

CheckpointSaver::CheckpointSaver(std::string parent, Trainer& trainer, FixedFiles files, Json identity)
    : parent_(std::move(parent)),
      trainer_(trainer),
      files_(std::move(files)),
      identity_(std::move(identity)) {
  make_folders(parent_);
  const ParamTable& table = trainer.model().weights().table();
  if (trainer.shares_state())
    snapshot_.emplace(table, whole_state(trainer.config(), table), trainer.model().optimizer().has_average());
  else if (trainer.config().train.background)
    snapshot_.emplace(table, trainer.model().optimizer().state(), trainer.model().optimizer().has_average());
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

std::size_t CheckpointSaver::expected_bytes() const {
  TrainableModel& model = trainer_.model();
  Index floats = model.weights().table().floats();
  if (trainer_.shares_state()) {
    for (const NamedArray& array : snapshot_->arrays().state) floats += array.floats;
    if (snapshot_->arrays().average) floats += model.weights().table().floats();
  } else {
    floats += model.optimizer().state_floats();
  }
  return static_cast<std::size_t>(floats) * sizeof(float) + (1u << 20);
}

void CheckpointSaver::save(Prune prune, const Exec& ex) {
  wait();
  struct statvfs disk {};
  if (::statvfs(parent_.c_str(), &disk) == 0 && disk.f_bavail * disk.f_frsize < expected_bytes())
    throw UserError("{}: a checkpoint needs {}, the disk has {} left; free some space and use --resume",
                    parent_, format_bytes(expected_bytes()), format_bytes(disk.f_bavail * disk.f_frsize));
  const double start = now();
  const Progress& progress = trainer_.progress();
  const RunConfig& config = trainer_.config();
  Json json{{"format", "ddl-trainer"}, {"version", 1}};
  json["progress"] = progress.json();
  json["updates"] = trainer_.model().optimizer().updates();
  json["seed"] = config.train.seed;
  json["loader"] = trainer_.loader().state(progress.step * config.train.accumulate);
  json["identity"] = identity_;
  json["config"] = config.to_json();

  trainer_.model().download(ex);
  const CheckpointArrays in_use = arrays_in_use(trainer_.model());
  report_.reset();
  done_ = false;
  const ParamTable& table = trainer_.model().weights().table();
  if (trainer_.shares_state()) {
    gather_state(trainer_.comm(), table, in_use.state, snapshot_->arrays().state);
    copy_arrays({in_use.params, {}, in_use.average}, snapshot_->arrays(), table);
  } else if (config.train.background) {
    copy_arrays(in_use, snapshot_->arrays(), table);
  }
  if (!config.train.background) {
    report_ = SaveReport{progress.step, "", 0, 0, 0};
    write(trainer_.shares_state() ? snapshot_->arrays() : in_use, to_text(json), progress.step, prune);
    done_ = true;
    return;
  }
  report_ = SaveReport{progress.step, "", now() - start, 0, 0};
  thread_ = std::thread([this, text = to_text(json), step = progress.step, prune] {
    try {
      write(snapshot_->arrays(), text, step, prune);
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  });
}

void CheckpointSaver::write(const CheckpointArrays& arrays, const std::string& trainer_json, Index step,
                            Prune prune) {
  const double start = now();
  const ParamTable& table = trainer_.model().weights().table();
  CheckpointWriter writer(parent_, step);
  write_tensors(writer, "model.safetensors", stored_tensors(table, arrays.params));
  write_tensors(writer, "optimizer.safetensors", stored_tensors(table, arrays.state));
  if (arrays.average) write_tensors(writer, "average.safetensors", stored_tensors(table, arrays.average));
  for (const auto& [name, contents] : files_) writer.add_text(name, contents);
  writer.add_text("trainer.json", trainer_json);
  report_->folder = writer.commit();
  const TrainConfig& config = trainer_.config().train;
  if (prune == Prune::kYes)
    prune_checkpoints(parent_, config.keep_last, config.keep_best, cooldown_start(config));
  report_->write_s = now() - start;
  report_->bytes = expected_bytes() - (1u << 20);
}

void CheckpointSaver::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::optional<SaveReport> CheckpointSaver::finished() {
  if (!done_) return std::nullopt;
  wait();
  done_ = false;
  return std::exchange(report_, std::nullopt);
}

void send_state(Trainer& trainer) {
  if (!trainer.shares_state()) return;
  const ParamTable& table = trainer.model().weights().table();
  gather_state(trainer.comm(), table, trainer.model().optimizer().state(),
               whole_state(trainer.config(), table));
}

Json read_trainer_json(const std::string& folder) {
  const std::string path = folder + "/trainer.json";
  Json json = parse_json(read_file(path));
  const JsonFields fields(json, path);
  if (fields.at("format") != "ddl-trainer" || fields.at("version") != 1)
    throw UserError("{}: damaged, or of a newer version", path);
  return json;
}

void load_checkpoint(const std::string& folder, Trainer& trainer) {
  const ParamTable& table = trainer.model().weights().table();
  const Json json = read_trainer_json(folder);
  const std::string path = folder + "/trainer.json";
  const JsonFields fields(json, path);
  const Progress progress = Progress::parse(fields.object("progress"));
  const Index micro_step = trainer.loader().resume(fields.at("loader"), path);
  if (micro_step != progress.step * trainer.config().train.accumulate)
    throw UserError("{}: the loader stands at micro-batch {}, the run at step {} of {} each", path,
                    micro_step, progress.step, trainer.config().train.accumulate);
  const Index updates = fields.whole("updates", 0, progress.step);
  const std::string& chosen = trainer.config().train.optimizer.name;
  if (const std::string stored = stored_optimizer(fields); stored != chosen)
    throw UserError(
        "{}: a checkpoint of train.optimizer = {}, expected {}; its state means nothing to another", folder,
        stored, chosen);
  const CheckpointArrays arrays = arrays_in_use(trainer.model());
  read_tensors(folder + "/model.safetensors", stored_tensors(table, arrays.params), "this model");
  read_tensors(folder + "/optimizer.safetensors", state_tensors(trainer),
               fmt::format("train.optimizer = {} for this model", chosen));
  if (arrays.average) {
    const std::string average = folder + "/average.safetensors";
    // An average that is switched on by the resume starts here.
    if (std::filesystem::exists(average))
      read_tensors(average, stored_tensors(table, arrays.average), "this model");
    else
      std::copy_n(arrays.params, table.floats(), arrays.average);
  }
  trainer.restore(progress, updates);
}

std::vector<std::string> set_aside_checkpoints(const std::string& parent, Index first,
                                               const std::string& why) {
  std::vector<std::string> folders;
  for (const CheckpointEntry& entry : list_checkpoint_folders(parent)) {
    if (entry.step < first) continue;
    std::string aside = fmt::format("{}.{}", entry.folder, why);
    for (int i = 2; std::filesystem::exists(aside); ++i)
      aside = fmt::format("{}.{}-{}", entry.folder, why, i);
    rename_path(entry.folder, aside);
    folders.push_back(aside);
  }
  return folders;
}

void prune_checkpoints(const std::string& parent, Index keep_last, Index keep_best, Index keep_step) {
  const auto all = list_checkpoints(parent);
  std::set<Index> keep;
  for (auto entry = all.rbegin(); entry != all.rend() && std::ssize(keep) < keep_last; ++entry)
    keep.insert(entry->step);
  std::vector<std::pair<double, Index>> validated;
  for (const CheckpointEntry& entry : all) {
    try {
      const Json last = read_trainer_json(entry.folder).at("progress").at("last_validation");
      if (!last.is_null() && last.at("step") == entry.step && last.at("loss").is_number())
        validated.emplace_back(last.at("loss").get<double>(), entry.step);
    } catch (const std::exception&) {  // one that cannot be read is not among the best
    }
  }
  std::sort(validated.begin(), validated.end());
  for (Index i = 0; i < std::min(keep_best, std::ssize(validated)); ++i) keep.insert(validated[i].second);
  keep.insert(keep_step);
  for (const CheckpointEntry& entry : all)
    if (!keep.contains(entry.step)) remove_checkpoint(entry.folder);
}

}  // namespace ddl
