#include "cli/describe_model.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "core/json_fields.h"
#include "core/shell_word.h"
#include "data/progress_line.h"
#include "data/tokenizer.h"
#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "model/plan.h"
#include "model/reference_layout.h"
#include "model/residual/registry.h"
#include "model/stored_model.h"
#include "train/checkpoint_saver.h"
#include "train/console.h"
#include "train/run_config.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

// As `ddl export --layout` calls it.
const char* layout_name(StoredLayout layout) {
  switch (layout) {
    case StoredLayout::kOwn:
      return "own";
    case StoredLayout::kReleased:
      return "reference";
    case StoredLayout::kTransformers:
    case StoredLayout::kHunyuan:
      return "transformers";
  }
  return "";
}

namespace fs = std::filesystem;

// The newest record of an event in metrics.jsonl; null where there is none.
Json last_record(const std::string& metrics, const std::string& event) {
  const std::size_t at = metrics.rfind(fmt::format("\"event\":\"{}\"", event));
  if (at == std::string::npos) return nullptr;
  const std::size_t before = metrics.rfind('\n', at), begin = before == std::string::npos ? 0 : before + 1;
  Json record = parse_json(std::string_view(metrics).substr(begin, metrics.find('\n', at) - begin));
  return record.is_object() ? record : Json(nullptr);
}

Json part(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) ? json[key] : Json(nullptr);
}

class Description {
 public:
  explicit Description(const std::string& path) : path_(path) {
    is_run_ = fs::exists(path + "/config.toml") && !fs::exists(path + "/config.json");
    if (!is_run_ || !list_checkpoints(path + "/checkpoints").empty()) stored_.emplace(path);
    if (is_run_)
      config_ = load_run_config({"", read_file(path + "/config.toml"), "", {}});
    else
      config_.model = stored_->config();
    if (stored_ && fs::exists(stored_->folder() + "/trainer.json"))
      trainer_ = read_trainer_json(stored_->folder());
    run_ = is_run_ ? path : trainer_.is_null() ? "" : run_of(stored_->folder());
  }

  Json json() {
    Json j = make_record("info");
    j["path"] = path_;
    j["kind"] = is_run_ ? "run" : trainer_.is_null() ? "model" : "checkpoint";
    j["weights"] = stored_ ? Json(stored_->folder()) : Json(nullptr);
    if (stored_) j["layout"] = layout_name(stored_->layout());
    add_model(j);
    add_training(j);
    add_data(j);
    if (is_run_) {
      j["checkpoints"] = Json::array();
      for (const CheckpointEntry& entry : list_checkpoints(path_ + "/checkpoints"))
        j["checkpoints"].push_back(entry.step);
    }
    add_next(j);
    return j;
  }

 private:
  // The run a checkpoint lies in; empty where it has been moved out of one.
  static std::string run_of(const std::string& checkpoint) {
    const fs::path run = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
    return fs::exists(run / "config.toml") ? run.string() : "";
  }

  void add_model(Json& j) {
    const ModelConfig& c = config_.model;
    const ModelPlan plan = plan_model(c, {1, c.context});
    ModelConfig copy = c;
    Options options;
    copy.describe(options);
    j["config"] = options.to_json()["model"];
    j["summary"] = find_rule(c.residual()).summary;
    j["head_size"] = c.head_size();
    j["mlp_width"] = c.mlp_width();
    j["parameters"] = plan.table.parameter_count();
    j["weight_format"] = info(stored_ ? stored_->format() : WeightFormat::kF32).name;
    j["parameters_by_part"] = Json::object();
    for (const auto& [name, count] : parameters_by_part(plan.table)) j["parameters_by_part"][name] = count;
    j["flops_per_token"] = {{"forward", plan.forward.total()}, {"backward", plan.backward.total()}};
    j["decode_cache_bytes_per_token"] = plan.cache_bytes_per_token;
    j["decode_cache_bytes_per_sequence"] = plan.cache_bytes_per_sequence;
    not_in_reference_ = why_not_in_reference(c);
    const std::string tokenizer = stored_ ? stored_->folder() + "/tokenizer.json" : "";
    const bool has_tokenizer = !tokenizer.empty() && fs::exists(tokenizer);
    j["tokenizer"] = has_tokenizer ? Json(load_tokenizer(tokenizer)->name()) : Json(nullptr);
  }

