// Kills the program (SIGKILL) at random moments, then resumes or repeats the command until it ends: over and over,
// for a number of seconds. In the end there must be what an undisturbed program leaves, byte for byte.
//   sabotage_kill PROGRAM [SECONDS [SEED]]
#include <algorithm>
#include <map>
#include <set>

#include "core/json.h"
#include "core/rng.h"
#include "process.h"

namespace sabotage {
namespace {

namespace fs = std::filesystem;
using ddl::Json;

struct Count {
  int rounds = 0, kills = 0, lost = 0;
};

class Attack {
 public:
  explicit Attack(const Arguments& arguments)
      : program_(arguments.program), seconds_(arguments.seconds), random_(arguments.seed, "sabotage kill") {
    well({"data", "generate", "overwrite", "--docs", "300", "--statements", "12", "--keys", "3", "--out",
          "in.jsonl"});
    prepare_seconds_ = well(prepare("set"));
    train_seconds_ = well(train("whole", false));
    std::string rows;
    for (int i = 0; i < kDocuments; ++i)
      rows += "{\"goal\":\"goal " + std::to_string(i) +
              "\",\"sol1\":\"a\",\"sol2\":\"b c\",\"label\":" + std::to_string(i % 2) + "}\n";
    write(folder_ / "tasks/piqa/validation.jsonl", rows);
    eval_seconds_ = well(eval("whole.jsonl"));
    result_ = last_result();
    write(folder_ / "study.toml", kStudy);
    study_seconds_ = well(study_command("whole-study"));
  }

  int run() {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds_);
    Count trained, prepared, evaluated, studied;
    while (Clock::now() < end) {
      round(
          trained, train_seconds_, [&](bool again) { return train("run", again); },
          [&] { return check_train(); });
      round(
          prepared, prepare_seconds_, [&](bool) { return prepare("copy"); }, [&] { return check_prepare(); });
      round(
          evaluated, eval_seconds_, [&](bool) { return eval("samples.jsonl"); },
          [&] { return check_eval(); });
      round(
          studied, study_seconds_, [&](bool) { return study_command("study"); },
          [&] { return check_study(); });
    }
    const auto show = [](const char* name, const Count& c) {
      std::printf("%s: killed %d times in %d rounds, %d with a loss\n", name, c.kills, c.rounds, c.lost);
    };
    show("train", trained);
    show("data prepare", prepared);
    show("eval --samples", evaluated);
    show("study", studied);
    const bool killed = trained.kills > 0 && prepared.kills > 0 && evaluated.kills > 0 && studied.kills > 0;
    return trained.lost + prepared.lost + evaluated.lost + studied.lost > 0 || !killed ? 1 : 0;
  }

 private:
  static constexpr int kDocuments = 300, kSteps = 40, kMaxKills = 6;

