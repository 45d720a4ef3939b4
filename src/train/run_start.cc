#include "train/run_start.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/file.h"
#include "train/handshake.h"
#include "train/identity.h"
#include "train/schedule.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

bool names_a_preset(const RunRequest& request) {
  return !request.preset.empty() ||
         std::any_of(request.sets.begin(), request.sets.end(),
                     [](const std::string& set) { return set.starts_with("preset="); });
}

std::string model_toml(ModelConfig config) {
  Options options;
  config.describe(options);
  return options.to_toml();
}

// The weights fit one architecture. Free is what says how far to look, how to compute, or where weights
// start.
void check_same_model(const StoredModel& start, ModelConfig asked) {
  ModelConfig stored = start.config();
  stored.mlp = stored.mlp_width(), asked.mlp = asked.mlp_width();
  Options is, wanted;
  stored.describe(is);
  asked.describe(wanted);
  std::string refused;
  for (const OptionChange& change : option_changes(is, wanted))
    if (change.changes == Options::Changes::kAnything && change.key != "model.context")
      refused +=
          fmt::format("\n  {}: {} in the model, {} asked for", change.key, change.before, change.after);
  if (!refused.empty())
    throw UserError("--from {}: a model cannot change its shape:{}\nLeave these out.", start.folder(),
                    refused);
}

}  // namespace

std::string out_folder(const RunRequest& request) {
  if (!request.out.empty()) return request.out;
  return "runs/" + (request.config_file.empty() ? std::string("default")
                                                : fs::path(request.config_file).stem().string());
}

RunStart::RunStart(const RunRequest& request, Comm& comm, const Exec& ex)
    : out(out_folder(request)), request_(request), comm_(comm), ex_(ex) {
  std::exception_ptr failed;
  try {
    if (comm_.leads())
      prepare();
    else
      join();
  } catch (const UserError&) {
    failed = std::current_exception();
  }
  settle_with_ranks(failed);
}

void RunStart::load_config(const std::string& stored_toml) {
  // A model to start from is, like a run's stored configuration, what a file and --set are applied to.
  ConfigSources sources{request_.preset, model ? model_toml(model->config()) : stored_toml,
                        request_.config_file, request_.sets};
  config = load_run_config(sources);
  if (!request_.data.empty()) config.train.data_folder = request_.data;
  if (config.train.data_folder.empty())
    throw UserError(
        "which data? Give --data DIR, a dataset made by `ddl data prepare`, or data.folder in the "
        "configuration");
  config.train.data_folder = fs::absolute(config.train.data_folder).lexically_normal().string();
  data.emplace(Dataset::open(config.train.data_folder, ex_));
  if (model) check_same_tokens(*model, *data);
  resolve_with_data(config, *data, ex_);
  check_ranks(config, comm_.ranks());
  if (model) check_same_model(*model, config.model);
  identity = run_identity(*data);
  if (model) identity["started_from"] = fs::absolute(model->folder()).lexically_normal().string();
}

void RunStart::open_resumed() {
  folder.emplace(out, RunFolder::Purpose::kResume);
  const std::string stored_toml = reading_the_run([&] { return read_file(folder->config()); });
  const RunConfig stored = reading_the_run([&] { return load_run_config({"", stored_toml, "", {}}); });
  load_config(stored_toml);
  changes = allowed_changes(stored, config);
  const Json began = reading_the_run([&] {
    Json json = parse_json(read_file(folder->identity()));
    const JsonFields fields(json, folder->identity());
    if (fields.has("started_from")) identity["started_from"] = fields.text("started_from");
    return json;
  });
  check_identity(began, identity, out);
  remove_unfinished_checkpoints(folder->checkpoints());
  checkpoint = latest_valid_checkpoint(folder->checkpoints(), &rejected);
  const bool from_a_model = began.contains("started_from");
  if (!checkpoint && !rejected.empty())
    throw DamagedRunError(
        "{}: no checkpoint is whole:\n  {}\nPut back the files from a copy. Or give the run up: {}", out,
        fmt::join(rejected, "\n  "),
        from_a_model
            ? "begin a new one, --from the model it began with"
            : fmt::format("with {} removed, --resume begins again from step 0", folder->checkpoints()));
  if (!checkpoint && from_a_model)
    throw DamagedRunError(
        "{}: began with the weights of {}, and no checkpoint is left; begin a new run --from there", out,
        began["started_from"].get<std::string>());
}

