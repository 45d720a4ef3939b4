// What the package deepdelta has of the program: models, scores, traces, training, evaluation, recorded metrics. Arrays are
// numpy's own: numbers that C++ made are handed over, not copied. The documentation is that of deepdelta/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/signal_stack.h"
#include "eval/results.h"
#include "eval/run_tasks.h"
#include "eval/score_text.h"
#include "eval/scorer.h"
#include "infer/generation.h"
#include "infer/load.h"
#include "infer/trace.h"
#include "model/engine.h"
#include "report/metrics_table.h"
#include "train/run.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ddl {
namespace {

using TokenArray = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<nb::numpy, T>;

// numpy owns the numbers from here on.
template <class T>
Array<T> hand_over(std::vector<T>&& numbers, const std::vector<std::size_t>& shape) {
  auto* kept = new std::vector<T>(std::move(numbers));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Array<T>(kept->data(), shape.size(), shape.data(), owner);
}

std::span<const std::int32_t> view(const TokenArray& tokens) { return {tokens.data(), tokens.shape(0)}; }

Exec exec_with(int threads) {
  Exec ex = default_exec();
  if (threads > 0) ex.threads = threads;
  return ex;
}

// While one lives, other threads of Python run, and a signal does no harm to what is computed here.
struct Computing {
  nb::gil_scoped_release released;
  SignalStack signal_stack;
};

// A signal only leaves a note for Python, which reads it when it runs. So long computations let it, a few times a second:
// after a Ctrl-C they end with KeyboardInterrupt.
class Interruption {
 public:
  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point next_{};
};

class PythonModel {
 public:
  PythonModel(const std::string& path, const std::string& precision, const std::string& tokenizer,
              int threads)
      : ex_(exec_with(threads)), loaded_([&] {
          const Computing computing;
          return load_model(path,
                            {.precision = precision,
                             .engine = "",
                             .tokenizer = tokenizer,
                             .missing_tokenizer = LoadOptions::kAccept},
                            ex_);
        }()) {}

  const ModelConfig& config() const { return loaded_.weights.config(); }
  const LoadedModel& loaded() const { return loaded_; }
  const Exec& exec() const { return ex_; }

  const Tokenizer& tokenizer() const {
    if (!loaded_.tokenizer)
      throw UserError("{}: there is no tokenizer.json; name a tokenizer (load(path, tokenizer=...))",
                      loaded_.folder);
    return *loaded_.tokenizer;
  }

  std::string config_json() const {
    ModelConfig copy = config();
    Options options;
    copy.describe(options);
    return to_line(options.to_json()["model"]);
  }

  Array<std::int32_t> encode(const std::string& text, bool begin) const {
    std::vector<TokenId> ids;
    if (begin) ids.push_back(tokenizer().end_of_text());
    tokenizer().encode(text, ids);
    std::vector<std::int32_t> tokens(ids.begin(), ids.end());
    const std::size_t count = tokens.size();
    return hand_over(std::move(tokens), {count});
  }

  nb::bytes decode(const TokenArray& tokens) const {
    const std::string text =
        tokenizer().decode(std::vector<TokenId>(tokens.data(), tokens.data() + tokens.shape(0)));
    return nb::bytes(text.data(), text.size());
  }

  std::vector<std::string> generate(const std::string& prompt, Index count, const GenerateOptions& options,
                                    const std::function<void(const std::string&)>& on_text) {
    // In this order: who waits for the model must not hold what the one that computes needs to call back.
    const Computing computing;
    const std::lock_guard lock(one_at_a_time_);
    const Index slots = std::min<Index>(count, 16);
    if (!decoder_ || decoder_slots_ != slots) {
      decoder_.reset();
      decoder_ = make_decoder(loaded_.weights, {.slots = slots}, ex_);
      decoder_slots_ = slots;
    }
    Interruption interruption;
    const auto text = [&](Index, std::string_view piece) {
      interruption.look();
      if (!on_text) return;
      const nb::gil_scoped_acquire held;
      on_text(std::string(piece));
    };
    std::vector<std::string> texts;
    for (Generation& g : ddl::generate(*decoder_, tokenizer(), prompt, count, options, {.text = text}, ex_))
      texts.push_back(std::move(g.text));
    return texts;
  }

  // Of tokens[1:].
  Array<double> logprobs(const TokenArray& tokens) {
    std::vector<double> numbers;
    {
      const Computing computing;
      Interruption interruption;
      score_text(
          loaded_.weights, view(tokens), {},
          [&](const ScoredToken& t) {
            interruption.look();
            numbers.push_back(t.log_probability);
          },
          ex_);
    }
    const std::size_t count = numbers.size();
    return hand_over(std::move(numbers), {count});
  }