  void add_training(Json& j) {
    if (!trainer_.is_null()) JsonFields(trainer_, stored_->folder() + "/trainer.json").object("progress");
    Json training = part(trainer_, "progress");
    if (training.is_null() && !is_run_) return;
    if (training.is_null()) training = Json{{"step", 0}};
    const Json planned = part(part(trainer_, "config"), "train");
    training["steps"] = is_run_ ? Json(config_.train.steps) : part(planned, "steps");
    if (is_run_ && fs::exists(path_ + "/metrics.jsonl")) {
      const std::string metrics = read_file(path_ + "/metrics.jsonl", kMetricsBytes);
      const Json step = last_record(metrics, "step"), validation = last_record(metrics, "validation");
      // What happened since the newest checkpoint counts too.
      for (const char* key :
           {"step", "loss", "tokens", "epoch", "flops", "elapsed_s", "tokens_per_s", "floor_share"})
        if (const Json value = part(step, key); !value.is_null()) training[key] = value;
      if (!validation.is_null()) {
        Json& last = training["last_validation"];
        last = Json::object();
        for (const char* key : {"step", "loss", "perplexity", "answer_accuracy", "exact_answers"})
          if (const Json value = part(validation, key); !value.is_null()) last[key] = value;
      }
    }
    j["training"] = training;
  }

  void add_data(Json& j) {
    Json identity = part(trainer_, "identity");
    if (identity.is_null() && is_run_ && fs::exists(path_ + "/run.json"))
      identity = parse_json(read_file(path_ + "/run.json"));
    Json data = part(identity, "data");
    if (!data.is_object()) return;
    data.erase("fingerprint");
    data["present"] = part(data, "folder").is_string() && fs::is_directory(data["folder"].get<std::string>());
    j["data"] = data;
    if (const Json from = part(identity, "started_from"); !from.is_null()) j["started_from"] = from;
  }

  void add_next(Json& j) {
    const std::string here = shell_word(path_);
    Json next = Json::object();
    if (stored_)
      next["generate"] = fmt::format("./ddl generate {}{} --prompt \"Once\"", here,
                                     j["tokenizer"].is_null() ? " --tokenizer DIR" : "");
    if (!run_.empty()) {
      const Json training = part(j, "training");
      const Json step = part(training, "step"), steps = part(training, "steps");
      const bool done = step.is_number() && steps.is_number() && step >= steps;
      next["continue"] =
          fmt::format("./ddl train --resume --out {}{}", shell_word(run_),
                      done ? fmt::format(" --set train.steps={}", 2 * steps.get<Index>()) : "");
    } else if (stored_) {
      next["continue"] = fmt::format("./ddl train --from {} --data DATA --out RUN", here);
    }
    if (stored_ && stored_->layout() != StoredLayout::kOwn)
      next["import"] = fmt::format("./ddl import {} --out DIR", here);
    else if (stored_)
      next["export"] = fmt::format("./ddl export {} --out DIR", here);
    j["next"] = next;
    j["not_in_reference"] = not_in_reference_.empty() ? Json(nullptr) : Json(not_in_reference_);
  }

  const std::string path_;
  bool is_run_ = false;
  std::string run_;
  std::optional<StoredModel> stored_;
  RunConfig config_;
  Json trainer_;  // null where there is none
  std::string not_in_reference_;
};

// --- the screen

double number(const Json& json, const char* key) {
  const Json value = part(json, key);
  return value.is_number() ? value.get<double>() : NAN;
}

std::string shown_validation(const Json& v) {
  if (!v.is_object()) return "none yet";
  const double loss = number(v, "loss");
  return fmt::format("{:.4f} (perplexity {:.4g}) at step {}", loss, std::exp(loss), to_line(part(v, "step")));
}

std::string training_line(const Json& t) {
  std::string line = fmt::format("step {} of {}", to_line(part(t, "step")), to_line(part(t, "steps")));
  const auto add = [&](const char* key, auto shown) {
    if (const double value = number(t, key); std::isfinite(value)) line += ", " + shown(value);
  };
  add("tokens", [](double v) { return format_count(v) + " tokens"; });
  add("epoch", [](double v) { return fmt::format("{:.2f} epochs", v); });
  add("flops", [](double v) { return fmt::format("{:.3g} FLOPs", v); });
  add("elapsed_s", [](double v) { return format_seconds(v); });
  add("tokens_per_s", [](double v) { return fmt::format("{:.0f} tokens/s at the end", v); });
  add("floor_share", [](double v) { return fmt::format("{:.0f}% of the GEMM floor", 100 * v); });
  if (number(t, "skipped") > 0) line += fmt::format(", {} updates skipped", to_line(part(t, "skipped")));
  return line;
}

std::string data_line(const Json& d) {
  return fmt::format("{} ({}): {} tokens to train on, {} to validate on{}",
                     part(d, "folder").is_string() ? d["folder"].get<std::string>() : "?",
                     part(d, "form").is_string() ? d["form"].get<std::string>() : "?",
                     format_count(number(d, "train_tokens")), format_count(number(d, "val_tokens")),
                     part(d, "present") == true ? "" : "; not there now");
}

}  // namespace

