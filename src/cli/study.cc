// ./ddl study: answer questions about residual rules by many runs, as a file says.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/record.h"
#include "core/shell_word.h"
#include "data/dataset.h"
#include "dist/launch.h"
#include "study/agenda.h"
#include "study/study_run.h"

namespace ddl {
namespace {

struct StudyCommand {
  std::vector<std::string> files;
  std::string out;
  Index workers = 0;
  bool dry_run = false, json = false, worker = false;

  void execute() {
    if (files.size() > 1 && !out.empty())
      throw UserError("--out is the folder of one study, but {} files are given; leave it out", files.size());
    const StopSignals signals;
    for (const std::string& file : files) run(file, signals);
  }

 private:
  void run(const std::string& file, const StopSignals& signals) const {
    // A launcher's processes share the study through its folder; the first of them has the screen.
    const Launch launch = read_launch(Meeting::kNone);
    const bool shows = launch.rank == 0;
    const Exec ex = exec_of(launch);
    const Study study = read_study(file);
    const StudyFolder folder{out.empty() ? default_study_folder(file) : out};
    const std::string program = fmt::format("{} {}", kBuildInfo.version, kBuildInfo.commit);
    if (worker) {
      if (const int signal = work_on_study(study, folder, program, signals, ex))
        throw ExitWithCode(128 + signal);
      return;
    }
    const Dataset data = Dataset::open(study.data, ex);
    const StudyCosts costs(study, data, ex);
    if (workers < 0) throw UserError("--workers is {}, expected 1 or more", workers);
    const int processes = workers > 0 ? static_cast<int>(workers) : ex.threads;
    if (dry_run) {
      check_study_folder(folder, study);
      if (shows) std::fputs(plan_screen(study, folder, costs, data, processes, ex).c_str(), stdout);
      return;
    }
    open_study_folder(folder, study);
    const bool finished = make_agenda(study, Records::read(folder.records(), study)).trials.empty();
    if (shows && !json) fmt::print("{}\n", study.title);
    if (shows && !json && !finished)
      fmt::print("{}: {} worker{}{}. Ctrl-C saves and stops; the same command continues.\n", folder.path,
                 processes, processes == 1 ? "" : "s",
                 launch.ranks > 1 ? fmt::format(" on each of {} ranks", launch.ranks) : "");
    std::fflush(stdout);
    const StudyWorkers crew{processes, std::max(1, ex.threads / processes), shows};
    // Where nothing is left to train, the work is a look at the records: no other process is needed for that.
    const int signal =
        finished ? work_on_study(study, folder, program, signals, ex)
                 : supervise_study(study, folder, costs,
                                   {"ddl", "study", file, "--out", folder.path, "--worker"}, crew, signals);
    if (!shows) {
      if (signal != 0) throw ExitWithCode(128 + signal);
      return;
    }
    std::vector<std::string> problems;
    const Records records = Records::read(folder.records(), study, &problems);
    std::fputs(
        json ? (to_line(study_json(study, records)) + "\n").c_str() : answers_screen(study, records).c_str(),
        stdout);
    for (const std::string& problem : problems) fmt::print(stderr, "left out: {}\n", problem);
    if (!json && signal == 0) fmt::print("Next: ./ddl report {}\n", shell_word(folder.path));
    if (signal != 0) throw ExitWithCode(128 + signal);
  }
};

}  // namespace

void add_study_command(Command app) {
  auto c = std::make_shared<StudyCommand>();
  Command study =
      app.add_command("study", "Answer questions about residual rules by many runs, as a file says");
  study.add_option("files", c->files, "TOML files (see configs/studies/ and docs/study.md)").required();
  study.add_option("--out", c->out, "The study's folder (default: runs/studies/NAME of the file)");
  study.add_option("--workers", c->workers, "Processes that train at once (default: one per core)");
  study.add_flag("--dry-run", c->dry_run, "Print the plan with its FLOPs and time, and train nothing");
  study.add_flag("--json", c->json, "Print the answers as one JSON object at the end");
  study.add_flag("--worker", c->worker,
                 "Train until nothing is left, without a screen (what --workers starts)");
  study.on_run([c] { c->execute(); });
}

}  // namespace ddl