  // [N, V]: after every token, the log-probability of all that may follow.
  Array<float> next_logprobs(const TokenArray& tokens) {
    const auto N = tokens.shape(0), V = static_cast<std::size_t>(config().vocab);
    std::vector<float> numbers(N * V);
    {
      const Computing computing;
      const auto tree = make_tree_scorer(loaded_.weights, {}, ex_);
      const TreeRun run{.depth = 0, .position = 0, .tokens = view(tokens), .first_wanted = 0};
      if (N > 0)
        tree->run(
            {&run, 1},
            [&](Index, Index n, const NextToken& next) {
              for (std::size_t v = 0; v < V; ++v)
                numbers[static_cast<std::size_t>(n) * V + v] =
                    static_cast<float>(next.log_probability(static_cast<std::int32_t>(v)));
            },
            ex_);
    }
    return hand_over(std::move(numbers), {N, V});
  }

  // Of many requests at once; beginnings they share are computed once.
  std::vector<std::pair<double, bool>> score(
      const std::vector<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>>& pairs) {
    const Computing computing;
    std::vector<ScoreRequest> requests;
    for (const auto& [context, continuation] : pairs) {
      if (context.empty())
        throw UserError("an empty context: where a text has none, it is the end-of-text token");
      requests.push_back({context, continuation});
    }
    Scorer scorer(loaded_.weights, {}, ex_);
    Interruption interruption;
    std::vector<std::pair<double, bool>> out;
    for (const Score& s : scorer.score_all(requests, [&](Index) { interruption.look(); }))
      out.emplace_back(s.log_likelihood, s.greedy);
    return out;
  }

  // name -> [S, N], or [S, N, P] where a token has several numbers. "loss" is [N].
  nb::dict trace(const TokenArray& tokens) {
    Trace trace;
    {
      const Computing computing;
      trace = trace_tokens(loaded_.weights, view(tokens), ex_);
    }
    nb::dict out;
    const auto N = static_cast<std::size_t>(trace.tokens);
    out["loss"] = hand_over(std::move(trace.loss_N), {N});
    for (const TraceSeries& first :
         trace.by_sublayer.empty() ? std::vector<TraceSeries>{} : trace.by_sublayer.back()) {
      std::vector<float> numbers;  // a series that some sublayers lack is NaN there
      const auto P = static_cast<std::size_t>(first.per_token);
      for (const std::vector<TraceSeries>& sublayer : trace.by_sublayer) {
        const auto at = std::ranges::find(sublayer, first.name, &TraceSeries::name);
        if (at != sublayer.end() && static_cast<std::size_t>(at->per_token) == P)
          numbers.insert(numbers.end(), at->value_NP.begin(), at->value_NP.end());
        else
          numbers.insert(numbers.end(), N * P, std::nanf(""));
      }
      std::vector<std::size_t> shape{trace.by_sublayer.size(), N};
      if (P != 1) shape.push_back(P);
      out[first.name.c_str()] = hand_over(std::move(numbers), shape);
    }
    return out;
  }

 private:
  Exec ex_;
  LoadedModel loaded_;
  std::unique_ptr<Decoder> decoder_;
  Index decoder_slots_ = 0;
  std::mutex one_at_a_time_;
};

// Returns (folder, steps, the signal that stopped it or 0).
std::tuple<std::string, std::int64_t, int> train(const std::string& config, const std::string& preset,
                                                 const std::string& data, const std::string& out,
                                                 const std::vector<std::string>& sets, bool resume,
                                                 int threads,
                                                 const std::function<void(const std::string&)>& on_record) {
  RunRequest request;
  request.config_file = config, request.preset = preset, request.data = data, request.out = out;
  request.sets = sets, request.resume = resume;
  request.style = Console::Style::kSilent;
  if (on_record)
    request.on_record = [&](const Json& record) {
      const nb::gil_scoped_acquire held;
      on_record(to_line(record));
    };
  const Computing computing;
  const StopSignals signals;
  const RunOutcome outcome = run_training(request, signals, exec_with(threads));
  return {outcome.folder, outcome.step, outcome.signal};
}

std::string evaluate(PythonModel& model, const std::vector<std::string>& tasks, const std::string& data,
                     Index shots, Index limit) {
  const Computing computing;
  EvalRequest request;
  request.tasks = find_tasks(tasks, {});
  request.data = data, request.shots = shots, request.limit = limit, request.context = model.config().context;
  Scorer scorer(model.loaded().weights, {}, model.exec());
  Interruption interruption;
  const auto score = [&](std::span<const ScoreRequest> requests, Scorer::Scored scored) {
    scorer.score(requests, [&](Index number, const Score& found) {
      interruption.look();
      scored(number, found);
    });
  };
  return to_line(report_json(run_tasks(request, model.tokenizer(), score, model.exec())));
}

nb::dict metrics(const std::vector<std::string>& paths, const std::vector<std::string>& columns) {
  MetricsTable table = metrics_table(paths, columns);
  nb::dict out;
  nb::list runs;
  std::vector<std::int64_t> steps;
  for (const MetricsTable::Row& row : table.rows) runs.append(row.run), steps.push_back(row.step);
  const std::size_t count = steps.size();
  out["run"] = runs;
  out["step"] = hand_over(std::move(steps), {count});
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::vector<double> numbers;
    for (const MetricsTable::Row& row : table.rows) numbers.push_back(row.values[c].value_or(std::nan("")));
    out[table.columns[c].c_str()] = hand_over(std::move(numbers), {count});
  }
  return out;
}

}  // namespace
}  // namespace ddl