  double well(const Command& command) {
    const auto begin = Clock::now();
    program_.run_well(folder_.path(), command);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  static Command train(const std::string& out, bool resume) {
    Command command = train_command("set", out,
                                    {"train.steps=" + std::to_string(kSteps), "train.accumulate=2",
                                     "checkpoint.every_steps=3", "eval.every=10", "train.ema=0.9"});
    if (resume) command.push_back("--resume");
    return command;
  }
  // --force: a kill may come when the dataset is complete already.
  static Command prepare(const std::string& out) {
    return {"data", "prepare", "in.jsonl", "--tokenizer",    "bytes", "--out",
            out,    "--name",  "set",      "--val-fraction", "0.2",   "--force"};
  }
  static Command eval(const std::string& samples) {
    return {"eval",      "whole", "--tasks", "piqa",           "--data", "tasks",
            "--samples", samples, "--json",  "--batch-tokens", "256"};
  }

  // Starts the command again after every kill; at last lets it end.
  template <class Make, class Check>
  void round(Count& count, double seconds, Make&& make, Check&& check) {
    for (const char* left : {"run", "copy", "copy.partial", "samples.jsonl", "study"})
      fs::remove_all(folder_ / left);
    ++count.rounds;
    std::string why;
    for (int kills = 0;; ++kills) {
      // A run is one once it has a configuration.
      const Command command = make(fs::exists(folder_ / "run/config.toml"));
      const auto after =
          std::chrono::microseconds(random_.below(draw_++, static_cast<std::uint64_t>(seconds * 1.1e6)));
      const Ending ending = kills < kMaxKills ? program_.run(folder_.path(), command, after)
                                              : program_.run(folder_.path(), command);
      if (ending.how == Ending::How::kSignal && ending.number == SIGKILL) {
        ++count.kills;
        continue;
      }
      if (!ending.well())
        why = as_line(command) + ": " + ending.text() + "\n" + contents_of(folder_ / "printed");
      break;
    }
    if (why.empty()) why = check();
    if (why.empty()) return;
    ++count.lost;
    std::printf("%s\n", why.c_str());
  }

  // Why `found` is not `expected`; "" where it is.
  std::string compare(const std::string& expected, const std::string& found) {
    const auto files = [&](const std::string& folder) {
      std::set<std::string> names;
      for (const auto& entry : fs::recursive_directory_iterator(folder_ / folder))
        if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), folder_ / folder).string());
      return names;
    };
    const auto names = files(expected);
    for (const std::string& name : files(found))
      if (!names.contains(name)) return found + "/" + name + " was left behind";
    for (const std::string& name : names)
      if (contents_of(folder_ / (expected + "/" + name)) != contents_of(folder_ / (found + "/" + name)))
        return found + "/" + name + " is not what it would have been";
    return "";
  }

  std::string check_train() {
    const std::string step = "/checkpoints/step-000000" + std::to_string(kSteps) + "/";
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "average.safetensors"})
      if (const std::string whole = contents_of(folder_ / ("whole" + step + file));
          whole.empty() || whole != contents_of(folder_ / ("run" + step + file)))
        return std::string("run") + step + file + " is not what it would have been";
    for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
      if (entry.path().filename().string().find('.') != std::string::npos)
        return entry.path().string() + " was left behind";
    // Each step has one record.
    std::istringstream lines(contents_of(folder_ / "run/metrics.jsonl"));
    int steps = 0;
    for (std::string line; std::getline(lines, line);)
      if (const Json record = ddl::parse_json(line);
          record.is_object() && record.value("event", "") == "step" && record.value("step", 0) != ++steps)
        return "run/metrics.jsonl: a step is missing or there twice: " + line;
    return steps == kSteps ? "" : "run/metrics.jsonl: " + std::to_string(steps) + " steps";
  }

  std::string check_prepare() {
    if (fs::exists(folder_ / "copy.partial")) return "copy.partial was left behind";
    return compare("set", "copy");
  }

  Json last_result() { return ddl::parse_json(contents_of(folder_ / "printed")).value("results", Json()); }

  std::string check_eval() {
    if (last_result() != result_ || result_.is_null())
      return "eval: other results: " + contents_of(folder_ / "printed");
    std::istringstream lines(contents_of(folder_ / "samples.jsonl"));
    std::set<int> documents;
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const Json record = ddl::parse_json(line);
      if (!record.is_object()) return "samples.jsonl: not a record: " + line;
      documents.insert(record.value("doc_id", -1));
    }
    return count == kDocuments && static_cast<int>(documents.size()) == kDocuments
               ? ""
               : "samples.jsonl: " + std::to_string(count) + " lines of " + std::to_string(documents.size()) +
                     " documents";
  }

  // Every trial has its record, with the losses it would have had, and nobody works on anything any more.
  std::string check_study() {
    const auto losses = [&](const std::string& study) {
      std::map<std::string, Json> all;
      for (const auto& entry : fs::directory_iterator(folder_ / (study + "/records"))) {
        const Json record = ddl::parse_json(contents_of(entry.path()));
        Json& kept = all[entry.path().filename().string()];
        for (const char* key : {"training", "validation", "diverged"}) kept[key] = record.value(key, Json());
        for (const Json& end : record.value("endpoints", Json::array()))
          kept["loss"].push_back(end.value("loss", 0.0));
      }
      return all;
    };
    if (fs::exists(folder_ / "study/problems.txt"))
      return "a problem: " + contents_of(folder_ / "study/problems.txt");
    for (const auto& entry : fs::directory_iterator(folder_ / "study/runs"))
      if (entry.path().string().find(".damaged") != std::string::npos) return entry.path().string();
    if (losses("study") != losses("whole-study")) return "study/records: not what they would have been";
    for (const auto& entry : fs::directory_iterator(folder_ / "study/claims"))
      if (entry.path().extension() == ".claim") return entry.path().string() + " was left behind";
    return "";
  }

  Folder folder_;
  Program program_;
  double seconds_;
  ddl::Random random_;
  std::uint64_t draw_ = 0;
  double train_seconds_ = 0, prepare_seconds_ = 0, eval_seconds_ = 0, study_seconds_ = 0;
  Json result_;
};

}  // namespace
}  // namespace sabotage

int main(int argc, char** argv) {
  try {
    return sabotage::Attack(sabotage::Arguments::parse(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the attack itself failed: %s\n", error.what());
    return 1;
  }
}
