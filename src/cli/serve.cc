// ./ddl serve and ./ddl watch: models behind OpenAI's API, and the page with runs.
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/record.h"
#include "io/file.h"
#include "model/engine.h"
#include "report/run_records.h"
#include "serve/server.h"

namespace ddl {
namespace {

// Blocks the signals that end a server, for this thread and those it starts, and waits for one of them.
class EndSignals {
 public:
  EndSignals() {
    std::signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // After the first, a second one ends the program as usual.
  void wait() {
    int signal = 0;
    while (sigwait(&set_, &signal) != 0) {
    }
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_, before_;
};

// From the file, or from DDL_API_KEY where none is named; "": none.
std::string read_key(const std::string& file) {
  std::string key;
  if (!file.empty())
    key = read_file(file, 4096);
  else if (const char* from_environment = std::getenv("DDL_API_KEY"))
    key = from_environment;
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if ((!file.empty() || !key.empty()) && key.size() < 16)
    throw UserError("{}: expected a key of 16 characters or more, found {}; `openssl rand -hex 32` makes one",
                    file.empty() ? "DDL_API_KEY" : file, key.size());
  return key;
}

struct ServeCommand {
  std::vector<std::string> paths;
  std::string key_file, device;
  ServeOptions options;
  bool json = false;
  double grace = 30;

  void add_options(Command& command) {
    HttpOptions& http = options.http;
    command.add_option("--port", http.port, "0: any that is free").range(0, 65535).show_default();
    command.add_option("--host", http.host, "The address to listen at; others than this machine's need a key")
        .show_default();
    command.add_option("--api-key-file", key_file,
                       "A file with the key that clients must send (or DDL_API_KEY)");
    command
        .add_option("--allow-host", http.access.allow_hosts,
                    "Also answer to this name, behind a proxy for example (may be repeated)")
        .one_value_each();
    command.add_option("--grace", grace, "Seconds that requests under way may take after Ctrl-C or SIGTERM")
        .show_default();
    command.add_flag("--json", json, "Print the address as a JSON record");
  }

  void execute() {
    options.http.access.api_key = read_key(key_file);
    if (!json) options.models.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
    EndSignals signals;
    Server server(options, default_exec());
    say(server);
    signals.wait();
    if (!json) fmt::print(stderr, "finishing the requests under way; a second Ctrl-C ends at once\n");
    server.drain(grace);
  }

 private:
  void say(Server& server) const {
    const std::string address = server.address();
    if (json) {
      Json record = make_record("serving");
      record["address"] = address;
      record["models"] = server.models().names();
      std::puts(to_line(record).c_str());
    } else if (server.models().names().empty()) {
      fmt::print("{}/\n  curl {}/api/runs\nCtrl-C ends.\n", address, address);
    } else {
      const std::string key =
          options.http.access.api_key.empty() ? "" : " -H \"Authorization: Bearer $DDL_API_KEY\"";
      fmt::print(
          "{0}/ is the page, {0}/v1 the address for OpenAI's clients. To try it:\n"
          "  curl {0}/v1/completions -H 'Content-Type: application/json'{1} -d "
          "'{{\"model\": \"{2}\", \"prompt\": \"Once\", \"max_tokens\": 40}}'\n"
          "Ctrl-C ends.\n",
          address, key, server.models().names().front());
    }
    std::fflush(stdout);
  }
};

}  // namespace

void add_serve_command(Command app) {
  auto c = std::make_shared<ServeCommand>();
  Command serve = app.add_command("serve", "Models behind OpenAI's API, with a page to try them");
  serve.add_option("models", c->paths, "Runs, checkpoints, or folders with config.json and weights")
      .required();
  serve.add_option("--slots", c->options.models.slots, "Texts that a model writes at a time")
      .range(1, 256)
      .show_default();
  serve
      .add_option("--weights", c->options.models.load.weights,
                  "f32, bf16, q8 or q4; auto: bf16 (default: as stored, with the numbers of `ddl eval`)")
      .one_of({"auto", "f32", "bf16", "q8", "q4"});
  add_engine_options(serve, c->options.models.load.engine, c->device);
  c->add_options(serve);
  serve.on_run([c] {
    std::string& engine = c->options.models.load.engine;
    use_engine_options(engine, c->device);
    if (!engine.empty()) find_engine(engine).check_device();  // models are loaded later, in the background
    c->options.models.paths = c->paths;
    for (const std::string& path : c->paths)
      if (is_run_folder(path)) c->options.watch.push_back(path);
    c->execute();
  });
}

void add_watch_command(Command app) {
  auto c = std::make_shared<ServeCommand>();
  Command watch = app.add_command("watch", "The page with the curves of all runs in a folder, live");
  watch.add_option("folder", c->paths, "Runs, or folders with runs in them (default: runs)");
  c->add_options(watch);
  watch.on_run([c] {
    if (c->paths.empty()) c->paths = {"runs"};
    for (const std::string& path : c->paths)
      if (!std::filesystem::is_directory(path)) throw UserError("{}: there is no such folder", path);
    c->options.watch = c->paths;
    c->execute();
  });
}

}  // namespace ddl
