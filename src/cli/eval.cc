// ./ddl eval: accuracy on tasks as lm-evaluation-harness measures it, and loss on text.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/ranks.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "eval/language.h"
#include "eval/model_hash.h"
#include "eval/results.h"
#include "eval/run_tasks.h"
#include "eval/scorer.h"
#include "infer/load.h"
#include "io/file.h"
#include "train/handshake.h"

namespace ddl {
namespace {

struct EvalCommand {
  std::string run;
  LoadOptions load;
  std::string device;
  std::vector<std::string> tasks, task_files, texts;
  EvalRequest request;
  ScorerOptions scorer_options;
  CorpusOptions corpus;
  Index local_ranks = 0;
  bool json = false, paper = false;

  void execute() {
    if (request.shots < 0) throw UserError("--shots: expected 0 or more, found {}", request.shots);
    if (request.limit < 0) throw UserError("--limit: expected 1 or more, found {}", request.limit);
    if (paper) check_paper_shots(request.shots);
    choose_tasks();
    if (request.tasks.empty() && texts.empty())
      throw UserError("nothing to evaluate: give --tasks NAMES --data DIR, or --text FILE");
    if (!request.tasks.empty() && request.data.empty())
      throw UserError("--tasks needs --data DIR, a folder with a folder for each task (docs/evaluation.md)");

    const Ranks ranks(local_ranks);
    const Exec ex = ranks.exec();
    const bool needs_tokenizer =
        !request.tasks.empty() || !std::all_of(texts.begin(), texts.end(), holds_token_shards);
    if (!needs_tokenizer) load.missing_tokenizer = LoadOptions::kAccept;
    const LoadedModel loaded = load_model(run, load, ex);
    check_same_weights(ranks.comm(), loaded.weights);
    Scorer scorer(loaded.weights, scorer_options, ex, ranks.comm());
    if (!ranks.comm().leads()) return scorer.serve();
    request.context = scorer.config().context;
    if (!json) request.progress = stderr;
    if (const std::string note = slow_weights_note(loaded.weights); !json && !note.empty())
      fmt::print(stderr, "{}\n", note);
    if (!request.tasks.empty()) evaluate_tasks(loaded, scorer, ex);
    for (const std::string& text : texts) evaluate_text(loaded, scorer, text, ex);
  }

 private:
  void choose_tasks() {
    std::vector<Task> custom;
    for (const std::string& file : task_files) custom.push_back(parse_task(read_file(file), file));
    std::vector<std::string> names = tasks;
    if (names.empty())
      for (const Task& task : custom) names.push_back(task.name);
    request.tasks = find_tasks(names, custom);
  }

  void evaluate_tasks(const LoadedModel& loaded, Scorer& scorer, const Exec& ex) {
    const std::string numbers = loaded.weights.numbers();
    request.model_hash =
        hash_model_folder(loaded.folder, numbers, load.tokenizer.empty() ? nullptr : loaded.tokenizer.get());
    const auto score = [&](std::span<const ScoreRequest> requests, Scorer::Scored scored) {
      scorer.score(requests, scored);
    };
    const EvalReport report = run_tasks(request, *loaded.tokenizer, score, ex);
    if (json) {
      Json record = report_json(report);
      record["model"] = {{"folder", loaded.folder}, {"hash", request.model_hash}, {"numbers", numbers}};
      record["seconds"] = scorer.cost().seconds;
      if (paper) record["paper"] = paper_json(request.shots);
      std::puts(to_line(record).c_str());
      return;
    }
    fmt::print("{} ({}, {})\n{}", loaded.folder, loaded.weights.config().residual(), numbers,
               report_table(report));
    if (paper) fmt::print("{}", paper_table(report, loaded.weights.config().residual()));
    const Scorer::Cost& cost = scorer.cost();
    if (cost.seconds > 0)
      fmt::print(stderr, "{} requests, {} tokens after sharing, {:.1f} s, {:.0f} tokens/s\n", cost.requests,
                 cost.tokens, cost.seconds, static_cast<double>(cost.tokens) / cost.seconds);
  }

  void evaluate_text(const LoadedModel& loaded, Scorer& scorer, const std::string& text, const Exec& ex) {
    const LanguageReport report =
        evaluate_language(scorer, loaded.tokenizer.get(), text,
                          {.limit = request.limit, .corpus = corpus, .progress = request.progress}, ex);
    for (const std::string& message : report.bad_first) fmt::print(stderr, "left out: {}\n", message);
    if (json)
      std::puts(to_line(report.json()).c_str());
    else
      fmt::print("{}", report.table());
  }
};

}  // namespace

void add_eval_command(Command app) {
  auto c = std::make_shared<EvalCommand>();
  Command eval =
      app.add_command("eval", "Accuracy on tasks as lm-evaluation-harness measures it, and loss on text");
  eval.add_option("run", c->run, "A run, a checkpoint, or a folder with config.json and weights").required();
  eval.add_option("--tasks", c->tasks, "Names with commas between, or all (the paper's eight)")
      .separated_by(',')
      .one_value_each();
  eval.add_option("--data", c->request.data, "The folder with a folder for each task (docs/evaluation.md)");
  eval.add_option("--task-file", c->task_files, "A task of your own, in TOML; may be repeated")
      .one_value_each();
  eval.add_option("--text", c->texts,
                  "Loss on a text file, a folder of texts, or token shards; may be repeated")
      .one_value_each();
  eval.add_option("--field", c->corpus.field, "The field of JSON Lines, CSV, TSV and Parquet with the text")
      .show_default();
  eval.add_option("--skip-bad", c->corpus.skip_bad, "Bad rows of a text to leave out before it is an error")
      .non_negative()
      .show_default();
  add_engine_options(eval, c->load.engine, c->device);
  eval.add_option("--tokenizer", c->load.tokenizer, "A tokenizer, where the model's folder has none");
  eval.add_option("--shots", c->request.shots, "Examples before each question").show_default();
  eval.add_option("--limit", c->request.limit, "Only the first documents of each task or text; 0: all")
      .show_default();
  eval.add_option("--batch-tokens", c->scorer_options.batch_tokens,
                  "Tokens computed at a time: memory against speed, the scores are the same")
      .show_default();
  eval.add_option("--samples", c->request.samples,
                  "A file with a line for every document; an interrupted evaluation continues from it");
  add_ranks_option(eval, c->local_ranks);
  eval.add_flag("--strict", c->request.strict,
                "A task without its data, or a document that does not fit, is an error (default: left out)");
  eval.add_flag("--paper", c->paper, "The paper's results next to ours");
  eval.add_option("--weights", c->load.weights, "auto, f32, bf16, q8 or q4 (default: as stored)")
      .one_of({"auto", "f32", "bf16", "q8", "q4"});
  eval.add_option("--precision", c->load.precision, "auto, f32 or bf16 (default: as trained)")
      .one_of({"auto", "f32", "bf16"});
  eval.add_flag(
      "--json", c->json,
      "One JSON record per line: of the tasks, with lm-evaluation-harness's keys, and of each text");
  eval.on_run([c] {
    use_engine_options(c->load.engine, c->device);
    c->execute();
  });
}

}  // namespace ddl
