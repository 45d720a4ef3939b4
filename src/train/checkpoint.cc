#include "train/checkpoint.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/clock.h"
#include "io/checkpoint.h"
#include "model/config_json.h"

namespace ddl {
namespace {

void add_arrays(std::vector<TensorToWrite>& tensors, const ParamTable& table, const float* array,
                const std::string& prefix) {
  for (const Param& param : table.list())
    tensors.push_back({prefix + param.name, "F32", param.shape, array + param.offset});
}

void read_arrays(const SafetensorsFile& file, const ParamTable& table, float* array,
                 const std::string& prefix) {
  for (const Param& param : table.list()) file.read(prefix + param.name, param.shape, array + param.offset);
}

// A tensor the model does not have means that the file belongs to another model.
void refuse_others(const SafetensorsFile& file, std::size_t expected) {
  if (file.tensors().size() != expected)
    throw UserError("{}: holds {} tensors, this model has {}", file.path(), file.tensors().size(), expected);
}

}  // namespace

FixedFiles fixed_files(const ModelConfig& model, const Dataset& data) {
  FixedFiles files;
  files["config.json"] = to_text(model_config_json(model));
  Json generation{{"max_length", model.context}};
  if (data.end_of_text())
    generation["bos_token_id"] = *data.end_of_text(), generation["eos_token_id"] = *data.end_of_text();
  files["generation_config.json"] = to_text(generation);
  if (!data.tokenizer_path().empty()) {
    files["tokenizer.json"] = read_file(data.tokenizer_path());
    const std::string config = parent_folder(data.tokenizer_path()) + "/tokenizer_config.json";
    if (std::filesystem::exists(config)) files["tokenizer_config.json"] = read_file(config);
  }
  return files;
}

CheckpointSaver::CheckpointSaver(std::string parent, Trainer& trainer, FixedFiles files, Json identity)
    : parent_(std::move(parent)),
      trainer_(trainer),
      files_(std::move(files)),
      identity_(std::move(identity)) {
  make_folders(parent_);
  if (!trainer.config().train.background) return;
  const Index floats = trainer.model().table().floats();
  const auto take = [&] { return trainer.arena().take<float>("checkpoint copy", floats); };
  params_ = take(), mean_ = take(), square_ = take();
  if (trainer.optimizer().state().average) average_ = take();
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

std::size_t CheckpointSaver::expected_bytes() const {
  const Index arrays = 1 + Optimizer::state_arrays(trainer_.config().train);
  return static_cast<std::size_t>(arrays * trainer_.model().table().floats()) * sizeof(float) + (1u << 20);
}

void CheckpointSaver::copy_arrays() {
  const auto bytes = static_cast<std::size_t>(trainer_.model().table().floats()) * sizeof(float);
  const Optimizer::State& state = trainer_.optimizer().state();
  std::memcpy(params_, trainer_.model().params().data(), bytes);
  std::memcpy(mean_, state.mean, bytes);
  std::memcpy(square_, state.square, bytes);
  if (average_) std::memcpy(average_, state.average, bytes);
}

void CheckpointSaver::save(Prune prune) {
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
  json["updates"] = trainer_.optimizer().updates();
  json["seed"] = config.train.seed;
  json["loader"] = trainer_.loader().state(progress.step * config.train.accumulate);
  json["identity"] = identity_;
  json["config"] = config.to_json();

  const Optimizer::State& state = trainer_.optimizer().state();
  report_.reset();
  done_ = false;
  if (!config.train.background) {
    report_ = SaveReport{progress.step, "", 0, 0, 0};
    write({trainer_.model().params().data(), state.mean, state.square, state.average}, to_text(json),
          progress.step, prune);
    done_ = true;
    return;
  }
  copy_arrays();
  report_ = SaveReport{progress.step, "", now() - start, 0, 0};
  thread_ = std::thread([this, text = to_text(json), step = progress.step, prune] {
    try {
      write({params_, mean_, square_, average_}, text, step, prune);
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  });
}

void CheckpointSaver::write(const Arrays& arrays, const std::string& trainer_json, Index step, Prune prune) {
  const double start = now();
  const ParamTable& table = trainer_.model().table();
  CheckpointWriter writer(parent_, step);
  std::vector<TensorToWrite> tensors;
  add_arrays(tensors, table, arrays.params, "");
  writer.add_tensors("model.safetensors", tensors);
  tensors.clear();
  add_arrays(tensors, table, arrays.mean, "exp_avg.");
  add_arrays(tensors, table, arrays.square, "exp_avg_sq.");
  writer.add_tensors("optimizer.safetensors", tensors);
  if (arrays.average) {
    tensors.clear();
    add_arrays(tensors, table, arrays.average, "");
    writer.add_tensors("average.safetensors", tensors);
  }
  for (const auto& [name, contents] : files_) writer.add_text(name, contents);
  writer.add_text("trainer.json", trainer_json);
  report_->folder = writer.commit();
  const TrainConfig& config = trainer_.config().train;
  if (prune == Prune::kYes) prune_checkpoints(parent_, config.keep_last, config.keep_best);
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

Json read_trainer_json(const std::string& folder) {
  const std::string path = folder + "/trainer.json";
  Json json = parse_json(read_file(path));
  if (!json.is_object() || json.value("format", "") != "ddl-trainer" || json.value("version", 0) != 1)
    throw UserError("{}: damaged, or of a newer version", path);
  return json;
}

void load_checkpoint(const std::string& folder, Trainer& trainer) {
  const ParamTable& table = trainer.model().table();
  const Json json = read_trainer_json(folder);
  try {
    const Progress progress = Progress::parse(json.at("progress"));
    const Index micro_step = trainer.loader().resume(json.at("loader"));
    if (micro_step != progress.step * trainer.config().train.accumulate)
      throw UserError("{}/trainer.json: the loader stands at micro-batch {}, the run at step {} of {} each",
                      folder, micro_step, progress.step, trainer.config().train.accumulate);
    const SafetensorsFile model(folder + "/model.safetensors");
    refuse_others(model, table.list().size());
    read_arrays(model, table, trainer.model().params().data(), "");
    const SafetensorsFile optimizer(folder + "/optimizer.safetensors");
    const Optimizer::State& state = trainer.optimizer().state();
    read_arrays(optimizer, table, state.mean, "exp_avg.");
    read_arrays(optimizer, table, state.square, "exp_avg_sq.");
    refuse_others(optimizer, 2 * table.list().size());
    if (state.average) {
      const std::string path = folder + "/average.safetensors";
      // An average that is switched on by the resume starts here.
      if (std::filesystem::exists(path))
        read_arrays(SafetensorsFile(path), table, state.average, "");
      else
        std::memcpy(state.average, trainer.model().params().data(),
                    static_cast<std::size_t>(table.floats()) * sizeof(float));
    }
    trainer.restore(progress, json.at("updates").get<Index>());
  } catch (const Json::exception& error) {
    throw UserError("{}/trainer.json: damaged: {}", folder, error.what());
  }
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

void prune_checkpoints(const std::string& parent, Index keep_last, Index keep_best) {
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
  for (const CheckpointEntry& entry : all)
    if (!keep.contains(entry.step)) remove_checkpoint(entry.folder);
}

}  // namespace ddl
