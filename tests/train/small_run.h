// What the tests of training share: a small generated dataset and a configuration that trains in a moment.
#pragma once

#include <string>

#include "core/record.h"
#include "data/dataset.h"
#include "data/generated_corpus.h"
#include "data/prepare.h"
#include "io/file.h"
#include "test_folder.h"
#include "train/run.h"
#include "train/run_config.h"

namespace ddl {

// One thread: a process that has not started OpenMP's may fork.
inline const Exec kOneThread{};

// Overwrite episodes ("a=3 b=7 a=5 b?7 a?5") in bytes, with their answers marked.
inline std::string make_data(const TestFolder& folder, const std::string& name = "data",
                             Index documents = 120, std::uint64_t seed = 1) {
  OverwriteOptions options;
  options.statements = 12;
  options.keys = 3;
  const std::string text = folder / (name + ".jsonl");
  write_generated(text, documents, kOneThread, [&](Index i) { return generate_overwrite(options, seed, i); });
  PrepareOptions prepare;
  prepare.inputs = {text};
  prepare.out = folder / name;
  prepare.val_fraction = 0.2;
  prepare_dataset(prepare, *load_tokenizer("bytes"), kOneThread);
  return prepare.out;
}

// Two layers of 32 features, 48 tokens of context; a step takes a few milliseconds.
inline std::vector<std::string> small_sets(std::vector<std::string> more = {}) {
  std::vector<std::string> sets = {"model.layers=2",           "model.width=32",  "model.heads=2",
                                   "model.context=48",         "train.batch=4",   "train.warmup=2",
                                   "model.precision=f32",      "eval.windows=6",  "eval.every=2",
                                   "checkpoint.every_steps=0", "log.floor=false", "log.gates_every=2"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

inline RunRequest small_request(const std::string& data, const std::string& out,
                                std::vector<std::string> sets = {}) {
  RunRequest request;
  request.data = data;
  request.out = out;
  request.sets = small_sets(std::move(sets));
  request.style = Console::Style::kSilent;
  return request;
}

inline RunRequest resume_request(const std::string& out, std::vector<std::string> sets = {}) {
  RunRequest request;
  request.out = out;
  request.sets = std::move(sets);
  request.resume = true;
  request.style = Console::Style::kSilent;
  return request;
}

inline RunOutcome run(const RunRequest& request) {
  const StopSignals signals;
  return run_training(request, signals, kOneThread);
}

inline std::vector<Json> records(const std::string& run_folder, const std::string& event) {
  std::vector<Json> found;
  const std::string text = contents_of(run_folder + "/metrics.jsonl");
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));  // the last may be being written
  for (std::string line; std::getline(lines, line);)
    if (Json record = parse_json(line); record.at("event") == event) found.push_back(std::move(record));
  return found;
}

// What must repeat bit for bit, as text with full precision: loss, gradient norm and validation of each step.
inline std::vector<std::string> trajectory(const std::string& run_folder) {
  std::vector<std::string> lines;
  for (const char* event : {"step", "validation", "gates"})
    for (const Json& r : records(run_folder, event)) {
      Json kept{{"event", event}};
      for (const char* key :
           {"step", "loss", "grad_norm", "lr", "tokens", "flops", "answer_accuracy", "sublayers"})
        if (r.contains(key)) kept[key] = r[key];
      lines.push_back(to_line(kept));
    }
  return lines;
}

}  // namespace ddl
