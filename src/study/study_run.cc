#include "study/study_run.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/progress_line.h"
#include "io/file.h"
#include "study/agenda.h"
#include "study/answers.h"
#include "study/claims.h"
#include "study/trial_runner.h"
#include "study/tuning.h"
#include "train/console.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
constexpr auto kPoll = std::chrono::milliseconds(500);
constexpr int kMostRestarts = 20;  // of workers that were killed

void note_problem(const StudyFolder& folder, const std::string& text) {
  const int file = ::open(folder.problems().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  const std::string line = text + "\n";
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
  ::close(file);
}

// Whether a trial was finished by somebody else since the agenda was made. What is no record is set aside.
bool is_finished(const Study& study, const StudyFolder& folder, const Trial& trial) {
  const std::string path = Records::path(folder.records(), trial);
  if (!fs::exists(path)) return false;
  const Json json = parse_json(read_file(path));
  try {
    if (!json.is_object()) throw UserError("{}: no JSON object", path);
    if (TrialRecord::parse(json, path).study_hash == study.hash) {
      Records::read_one(path, study);
      return true;
    }
  } catch (const UserError& error) {
    const std::string aside = set_aside(path);
    note_problem(folder, fmt::format("set aside as {}, and repeated: {}", aside, error.what()));
    return false;
  }
  throw UserError("{}: a record of another study; move it away", path);
}

// Takes the first trial that nobody works on.
std::unique_ptr<Claim> take_trial(const Study& study, const StudyFolder& folder,
                                  const std::vector<Trial>& trials, Trial& taken) {
  for (const Trial& trial : trials) {
    std::unique_ptr<Claim> claim = Claim::take(folder.claims(), trial.name());
    if (!claim || is_finished(study, folder, trial)) continue;
    taken = trial;
    return claim;
  }
  return nullptr;
}

}  // namespace

std::string default_study_folder(const std::string& file) {
  return "runs/studies/" + fs::path(file).stem().string();
}

void check_study_folder(const StudyFolder& folder, const Study& study) {
  if (fs::exists(folder.study())) check_same_study(study, read_file(folder.study()), folder.path);
}

void open_study_folder(const StudyFolder& folder, const Study& study) {
  make_folders(folder.path);
  if (!fs::exists(folder.study())) write_file_atomic(folder.study(), study.text);
  check_study_folder(folder, study);  // last: another process may have been first, with another study
}