std::map<std::string, Index> parameters_by_part(const ParamTable& table) {
  const auto part_of = [](const std::string& name) {  // "transformer.h.3.attn.c_q.weight" is "attention"
    if (name.find(".attn.") != std::string::npos) return "attention";
    if (name.find(".mlp.") != std::string::npos) return "MLP";
    if (name.find("wte") != std::string::npos) return "embedding (tied head)";
    if (name.find("ln_") != std::string::npos) return "norms";
    return "residual rule";
  };
  std::map<std::string, Index> parts;
  for (const Param& p : table.list()) parts[part_of(p.name)] += p.count;
  return parts;
}

Json describe_model(const std::string& path) {
  expect_model_folder(path);
  return Description(path).json();
}

std::string model_screen(const Json& d) {
  std::string text;
  const auto line = [&](const std::string& label, const std::string& value) {
    text += fmt::format("{:<12} {}\n", label, value);
  };
  const Json& c = d["config"];
  const std::string kind = d["kind"], weights = d["weights"].is_null() ? "" : d["weights"].get<std::string>();
  const std::string what = kind == "run"          ? "a run"
                           : kind == "checkpoint" ? "a checkpoint of a run"
                                                  : "a model";
  const std::string where = weights.empty()                           ? "; no checkpoint yet"
                            : weights != d["path"].get<std::string>() ? "; weights in " + weights
                            : d["layout"] == "reference"              ? " in the paper's released layout"
                                                                      : "";
  text += fmt::format("{}: {}{}\n", d["path"].get<std::string>(), what, where);
  text += fmt::format("{}: {}\n\n", c["residual"].get<std::string>(), d["summary"].get<std::string>());
  line("model",
       fmt::format("{} layers, width {}, {} heads of {}, MLP {}, vocabulary {}, context {}",
                   to_line(c["layers"]), to_line(c["width"]), to_line(c["heads"]), to_line(d["head_size"]),
                   to_line(d["mlp_width"]), to_line(c["vocab"]), to_line(c["context"])));
  const double parameters = d["parameters"];
  std::string parts;
  for (const auto& [name, count] : d["parameters_by_part"].items())
    parts +=
        fmt::format("{}{} {:.1f}%", parts.empty() ? "" : ", ", name, 100 * count.get<double>() / parameters);
  const std::string format = d["weight_format"];
  line("parameters", fmt::format("{}, {} in f32{}: {}", to_line(d["parameters"]),
                                 format_bytes(4 * d["parameters"].get<std::size_t>()),
                                 format == "f32" ? "" : fmt::format(" (stored as {})", format), parts));
  line("cost",
       fmt::format(
           "{:.2f} MFLOP per token forward, {:.2f} backward; decoding keeps {} per token, {} per sequence",
           d["flops_per_token"]["forward"].get<double>() / 1e6,
           d["flops_per_token"]["backward"].get<double>() / 1e6,
           format_bytes(d["decode_cache_bytes_per_token"].get<std::size_t>()),
           format_bytes(d["decode_cache_bytes_per_sequence"].get<std::size_t>())));
  if (!weights.empty())
    line("tokenizer", d["tokenizer"].is_null() ? "none in the folder" : d["tokenizer"].get<std::string>());
  if (const Json t = part(d, "training"); t.is_object()) {
    line("training", training_line(t));
    const Json last = part(t, "last_validation"), best = part(t, "best_validation");
    std::string losses = "validation " + shown_validation(last);
    if (best.is_object() && last.is_object() && part(best, "step") != part(last, "step"))
      losses += fmt::format("; best {:.4f} at step {}", number(best, "loss"), to_line(part(best, "step")));
    if (std::isfinite(number(t, "loss"))) losses += fmt::format("; training {:.4f}", number(t, "loss"));
    line("loss", losses);
    if (const double exact = number(last, "exact_answers"); std::isfinite(exact))
      line("answers", fmt::format("{:.1f}% right", 100 * exact));
  }
  if (const Json data = part(d, "data"); data.is_object()) line("data", data_line(data));
  if (const Json from = part(d, "started_from"); from.is_string())
    line("started from", from.get<std::string>());
  if (const Json steps = part(d, "checkpoints"); steps.is_array() && !steps.empty()) {
    std::string list;
    for (const Json& step : steps) list += fmt::format("{}{}", list.empty() ? "step " : ", ", to_line(step));
    line("checkpoints", list);
  }
  text += "\n";
  for (const auto& [name, command] : d["next"].items()) line(name, command.get<std::string>());
  if (d["not_in_reference"].is_string())
    line("", fmt::format("(not in the released layout: {})", d["not_in_reference"].get<std::string>()));
  return text;
}

}  // namespace ddl