// A new run that shares the first steps of another: from its newest checkpoint that neither run has begun to cool
// down from. Everything a step does follows from configuration, data and its number, so the branch is, bit for bit, the
// run that would have begun at step 0.
void RunStart::open_branch() {
  const std::string &trunk = request_.branch, trunk_config = trunk + "/config.toml";
  if (!fs::exists(trunk_config)) throw UserError("--branch {}: there is no run (no config.toml)", trunk);
  const std::string stored_toml = read_file(trunk_config);
  const RunConfig stored = load_run_config({"", stored_toml, "", {}});
  load_config(stored_toml);
  for (const OptionChange& change : allowed_changes(stored, config)) {
    const auto in = [&](const char* group) { return change.key.starts_with(group); };
    if (change.key != "train.steps" && change.key != "data.folder" && !in("eval.") && !in("log.") &&
        !in("checkpoint."))
      throw UserError(
          "--branch {}: a branch repeats the steps of the other run, so {} stays {} (found {}); what may "
          "change is "
          "train.steps, eval.*, log.* and checkpoint.*",
          trunk, change.key, change.before, change.after);
    changes.push_back(change);
  }
  const Json began = parse_json(read_file(trunk + "/run.json"));
  check_identity(began, identity, trunk);
  if (began.contains("started_from")) identity["started_from"] = began["started_from"];
  const Index last = std::min(cooldown_start(stored.train), cooldown_start(config.train));
  if (last < 0)
    throw UserError(
        "--branch {}: both runs need train.schedule = cooldown, so that they share their steps up to the "
        "cool-down; "
        "found {} there and {} here",
        trunk, name_of(stored.train.schedule), name_of(config.train.schedule));
  std::optional<CheckpointEntry> from;
  for (const CheckpointEntry& entry : list_checkpoints(trunk + "/checkpoints"))
    if (entry.step <= last) from = entry;
  if (!from)
    throw UserError(
        "--branch {}: it has no checkpoint of step {} or before, where both runs are still the same", trunk,
        last);
  reading_the_run([&] { verify_checkpoint(from->folder); });
  copy_from_trunk(*from);
  identity["branched_from"] =
      Json{{"run", fs::absolute(trunk).lexically_normal().string()}, {"step", from->step}};
}

// Into place under its own name: a process that is killed here leaves no half of a checkpoint.
void RunStart::copy_from_trunk(const CheckpointEntry& from) {
  folder.emplace(out, RunFolder::Purpose::kNew);
  make_folders(folder->checkpoints());
  const std::string copy = fmt::format("{}/{}", folder->checkpoints(), checkpoint_name(from.step));
  const std::string unfinished = copy + ".copy";
  remove_all(unfinished), remove_all(copy);
  std::error_code error;
  fs::copy(from.folder, unfinished, fs::copy_options::recursive, error);
  if (!error)
    fs::copy_file(request_.branch + "/metrics.jsonl", folder->metrics(), fs::copy_options::overwrite_existing,
                  error);
  if (error) throw UserError("{}: cannot copy the checkpoint {} ({})", out, from.folder, error.message());
  rename_path(unfinished, copy);
  checkpoint = CheckpointEntry{from.step, copy};
}

// What rank 0 does before the ranks meet: folder, configuration, data, and the checkpoint to begin with.
void RunStart::prepare() {
  if (!request_.from.empty() + !request_.branch.empty() + request_.resume > 1)
    throw UserError("--from and --branch start a new run, --resume continues an old one: give one of them");
  if (request_.resume) {
    open_resumed();
  } else if (!request_.branch.empty()) {
    open_branch();
  } else {
    if (!request_.from.empty()) {
      if (names_a_preset(request_))
        throw UserError("--from takes the sizes from the model in {}: leave the preset out", request_.from);
      model.emplace(request_.from);
      if (model->format() != WeightFormat::kF32)
        throw UserError(
            "--from {}: its weights are {}, made for inference (ddl quantize): a step of training changes a "
            "weight by less than such a number can hold; begin from the model it was made of",
            request_.from, info(model->format()).name);
    }
    load_config("");
    folder.emplace(out, RunFolder::Purpose::kNew);
  }
}

// What the other ranks do: they read the same configuration and data, and touch no file of the run.
void RunStart::join() {
  std::string stored_toml;
  if (request_.resume || !request_.branch.empty())
    stored_toml = read_file((request_.resume ? out : request_.branch) + "/config.toml");
  if (!request_.from.empty()) model.emplace(request_.from);
  load_config(stored_toml);
}

// All ranks begin, with the same checkpoint, or none.
void RunStart::settle_with_ranks(const std::exception_ptr& failed) {
  Json mine;
  if (!failed) {
    mine["version"] = request_.version;
    mine["config"] = config.to_json();
    mine["config"]["data"].erase("folder");  // a machine may have it elsewhere
    mine["data"] = identity["data"];
    mine["data"].erase("folder");
    mine["tokenizer_sha256"] = identity["tokenizer_sha256"];
  }
  agree_to_begin(comm_, mine, failed);
  if (comm_.alone()) return;
  Json from;
  if (checkpoint) from = Json{{"step", checkpoint->step}, {"folder", checkpoint->folder}};
  from = parse_json(comm_.broadcast_text(to_line(from)));
  if (!from.is_null())
    checkpoint = CheckpointEntry{from["step"].get<Index>(), from["folder"].get<std::string>()};
}

}  // namespace ddl