NB_MODULE(_core, m) {
  using namespace ddl;
  m.attr("__version__") = DDL_VERSION;
  static nb::exception<UserError> error(m, "Error", PyExc_ValueError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::filesystem::filesystem_error& e) {
      PyErr_SetString(error.ptr(), (e.path1().string() + ": " + e.code().message()).c_str());
    }
  });
  nb::class_<PythonModel>(m, "Model")
      .def(nb::init<const std::string&, const std::string&, const std::string&, int>(), "path"_a,
           "precision"_a = "", "tokenizer"_a = "", "threads"_a = 0)
      .def_prop_ro("folder", [](const PythonModel& p) { return p.loaded().folder; })
      .def_prop_ro("residual", [](const PythonModel& p) { return p.config().residual(); })
      .def_prop_ro("vocabulary", [](const PythonModel& p) { return p.config().vocab; })
      .def_prop_ro("context", [](const PythonModel& p) { return p.config().context; })
      .def_prop_ro("sublayers", [](const PythonModel& p) { return p.config().sublayers(); })
      .def_prop_ro("parameters",
                   [](const PythonModel& p) { return p.loaded().weights.table().parameter_count(); })
      .def_prop_ro("end_of_text", [](const PythonModel& p) { return p.tokenizer().end_of_text(); })
      .def("config_json", &PythonModel::config_json)
      .def("encode", &PythonModel::encode, "text"_a, "begin"_a)
      .def("decode", &PythonModel::decode, "tokens"_a)
      .def(
          "generate",
          [](PythonModel& p, const std::string& prompt, Index count, Index max_new_tokens, double temperature,
             Index top_k, double top_p, double min_p, double repetition_penalty, std::uint64_t seed,
             const std::vector<std::string>& stop,
             const std::optional<std::function<void(const std::string&)>>& on_text) {
            GenerateOptions options;
            options.max_new_tokens = max_new_tokens;
            options.sampling.temperature = temperature, options.sampling.top_k = top_k,
            options.sampling.top_p = top_p;
            options.sampling.min_p = min_p, options.sampling.repetition_penalty = repetition_penalty;
            options.sampling.seed = seed;
            options.sampling.check();
            options.stop = stop;
            return p.generate(prompt, count, options, on_text.value_or(nullptr));
          },
          "prompt"_a, "count"_a, "max_new_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
          "repetition_penalty"_a, "seed"_a, "stop"_a, "on_text"_a.none())
      .def("logprobs", &PythonModel::logprobs, "tokens"_a)
      .def("next_logprobs", &PythonModel::next_logprobs, "tokens"_a)
      .def("score", &PythonModel::score, "pairs"_a)
      .def("trace", &PythonModel::trace, "tokens"_a);
  m.def(
      "train",
      [](const std::string& config, const std::string& preset, const std::string& data,
         const std::string& out, const std::vector<std::string>& sets, bool resume, int threads,
         const std::optional<std::function<void(const std::string&)>>& on_record) {
        const auto [folder, steps, signal] =
            train(config, preset, data, out, sets, resume, threads, on_record.value_or(nullptr));
        return nb::make_tuple(folder, steps, signal);
      },
      "config"_a, "preset"_a, "data"_a, "out"_a, "sets"_a, "resume"_a, "threads"_a, "on_record"_a.none());
  m.def("evaluate", &evaluate, "model"_a, "tasks"_a, "data"_a, "shots"_a, "limit"_a);
  m.def("metrics", &metrics, "paths"_a, "columns"_a);
}
