#include "report/runs_document.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "io/sha256.h"
#include "model/config.h"
#include "report/curve.h"
#include "report/run_groups.h"
#include "report/spread.h"
#include "train/console.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

using Align = TableBlock::Align;

std::string plural(std::size_t count, const std::string& word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

double last_validation(const RunRecords& run) {
  return run.validations.empty() ? NAN : run.validations.back().loss;
}

const ValidationRecord* best_validation(const RunRecords& run) {
  const ValidationRecord* best = nullptr;
  for (const ValidationRecord& v : run.validations)
    if (std::isfinite(v.loss) && (!best || v.loss < best->loss)) best = &v;
  return best;
}

// The most tokens after which every run that was validated at all was validated; NaN where there is no such number.
// Runs that are not equally far are compared there.
double common_tokens(const std::vector<RunRecords>& runs) {
  std::map<double, std::size_t> uses;
  std::size_t validated = 0;
  for (const RunRecords& run : runs) {
    validated += !run.validations.empty();
    for (const ValidationRecord& v : run.validations) ++uses[v.tokens];
  }
  double most = NAN;
  for (const auto& [tokens, count] : uses)
    if (count == validated) most = tokens;
  return most;
}

// A group's curve over the steps that all of its runs have, and how many records one of its points stands for.
template <class Record>
std::pair<Curve, std::size_t> group_curve(const RunGroup& group,
                                          const std::vector<Record> RunRecords::*records,
                                          double Record::*value) {
  std::map<Index, std::size_t> uses;
  std::size_t with_records = 0;
  for (const RunRecords* run : group.runs) {
    with_records += !(run->*records).empty();
    for (const Record& record : run->*records) ++uses[record.step];
  }
  std::vector<Curve> curves;
  std::size_t bin = 1;
  for (const RunRecords* run : group.runs) {
    Curve curve;
    for (const Record& r : run->*records)
      if (uses[r.step] == with_records) curve.add(r.tokens, r.flops, r.seconds, r.*value);
    if ((run->*records).empty()) continue;
    bin = bin_size(curve.size());
    curves.push_back(thinned(curve, bin));
  }
  return {curves.empty() ? Curve{} : mean_of(curves), bin};
}

bool has_a_number(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// A member of a record that may be damaged: null where it is not there or is no plain value.
Json field(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_primitive() ? json[key] : Json(nullptr);
}

constexpr const char* kSeedBands = "Lines: means over seeds. Bands: from the lowest to the highest seed.";

class RunsReport {
 public:
  RunsReport(const std::vector<RunRecords>& runs, const std::string& title)
      : runs_(runs),
        grouped_(group_runs(runs)),
        groups_(grouped_.groups),
        compared_tokens_(common_tokens(runs)),
        document_(title_of(title), subtitle()) {}

  ReportDocument write() {
    summary();
    curves();
    pairs();
    rates();
    gates();
    configuration();
    repeat();
    identity();
    limits();
    return std::move(document_);
  }

 private:
  std::string title_of(const std::string& title) const {
    if (!title.empty()) return title;
    if (runs_.size() == 1) return fmt::format("{}: one run of {}", runs_[0].name, groups_[0].name);
    constexpr std::size_t kMostNames = 3;
    if (groups_.size() > kMostNames)
      return fmt::format("{}, {}", plural(groups_.size(), "model"), plural(runs_.size(), "run"));
    const bool commas = std::any_of(groups_.begin(), groups_.end(), [](const RunGroup& group) {
      return group.name.find(',') != std::string::npos;
    });
    std::string names;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      names += (g == 0 ? "" : g + 1 == groups_.size() ? " and " : commas ? "; " : ", ") + groups_[g].name;
    return names;
  }

  std::string subtitle() const {
    std::string text = plural(runs_.size(), "run");
    if (groups_.size() > 1) text += fmt::format(" of {}", plural(groups_.size(), "model"));
    std::set<std::string> data, begun;
    double tokens = 0;
    for (const RunRecords& run : runs_) {
      if (run.config) data.insert(fs::path(run.config->train.data_folder).filename().string());
      if (const Json time = field(run.start, "time"); time.is_string()) begun.insert(time.get<std::string>());
      if (!run.steps.empty()) tokens = std::max(tokens, run.steps.back().tokens);
    }
    if (tokens > 0) text += fmt::format(", up to {} tokens", format_count(tokens));
    if (!data.empty()) text += fmt::format(" of {}", fmt::join(data, ", "));
    if (!begun.empty()) text += fmt::format(". Begun {}", begun.begin()->substr(0, 10));
    return text + ".";
  }

  // The validation losses of a group's runs where all runs are compared; at their ends where there is no such place.
  std::vector<double> compared(const RunGroup& group) const {
    std::vector<double> values;
    for (const RunRecords* run : group.runs)
      for (auto v = run->validations.rbegin(); v != run->validations.rend(); ++v)
        if (v->tokens == compared_tokens_ || !std::isfinite(compared_tokens_)) {
          if (std::isfinite(v->loss)) values.push_back(v->loss);
          break;
        }
    return values;
  }
  std::string where_compared() const {
    return std::isfinite(compared_tokens_) ? fmt::format("after {} tokens", format_count(compared_tokens_))
                                           : "at the end";
  }

  void summary() {
    document_.section("summary", "Summary");
    document_.add(TextBlock{best_sentence()});
    std::vector<std::string> warnings;
    for (const RunRecords& run : runs_)
      for (const std::string& note : run.notes) warnings.push_back(fmt::format("{}: {}", run.name, note));
    if (!warnings.empty()) document_.add(ListBlock{warnings, true});

    if (groups_.size() < runs_.size()) {
      TableBlock models{fmt::format("Validation loss {}, over seeds", where_compared()),
                        {{"model"},
                         {"runs", Align::kRight},
                         {"mean", Align::kRight, 4},
                         {"lowest", Align::kRight, 4},
                         {"highest", Align::kRight, 4}},
                        {}};
      for (const RunGroup& group : groups_) {
        const std::vector<double> values = compared(group);
        const Spread spread(values);
        models.rows.push_back({group.name, values.size(), spread.mean, spread.low, spread.high});
      }
      document_.add(models);
    }
    TableBlock table{"Runs",
                     {{"run"},
                      {"model"},
                      {"seed", Align::kRight},
                      {"state"},
                      {"validation loss", Align::kRight, 4},
                      {"lowest", Align::kRight, 4},
                      {"at step", Align::kRight},
                      {"training loss", Align::kRight, 4},
                      {"tokens", Align::kRight},
                      {"FLOPs", Align::kRight},
                      {"seconds", Align::kRight, 0},
                      {"tokens/s", Align::kRight, 0},
                      {"parameters", Align::kRight}},
                     {}};
    for (const RunGroup& group : groups_)
      for (const RunRecords* run : group.runs) table.rows.push_back(run_row(group, *run));
    document_.add(table);
  }

  std::string best_sentence() const {
    const RunGroup* best = nullptr;
    double lowest = INFINITY;
    bool several_seeds = true;
    for (const RunGroup& group : groups_) {
      const std::vector<double> values = compared(group);
      several_seeds = several_seeds && values.size() > 1;
      if (const double mean = Spread(values).mean; std::isfinite(mean) && mean < lowest)
        lowest = mean, best = &group;
    }
    if (!best) return "No run has been validated yet: there is only the training loss.";
    const std::size_t seeds = compared(*best).size();
    const std::string value = fmt::format("{:.4f} nats per token{}", lowest,
                                          seeds > 1 ? fmt::format(", the mean of {} seeds", seeds) : "");
    if (groups_.size() == 1)
      return fmt::format("The validation loss of {} {} is {}.", best->name, where_compared(), value);
    return fmt::format(
        "The lowest validation loss {} is that of {}: {}.{}{}", where_compared(), best->name, value,
        std::isfinite(compared_tokens_) ? "" : " The runs were not validated after equally many tokens.",
        several_seeds ? "" : " With one seed a difference may be chance.");
  }

  static std::vector<Json> run_row(const RunGroup& group, const RunRecords& run) {
    const ValidationRecord* best = best_validation(run);
    const StepRecord end =
        run.steps.empty() ? StepRecord{.step = 0, .tokens = NAN, .flops = NAN, .seconds = NAN, .loss = NAN}
                          : run.steps.back();
    const Json parameters = field(run.start, "parameters");
    return {run.name,
            group.name,
            run.config ? Json(run.seed()) : Json(nullptr),
            run.status,
            last_validation(run),
            best ? best->loss : NAN,
            best ? Json(best->step) : Json(nullptr),
            end.loss,
            end.tokens,
            end.flops,
            end.seconds,
            end.tokens / end.seconds,
            parameters.is_number() ? parameters : Json(nullptr)};
  }

  template <class Record>
  void add_curves(const std::string& title, const std::string& label,
                  const std::vector<Record> RunRecords::*records, double Record::*value,
                  AxisScale scale = AxisScale::kLinear) {
    LinesBlock block{
        .title = title, .note = "", .axes = curve_axes(), .y_label = label, .y_scale = scale, .series = {}};
    std::size_t widest = 1, seeds = 1;
    for (const RunGroup& group : groups_) {
      const auto [curve, bin] = group_curve(group, records, value);
      if (!has_a_number(curve.y)) continue;
      widest = std::max(widest, bin);
      seeds = std::max(seeds, group.runs.size());
      block.series.push_back(curve_series(group.name, curve));
    }
    if (block.series.empty()) return;
    if (seeds > 1)
      block.note = kSeedBands;
    else if (widest > 1)
      block.note = "Bands: from the lowest to the highest step of a point.";
    if (widest > 1) block.note += fmt::format(" A point is the mean of up to {} recorded steps.", widest);
    document_.add(block);
  }

  void curves() {
    document_.section("curves", "Curves");
    add_curves("Validation loss", "nats per token", &RunRecords::validations, &ValidationRecord::loss);
    add_curves("Answers right", "share", &RunRecords::validations, &ValidationRecord::exact_answers);
    add_curves("Training loss", "nats per token", &RunRecords::steps, &StepRecord::loss);
    add_curves("Gradient norm before clipping", "norm", &RunRecords::steps, &StepRecord::grad_norm,
               AxisScale::kLog);
    add_curves("Learning rate", "rate", &RunRecords::steps, &StepRecord::lr);
  }

  // Validation after the most tokens at which both have one.
  static std::optional<double> difference(const RunRecords& run, const RunRecords& reference) {
    for (auto v = run.validations.rbegin(); v != run.validations.rend(); ++v)
      for (auto r = reference.validations.rbegin(); r != reference.validations.rend(); ++r)
        if (v->tokens == r->tokens && std::isfinite(v->loss) && std::isfinite(r->loss))
          return v->loss - r->loss;
    return std::nullopt;
  }

  void pairs() {
    if (groups_.size() < 2) return;
    const auto baseline = std::find_if(groups_.begin(), groups_.end(),
                                       [](const RunGroup& g) { return g.rule == kBaselineRule; });
    const RunGroup& reference = baseline == groups_.end() ? groups_.front() : *baseline;
    ForestBlock block{
        .title = fmt::format("Validation loss, difference from {}", reference.name),
        .note =
            "Each circle is a pair of runs with the same seed, after the most tokens at which both "
            "were validated. The dot is their mean. There is no interval: whether a difference is more "
            "than chance is a question for a study.",
        .unit = "nats per token; to the left is better",
        .rows = {}};
    for (const RunGroup& group : groups_) {
      if (&group == &reference || data_differs(group, reference)) continue;
      ForestBlock::Row row{.name = group.name, .mean = 0, .lo = NAN, .hi = NAN, .points = {}};
      for (const RunRecords* run : group.runs)
        for (const RunRecords* other : reference.runs)
          if (run->config && other->config && run->seed() == other->seed())
            if (const auto d = difference(*run, *other)) {
              row.points.push_back(*d);
              break;
            }
      row.mean = Spread(row.points).mean;
      if (!row.points.empty()) block.rows.push_back(row);
    }
    document_.section("pairs", "Paired differences");
    if (!block.rows.empty()) document_.add(block);
  }

  bool data_differs(const RunGroup& a, const RunGroup& b) const {
    for (const RunGroups::Difference& difference : grouped_.differences)
      if (difference.key == "data")
        return difference.values[static_cast<std::size_t>(&a - groups_.data())] !=
               difference.values[static_cast<std::size_t>(&b - groups_.data())];
    return false;
  }

  // Groups that differ by nothing but the rate are one line.
  void rates() {
    std::map<std::string, std::map<double, const RunGroup*>> families;
    for (const RunGroup& group : groups_)
      if (std::isfinite(group.lr) && !compared(group).empty()) families[group.without_lr][group.lr] = &group;
    LinesBlock block{.title = fmt::format("Validation loss {}, by peak learning rate", where_compared()),
                     .note = "",
                     .axes = {{"lr", "peak learning rate", AxisScale::kLog}},
                     .y_label = "nats per token",
                     .series = {}};
    for (const auto& [settings, by_rate] : families) {
      if (by_rate.size() < 2) continue;
      std::string name = by_rate.begin()->second->name;
      if (const std::size_t at = name.find(", lr "); at != std::string::npos)
        name.erase(at, std::min(name.find(',', at + 1), name.size()) - at);
      LinesBlock::Series series{.name = name, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
      for (const auto& [rate, group] : by_rate) {
        const Spread spread(compared(*group));
        series.x["lr"].push_back(rate);
        series.y.push_back(spread.mean);
        series.lo.push_back(spread.low);
        series.hi.push_back(spread.high);
        if (group->runs.size() > 1) block.note = kSeedBands;
      }
      block.series.push_back(std::move(series));
    }
    if (block.series.empty()) return;
    document_.section("rates", "Sensitivity to the learning rate");
    document_.add(block);
  }

  void gates() {
    document_.section("gates", "Gates over depth");
    LinesBlock mean{.title = "Mean gate of each sublayer, at the end",
                    .note =
                        "Sublayers alternate between attention (even) and MLP (odd). 0 skips the write; for "
                        "a delta rule 1 reaches the target and 2 mirrors the readout at it.",
                    .axes = {{"sublayer", "sublayer"}},
                    .y_label = "mean gate",
                    .series = {}};
    LinesBlock gap{.title = "Discrepancy between target and readout, at the end",
                   .note = "Solid: before the write. Dashed: after it.",
                   .axes = {{"sublayer", "sublayer"}},
                   .y_label = "mean of |v - r|",
                   .series = {}};
    std::vector<HeatBlock> maps;
    for (const RunGroup& group : groups_) {
      std::vector<const RunRecords*> runs;
      for (const RunRecords* run : group.runs)
        if (!run->gates.empty() &&
            (runs.empty() || run->gates.back().sublayers.size() == runs[0]->gates.back().sublayers.size()))
          runs.push_back(run);
      if (runs.empty()) continue;
      auto gates = over_depth(group.name, group.name, runs, &GateRecord::Sublayer::mean_gate);
      const bool has_gates = has_a_number(gates.y);
      if (has_gates) mean.series.push_back(std::move(gates));
      auto before =
          over_depth(group.name + ", before", group.name, runs, &GateRecord::Sublayer::discrepancy_before);
      auto after =
          over_depth(group.name + ", after", group.name, runs, &GateRecord::Sublayer::discrepancy_after);
      after.style = LinesBlock::Style::kDashed;
      if (has_a_number(before.y)) {
        gap.series.push_back(std::move(before));
        gap.series.push_back(std::move(after));
      }
      if (has_gates) maps.push_back(gate_map(group, *runs[0]));
    }
    if (!mean.series.empty()) document_.add(mean);
    if (!gap.series.empty()) document_.add(gap);
    constexpr std::size_t kMostMaps = 6;
    if (maps.size() > kMostMaps) maps.resize(kMostMaps);
    for (const HeatBlock& map : maps) document_.add(map);
  }

  static LinesBlock::Series over_depth(const std::string& name, const std::string& group,
                                       const std::vector<const RunRecords*>& runs,
                                       double GateRecord::Sublayer::*value) {
    LinesBlock::Series series{.name = name, .group = group, .x = {}, .y = {}, .lo = {}, .hi = {}};
    const std::size_t sublayers = runs[0]->gates.back().sublayers.size();
    for (std::size_t s = 0; s < sublayers; ++s) {
      std::vector<double> values;
      for (const RunRecords* run : runs) values.push_back(run->gates.back().sublayers[s].*value);
      const Spread spread(values);
      series.x["sublayer"].push_back(static_cast<double>(s));
      series.y.push_back(spread.mean);
      if (runs.size() > 1) series.lo.push_back(spread.low), series.hi.push_back(spread.high);
    }
    return series;
  }

  // The mean gates of one run, sublayer by step.
  static HeatBlock gate_map(const RunGroup& group, const RunRecords& run) {
    constexpr std::size_t kMostColumns = 40;
    HeatBlock map{.title = fmt::format("Mean gate while training: {}", group.name),
                  .note = group.runs.size() > 1 ? fmt::format("Of one run, {}.", run.name) : "",
                  .unit = "mean gate; columns are steps",
                  .rows = {},
                  .columns = {},
                  .values = {}};
    for (const GateRecord::Sublayer& sublayer : run.gates.back().sublayers) map.rows.push_back(sublayer.name);
    map.values.resize(map.rows.size());
    const std::size_t every = bin_size(run.gates.size(), kMostColumns);
    if (every > 1)
      map.note += fmt::format("{}Every {}th record is shown.", map.note.empty() ? "" : " ", every);
    for (std::size_t i = (run.gates.size() - 1) % every; i < run.gates.size(); i += every) {
      const GateRecord& record = run.gates[i];
      map.columns.push_back(std::to_string(record.step));
      for (std::size_t s = 0; s < map.rows.size(); ++s)
        map.values[s].push_back(s < record.sublayers.size() ? record.sublayers[s].mean_gate : NAN);
    }
    return map;
  }

  void configuration() {
    document_.section("configuration", "Configuration");
    if (groups_.size() > 1) {
      TableBlock table{"Options in which the models differ", {{"option"}}, {}};
      for (const RunGroup& group : groups_) table.columns.push_back({group.name});
      for (const RunGroups::Difference& difference : grouped_.differences) {
        std::vector<Json> row = {difference.key};
        for (const std::string& value : difference.values) row.push_back(value.empty() ? "–" : value);
        table.rows.push_back(std::move(row));
      }
      document_.add(table);
    }
    for (const RunRecords& run : runs_) {
      if (!run.config) continue;
      document_.add(TextBlock{
          runs_.size() == 1
              ? "The whole configuration:"
              : fmt::format(
                    "The whole configuration of {}; other models differ from it where the table says so, "
                    "and runs of one model by the seed:",
                    run.name)});
      document_.add(CodeBlock{run.config->to_toml()});
      break;
    }
  }

  void repeat() {
    document_.section("repeat", "Repeat it");
    std::string commands;
    for (const RunRecords& run : runs_)
      if (const std::string command = train_command(run); !command.empty())
        commands += (commands.empty() ? "" : "\n") + command;
    if (std::any_of(runs_.begin(), runs_.end(), [](const RunRecords& run) { return run.rate_by_clock; }))
      document_.add(
          TextBlock{"The demo sets the learning rate by the clock, so ddl train cannot repeat its runs. "
                    "./ddl demo --seed N makes similar ones."});
    if (commands.empty()) return;
    document_.add(TextBlock{
        "On the same machine, with the same build and number of threads, a repeated run has the same bits."});
    document_.add(CodeBlock{commands});
  }

  void identity() {
    document_.section("identity", "What was read");
    TableBlock table{"Data",
                     {{"run"},
                      {"data"},
                      {"tokens to train on", Align::kRight},
                      {"tokens to validate on", Align::kRight},
                      {"fingerprint"},
                      {"numbers"},
                      {"instructions"},
                      {"threads", Align::kRight}},
                     {}};
    std::string hashes;
    for (const RunRecords& run : runs_) {
      const Json data =
          run.identity.is_object() && run.identity.contains("data") ? run.identity["data"] : Json(nullptr);
      const Json fingerprint = field(data, "fingerprint");
      table.rows.push_back(
          {run.name, field(data, "folder"), field(data, "train_tokens"), field(data, "val_tokens"),
           fingerprint.is_string() ? Json(fingerprint.get<std::string>().substr(0, 16)) : fingerprint,
           field(run.start, "precision"), field(run.start, "isa"), field(run.start, "threads")});
      for (const char* file : {"config.toml", "run.json", "metrics.jsonl"})
        if (const std::string path = run.path + "/" + file; fs::is_regular_file(path)) {
          try {
            hashes += fmt::format("{}{}  {}", hashes.empty() ? "" : "\n", sha256_file(path), path);
          } catch (const UserError&) {  // cannot be read; the notes say so
          }
        }
    }
    document_.add(table);
    document_.add(TextBlock{
        "SHA-256 of the files behind this page, as sha256sum writes them; sha256sum -c checks them:"});
    if (!hashes.empty()) document_.add(CodeBlock{hashes});
  }

  void limits() {
    std::vector<std::string> items;
    std::size_t fewest = runs_.size();
    std::set<double> rates, tokens;
    for (const RunGroup& group : groups_) {
      fewest = std::min(fewest, group.runs.size());
      if (std::isfinite(group.lr)) rates.insert(group.lr);
    }
    for (const RunRecords& run : runs_)
      if (!run.steps.empty()) tokens.insert(run.steps.back().tokens);
    if (groups_.size() > 1) {
      items.push_back(fmt::format(
          "Whether differences are more than chance: there {} per model, and no test was made.",
          fewest == 1 ? "is as little as one seed" : "are " + plural(fewest, "seed") + " or more"));
      if (rates.size() == 1)
        items.push_back(
            fmt::format("Which model is best at its own best learning rate: all trained with {:g}, and one "
                        "may prefer another.",
                        *rates.begin()));
      if (tokens.size() > 1)
        items.push_back(
            fmt::format("A comparison at the end: the runs saw between {} and {} tokens. Compare curves at "
                        "equal tokens or FLOPs.",
                        format_count(*tokens.begin()), format_count(*tokens.rbegin())));
      if (std::any_of(grouped_.differences.begin(), grouped_.differences.end(), [](const auto& difference) {
            return difference.key == "data" || difference.key == "eval.windows";
          }))
        items.push_back(
            "A comparison of losses across data: the models were not trained and validated on the same "
            "text.");
    } else if (runs_.size() == 1) {
      items.push_back("How much chance there is in it: it is one run with one seed.");
    }
    if (std::any_of(runs_.begin(), runs_.end(), [](const RunRecords& run) { return !run.done; }))
      items.push_back("How unfinished runs end.");
    items.push_back("Other sizes, other data, longer training.");
    items.push_back(
        "Speed in general: seconds depend on the machine and on what else it did at the time. Tokens and "
        "FLOPs do not.");
    document_.section("limits", "What this does not show");
    document_.add(ListBlock{items});
  }

  const std::vector<RunRecords>& runs_;
  const RunGroups grouped_;
  const std::vector<RunGroup>& groups_;
  const double compared_tokens_;
  ReportDocument document_;
};

}  // namespace

ReportDocument runs_document(const std::vector<RunRecords>& runs, const std::string& title) {
  if (std::none_of(runs.begin(), runs.end(), [](const RunRecords& run) { return run.has_records(); }))
    throw UserError("{}: no records yet; a report needs at least one step, so wait for it and try again",
                    runs.empty() ? "nothing was given" : runs[0].path);
  return RunsReport(runs, title).write();
}

}  // namespace ddl