int work_on_study(const Study& study, const StudyFolder& folder, const std::string& program,
                  const StopSignals& signals, const Exec& ex) {
  open_study_folder(folder, study);
  const Dataset data = Dataset::open(study.data, ex);
  [[maybe_unused]] const StudyCosts costs(study, data, ex);  // refuses what cannot be trained
  const TrialRunner runner{study, data, folder.runs(), program, signals, ex};
  while (signals.received() == 0) {
    const Records records = Records::read(folder.records(), study);
    for (const auto& [name, record] : records.all())
      if (record.data != data.fingerprint())
        throw UserError(
            "{}: the records of this study were made with other data than {} is now; put it back, or give "
            "another --out",
            folder.path, data.folder());
    const Agenda agenda = make_agenda(study, records);
    if (agenda.trials.empty()) {
      remove_abandoned_claims(folder.claims());
      return 0;
    }
    Trial trial;
    const std::unique_ptr<Claim> claim = take_trial(study, folder, agenda.trials, trial);
    if (!claim) {  // others are at all of them; what they find may call for more
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    try {
      const auto record =
          runner.run(trial, [&](const std::string& problem) { note_problem(folder, problem); });
      if (record) Records::write(folder.records(), *record);
    } catch (const BusyRunError&) {  // a worker that was thought dead, or somebody at work by hand
      std::this_thread::sleep_for(kPoll);
    }
  }
  return signals.received();
}

namespace {

// One worker process, its standard error kept for the message it may end with.
struct Worker {
  pid_t pid = -1;
  int errors = -1;
  std::string message;
};

Worker start_worker(const std::vector<std::string>& command, int threads) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) throw UserError("cannot make a pipe ({})", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const std::string thread_setting = std::to_string(threads);
  const pid_t pid = ::fork();
  if (pid < 0) throw UserError("cannot start a worker ({})", std::strerror(errno));
  if (pid == 0) {
    ::setpgid(0, 0);                     // Ctrl-C reaches the supervisor, which asks the workers to stop
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // and where it is killed, they stop as well
    ::dup2(pipe_ends[1], STDERR_FILENO);
    const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(nowhere, STDIN_FILENO), ::dup2(nowhere, STDOUT_FILENO);
    ::setenv("DDL_THREADS", thread_setting.c_str(), 1);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  ::fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  return {pid, pipe_ends[0], ""};
}

void read_errors(Worker& worker) {
  char text[1024];
  for (ssize_t bytes; (bytes = ::read(worker.errors, text, sizeof text)) > 0;)
    if (worker.message.size() < 20000) worker.message.append(text, static_cast<std::size_t>(bytes));
}

std::string time_left(double least_s, double most_s) {
  if (most_s < 1.3 * least_s) return "about " + format_duration(most_s) + " left";
  return fmt::format("{} to {} left", format_duration(least_s), format_duration(most_s));
}

// "12 runs done, 2 running, 46 to 120 left, 40 min to 3.2 hours left; XS, ddl-cc - wo-cc: ..."
std::string live_line(const Study& study, const StudyFolder& folder, const StudyCosts& costs, int workers,
                      std::size_t columns) {
  const Records records = Records::read(folder.records(), study);
  const Agenda agenda = make_agenda(study, records);
  const Left left = flops_left(study, records, costs);
  const auto running = claims_held(folder.claims());  // also those of other machines
  const double speed = recorded_speed(records) * std::max<double>(workers, static_cast<double>(running));
  std::vector<LinePart> parts = {{fmt::format("{} done, {} running, {} to {} to go", records.all().size(),
                                              running, agenda.least_left, agenda.most_left),
                                  0}};
  if (speed > 0 && left.most > 0) parts.push_back({time_left(left.least / speed, left.most / speed), 1});
  // The first question, at the largest size that has an answer to it.
  std::string answer;
  for (const StudySize& size : study.sizes) {
    if (!is_asked(study.questions.front(), size)) continue;
    const Answer now = answer_question(study, records, size, study.questions.front());
    if (answer.empty() || now.differences.size() > 1) answer = now.line(study.metric);
  }
  parts.push_back({answer, 2});
  return fit_line(std::move(parts), "; ", columns);
}

}  // namespace

int supervise_study(const Study& study, const StudyFolder& folder, const StudyCosts& costs,
                    const std::vector<std::string>& command, const StudyWorkers& workers,
                    const StopSignals& signals) {
  const bool terminal = workers.shown && ::isatty(STDERR_FILENO) != 0;
  const double every = terminal ? 2 : 60;
  std::vector<Worker> running;
  for (int i = 0; i < workers.count; ++i) running.push_back(start_worker(command, workers.threads));
  int restarts = 0;
  bool told = false;
  std::string error;
  double shown_at = 0;
  const auto stop_all = [&] {
    if (told) return;
    for (const Worker& worker : running) ::kill(worker.pid, SIGTERM);
    told = true;
  };
  while (!running.empty()) {
    if (signals.received() != 0) stop_all();
    for (auto worker = running.begin(); worker != running.end();) {
      read_errors(*worker);
      int status = 0;
      if (::waitpid(worker->pid, &status, WNOHANG) != worker->pid) {
        ++worker;
        continue;
      }
      read_errors(*worker);
      ::close(worker->errors);
      // Killed, or asked to stop by somebody else.
      const int signal = WIFSIGNALED(status)         ? WTERMSIG(status)
                         : WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128
                                                     : 0;
      const bool killed = signal != 0 && !told;
      if (killed) note_problem(folder, fmt::format("a worker was stopped by signal {}", signal));
      if (killed && restarts++ < kMostRestarts) {
        *worker = start_worker(command, workers.threads);
        ++worker;
        continue;
      }
      const bool failed = killed || (WIFEXITED(status) && WEXITSTATUS(status) != 0 && !told);
      if (failed && error.empty())
        error = worker->message.empty() ? "a worker ended without a message" : worker->message;
      worker = running.erase(worker);
      if (failed) stop_all();
    }
    if (workers.shown && now() - shown_at >= every && !running.empty()) {
      shown_at = now();
      const std::string line = live_line(study, folder, costs, workers.count, line_columns(stderr));
      fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
      std::fflush(stderr);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!error.empty()) {
    error = error.substr(0, error.find_last_not_of('\n') + 1);
    throw UserError("{}", error.starts_with("ddl: ") ? error.substr(5) : error);
  }
  return signals.received();
}

std::string plan_screen(const Study& study, const StudyFolder& folder, const StudyCosts& costs,
                        const Dataset& data, int workers, const Exec& ex) {
  const Records records = Records::read(folder.records(), study);
  std::string text = fmt::format("{}\n{}  (hash {})\n\n", study.title, study.path, study.hash.substr(0, 12));
  text += "size  arm             parameters   tokens per run   FLOPs per run   runs to tune   to confirm\n";
  double s_least = 0, s_most = 0, flops_least = 0, flops_most = 0;
  for (const StudySize& size : study.sizes) {
    const double speed =
        measured_speed(study, size, data, {std::max(1, ex.threads / workers), nullptr}) * workers;
    for (const std::string& arm : size.arms) {
      const ArmAgenda need = arm_agenda(study, records, size, arm);
      const TrialCost &tune = costs.of(size.name, arm, Stage::kTune),
                      &confirm = costs.of(size.name, arm, Stage::kConfirm);
      text += fmt::format("{:<5} {:<15} {:>10} {:>16} {:>15.3g} {:>14} {:>9} to {}\n", size.name, arm,
                          format_count(static_cast<double>(tune.parameters)),
                          format_count(static_cast<double>(confirm.tokens)), confirm.flops, need.tuning_left,
                          need.confirm_now, need.confirm_most);
      const double least = static_cast<double>(need.tuning_left) * tune.flops +
                           static_cast<double>(need.confirm_now) * confirm.flops;
      const double most = static_cast<double>(need.tuning_left) * tune.flops +
                          static_cast<double>(need.confirm_most) * confirm.flops;
      flops_least += least, flops_most += most;
      s_least += least / speed, s_most += most / speed;
    }
  }
  const std::string least = format_duration(s_least), most = format_duration(s_most);
  if (flops_most > 0)
    text += fmt::format(
        "\nThe grids grow where the best rate lies at an end; that comes on top.\n"
        "To go: {:.3g} to {:.3g} FLOPs, {} with {} worker{} here.\n",
        flops_least, flops_most, least == most ? "about " + most : least + " to " + most, workers,
        workers == 1 ? "" : "s");
  else
    text += "\nNothing is left to train.\n";
  text += "\nQuestions:\n";
  for (const StudyQuestion& question : study.questions)
    text += fmt::format("  {} {} against {}{}{}\n", question.text, question.a, question.b,
                        question.match == StudyQuestion::Match::kFlops ? ", at equal FLOPs" : "",
                        question.primary ? "  (primary)" : "");
  std::vector<std::string> looks;
  for (const Look& look : study.looks)
    looks.push_back(fmt::format("{} pairs (p {:g})", look.pairs, look.nominal_p));
  text += fmt::format("Looks after {}; margin {:g}.\n", fmt::join(looks, ", "), study.margin);
  return text;
}

std::string answers_screen(const Study& study, const Records& records) {
  std::string text;
  for (const StudySize& size : study.sizes) {
    text += fmt::format("{}: best learning rates\n", size.name);
    for (const std::string& arm : size.arms) {
      const Tuning tuning = tune(study, size, study.arm(arm), records);
      text +=
          fmt::format("  {:<15} {}\n", arm,
                      tuning.fixed     ? fmt::format("{:g}, fixed by the study", tuning.rate)
                      : tuning.settled ? fmt::format("{:g}, starting scale {:g}{}", tuning.rate, tuning.scale,
                                                     tuning.at_limit ? " (at the end of the grid)" : "")
                                       : fmt::format("not settled, {} cells so far", tuning.cells.size()));
    }
  }
  text += "Answers (negative: lower loss; intervals hold over all looks)\n";
  for (const Answer& answer : answer_questions(study, records))
    text += fmt::format("  {}{}\n", answer.line(study.metric), answer.question.primary ? "  (primary)" : "");
  return text;
}

Json study_json(const Study& study, const Records& records) {
  Json json{{"format", "ddl-study"}, {"version", 1}, {"title", study.title}, {"hash", study.hash}};
  json["trials"] = records.all().size();
  const Agenda agenda = make_agenda(study, records);
  json["left"] = Json{{"least", agenda.least_left}, {"most", agenda.most_left}};
  json["tuning"] = Json::array();
  for (const StudySize& size : study.sizes)
    for (const std::string& arm : size.arms) {
      const Tuning tuning = tune(study, size, study.arm(arm), records);
      Json cells = Json::array();
      for (const TuningCell& cell : tuning.cells)
        cells.push_back(
            Json{{"rate", cell.rate}, {"scale", cell.scale}, {"losses", cell.losses}, {"mean", cell.mean}});
      json["tuning"].push_back(Json{{"size", size.name},
                                    {"arm", arm},
                                    {"settled", tuning.settled},
                                    {"fixed", tuning.fixed},
                                    {"rate", tuning.rate},
                                    {"scale", tuning.scale},
                                    {"cells", cells}});
    }
  json["answers"] = answers_json(answer_questions(study, records));
  return json;
}

}  // namespace ddl
