#include "audit/audit_document.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "audit/audit_model.h"
#include "core/error.h"
#include "core/json_fields.h"
#include "report/spread.h"

namespace ddl {
namespace {

double number_or_nan(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A list with a number per sublayer or depth; null is NaN.
std::vector<double> numbers(const JsonFields& part, const std::string& name, std::size_t length) {
  const Json& list = part.at(name);
  if (!list.is_array() || list.size() != length)
    part.refuse(name, fmt::format("a list of {} numbers", length));
  std::vector<double> values;
  for (const Json& value : list) values.push_back(number_or_nan(value));
  return values;
}

std::vector<std::string> names(const JsonFields& part, const std::string& name) {
  const Json& list = part.at(name);
  if (!list.is_array() ||
      !std::all_of(list.begin(), list.end(), [](const Json& text) { return text.is_string(); }))
    part.refuse(name, "a list of names");
  return list.get<std::vector<std::string>>();
}

HeatBlock heat(const JsonFields& matrix, std::string title, std::string note, std::string unit) {
  HeatBlock block{.title = std::move(title),
                  .note = std::move(note),
                  .unit = std::move(unit),
                  .rows = names(matrix, "rows"),
                  .columns = names(matrix, "columns"),
                  .values = {}};
  const Json& rows = matrix.at("values");
  const bool fits = rows.is_array() && rows.size() == block.rows.size() &&
                    std::all_of(rows.begin(), rows.end(), [&](const Json& row) {
                      return row.is_array() && row.size() == block.columns.size();
                    });
  if (!fits)
    matrix.refuse("values", fmt::format("{} rows of {} numbers", block.rows.size(), block.columns.size()));
  for (const Json& row : rows) {
    block.values.emplace_back();
    for (const Json& value : row) block.values.back().push_back(number_or_nan(value));
  }
  return block;
}

constexpr const char* kReadFrom = "read_from";  // a key that parse_audit() adds

std::vector<double> ratio(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] /= b[i];
  return a;
}

// One audit, whose parts are checked as they are taken.
struct AuditParts {
  const std::string& name;
  JsonFields all;
  std::size_t S;  // sublayers

  AuditParts(const std::string& model, const Json& audit)
      : name(model), all(audit, "the audit of " + model), S(all.objects("sublayers").size()) {}

  // A part that does not apply to the rule is null or absent.
  std::optional<JsonFields> part(const std::string& key) const {
    if (!all.has(key) || all.at(key).is_null()) return std::nullopt;
    return all.object(key);
  }
};

// What is shown under one name: the average of some models' audits, and each of them.
struct ShownAudits {
  AuditParts average;
  std::vector<AuditParts> models;

  ShownAudits(const AuditGroup& group, const Json& average_of_group) : average(group.name, average_of_group) {
    for (const Json& audit : group.audits) models.emplace_back(group.name, audit);
  }
};

// Takes a number per sublayer or depth from an audit; none where the audit has no such part.
using NumbersOf = std::vector<double> (*)(const AuditParts&);

// Models side by side: a chart over depth for one number of each audit.
struct OverDepth {
  LinesBlock block;

  OverDepth(std::string title, std::string y_label, std::string note)
      : block{.title = std::move(title),
              .note = std::move(note),
              .axes = {{"sublayer", "sublayer"}},
              .y_label = std::move(y_label),
              .series = {}} {}

  void add(const std::string& name, std::vector<double> values,
           LinesBlock::Style style = LinesBlock::Style::kLine) {
    LinesBlock::Series series{
        .name = name, .group = "", .x = {}, .y = std::move(values), .lo = {}, .hi = {}, .style = style};
    for (std::size_t s = 0; s < series.y.size(); ++s) series.x["sublayer"].push_back(static_cast<double>(s));
    block.series.push_back(std::move(series));
  }
  // Of several models the average, with a band from the lowest to the highest.
  void add(const ShownAudits& shown, NumbersOf numbers_of,
           LinesBlock::Style style = LinesBlock::Style::kLine) {
    std::vector<double> values = numbers_of(shown.average);
    if (values.empty()) return;
    add(shown.average.name, std::move(values), style);
    if (shown.models.size() == 1) return;
    LinesBlock::Series& series = block.series.back();
    std::vector<std::vector<double>> of_models;
    for (const AuditParts& model : shown.models) of_models.push_back(numbers_of(model));
    for (std::size_t s = 0; s < series.y.size(); ++s) {
      std::vector<double> here;
      for (const std::vector<double>& model : of_models)
        if (s < model.size()) here.push_back(model[s]);
      const Spread spread(here);
      series.lo.push_back(spread.low), series.hi.push_back(spread.high);
    }
  }
  void add_to(ReportDocument& document) const {
    if (!block.series.empty()) document.add(block);
  }
};

std::vector<double> without_first(std::vector<double> values) {
  values.erase(values.begin());
  return values;
}

std::vector<double> lens_loss(const AuditParts& audit) {
  const auto part = audit.part("lens");
  return part ? numbers(*part, "loss", audit.S + 1) : std::vector<double>{};
}
std::vector<double> own_log_probability(const AuditParts& audit) {
  const auto part = audit.part("lens");
  return part ? numbers(*part, "own_log_probability", audit.S + 1) : std::vector<double>{};
}
std::vector<double> readout_to_random(const AuditParts& audit) {
  const auto part = audit.part("readouts");
  if (!part) return {};
  return ratio(numbers(*part, "readout", audit.S), numbers(*part, "random", audit.S));
}
std::vector<double> left_of_writes(const AuditParts& audit) {  // of rules that erase
  const auto part = audit.part("survival");
  return part ? without_first(numbers(*part, "left", audit.S + 1)) : std::vector<double>{};  // the embedding
}
std::vector<double> kept_of_writes(const AuditParts& audit) {  // of the others
  const auto part = audit.part("readouts");
  return part && !audit.part("survival") ? numbers(*part, "kept", audit.S) : std::vector<double>{};
}
std::vector<double> input_lengths(const AuditParts& audit) {
  const auto part = audit.part("norms");
  return part ? numbers(*part, "input", audit.S + 1) : std::vector<double>{};
}
std::vector<double> output_lengths(const AuditParts& audit) {
  const auto part = audit.part("norms");
  return part ? numbers(*part, "output", audit.S) : std::vector<double>{};
}
std::vector<double> ranks(const AuditParts& audit) {
  const auto part = audit.part("rank");
  return part ? numbers(*part, part->has("state") ? "state" : "input", audit.S + 1) : std::vector<double>{};
}

void add_table(ReportDocument& document, const std::vector<ShownAudits>& groups) {
  TableBlock table{"Audited models",
                   {{"model"},
                    {"rule"},
                    {"models", TableBlock::Align::kRight},
                    {"parameters", TableBlock::Align::kRight},
                    {"tokens", TableBlock::Align::kRight},
                    {"loss", TableBlock::Align::kRight, 4},
                    {"folder"}},
                   {}};
  for (const ShownAudits& group : groups) {
    const JsonFields& all = group.average.all;
    const JsonFields model = all.object("model");
    table.rows.push_back({group.average.name, model.text("residual"), group.models.size(),
                          model.at("parameters"), all.at("tokens"), all.at("loss"),
                          model.has("folder") ? model.at("folder") : Json("–")});
    for (Json& cell : table.rows.back())
      if (!cell.is_primitive()) cell = nullptr;
  }
  document.add(table);
}

void add_comparison(ReportDocument& document, const std::vector<ShownAudits>& groups) {
  document.section("audits", "Inside the trained models");
  add_table(document, groups);
  const bool several = std::any_of(groups.begin(), groups.end(),
                                   [](const ShownAudits& group) { return group.models.size() > 1; });
  if (several)
    document.add(TextBlock{
        "Where a name stands for several models, charts show their mean with a band from the lowest to the "
        "highest, and heat maps their mean."});
  OverDepth lens("Loss of a prediction made in front of each sublayer", "nats per token",
                 "The head reads the stream as if the network ended there. The last point is the model's own "
                 "loss on these "
                 "tokens.");
  OverDepth own("Log-probability of the input token itself", "nats",
                "With a tied embedding it begins high and falls as the network replaces what came in.");
  OverDepth readout("What a write finds along its direction, compared with a random direction",
                    "times as much", "1: the write looks where nothing special is.");
  OverDepth kept("How much of each write is left at the end", "share",
                 "Of rules that erase: what the later erasures leave of its direction. Of others: how much "
                 "of the change is "
                 "still there.");
  OverDepth input("Length of the stream's readout in front of each sublayer", "|x_in|, root mean square", "");
  OverDepth output("Length of each sublayer's output", "|h|, root mean square", "");
  OverDepth rank("Directions that the stream uses", "effective rank", "At most the width of the model.");
  for (const ShownAudits& group : groups) {
    lens.add(group, lens_loss);
    own.add(group, own_log_probability);
    readout.add(group, readout_to_random);
    kept.add(group, left_of_writes);
    kept.add(group, kept_of_writes, LinesBlock::Style::kDashed);
    input.add(group, input_lengths);
    output.add(group, output_lengths);
    rank.add(group, ranks);
  }
  for (const OverDepth* chart : {&lens, &own, &readout, &kept, &input, &output, &rank})
    chart->add_to(document);
}

// Means of a gate by class of token, the classes' columns side by side.
HeatBlock gate_classes(const std::string& name, const JsonFields& gate) {
  HeatBlock all{
      .title = fmt::format("Mean {} by class of token", name),
      .note = "Frequency and loss are thirds of the text; repeated: the window has had the token before.",
      .unit = fmt::format("mean {}", name),
      .rows = {},
      .columns = {},
      .values = {}};
  for (const JsonFields& each : gate.objects("classes")) {
    const HeatBlock one = heat(each.object("mean"), "", "", "");
    if (all.rows.empty()) all.rows = one.rows, all.values.resize(one.rows.size());
    if (one.rows.size() != all.rows.size()) each.refuse("mean", "the rows of the other classes");
    for (const std::string& column : one.columns) all.columns.push_back(each.text("class") + ": " + column);
    for (std::size_t s = 0; s < one.values.size(); ++s)
      all.values[s].insert(all.values[s].end(), one.values[s].begin(), one.values[s].end());
  }
  return all;
}

void add_one(ReportDocument& document, const AuditParts& audit, std::size_t number) {
  document.section(fmt::format("audit-{}", number), fmt::format("Inside {}", audit.name));
  if (const auto part = audit.part("intervention_matrix")) {
    HeatBlock block =
        heat(*part, "Change of the loss when one thing is changed in one sublayer",
             "Everything after the change is computed anew. It takes the model where it was never trained: a "
             "large number says that the rest relies on this write as it is.",
             "nats; positive is worse");
    block.centre = 0;
    document.add(block);
  }
  if (const auto part = audit.part("survival"))
    document.add(
        heat(part->object("matrix"), "How much of each write is left after each later sublayer",
             "A row is a write, a column the sublayer after which one looks. A drop says who erased it.",
             "share of the direction"));
  if (const auto part = audit.part("readouts"); part && part->has("target")) {
    OverDepth errors("Readout and target", "root mean square",
                     "r: what the state holds along the write's direction. v: the target. r of a random "
                     "direction: what chance "
                     "would find.");
    errors.add("r", numbers(*part, "readout", audit.S));
    errors.add("v", numbers(*part, "target", audit.S));
    errors.add("r of a random direction", numbers(*part, "random", audit.S), LinesBlock::Style::kDashed);
    errors.add_to(document);
    OverDepth gap("Distance between readout and target", "root mean square of r - v",
                  "In front of the write, behind it, and at the end of the network.");
    gap.add("before", numbers(*part, "error_before", audit.S));
    gap.add("after", numbers(*part, "error_after", audit.S));
    gap.add("at the end", numbers(*part, "error_end", audit.S), LinesBlock::Style::kDashed);
    gap.add_to(document);
  }
  if (const auto part = audit.part("alignment"))
    document.add(heat(
        part->object("rms"), "Directions of two sublayers in the same token",
        fmt::format("Random directions give {:.2f}. Erasing can only matter where directions meet again.",
                    number_or_nan(part->at("random_rms"))),
        "root mean square cosine"));
  if (const auto part = audit.part("gates"))
    for (const auto& [name, json] : audit.all.at("gates").items()) {
      const JsonFields gate = part->object(name);
      document.add(heat(gate.object("histogram"), fmt::format("Histogram of the {}", name),
                        "A row is a sublayer; columns are named by the start of their bin.",
                        "share of tokens"));
      document.add(gate_classes(name, gate));
    }
}

// The last name of a path.
std::string last_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// Names that tell the audited models apart: the residual rule; where two have the same, the folder that the audit was read
// from, or else the rule and the model's folder.
std::vector<std::string> model_names(const std::vector<Json>& audits) {
  const auto text = [](const Json& audit, const char* key) {
    const auto model = audit.find("model");
    if (model == audit.end() || !model->is_object()) return std::string("model");
    const auto found = model->find(key);
    return found != model->end() && found->is_string() ? found->get<std::string>() : std::string("model");
  };
  std::map<std::string, Index> uses;
  for (const Json& audit : audits) ++uses[text(audit, "residual")];
  std::vector<std::string> names;
  for (const Json& audit : audits) {
    std::string name = text(audit, "residual");
    if (uses[name] > 1)
      name = audit.contains(kReadFrom) ? audit[kReadFrom].get<std::string>()
                                       : name + " " + last_name(text(audit, "folder"));
    std::string free = name;
    for (Index i = 2; std::find(names.begin(), names.end(), free) != names.end(); ++i)
      free = fmt::format("{} ({})", name, i);
    names.push_back(std::move(free));
  }
  return names;
}

}  // namespace

bool is_audit(const std::string& text) {
  const Json json = parse_json(text);
  const auto format = json.is_object() ? json.find("format") : json.end();
  return format != json.end() && *format == kAuditFormat;
}

Json parse_audit(const std::string& text, const std::string& source_name) {
  std::string error;
  Json json = parse_json(text, &error);
  if (json.is_discarded())
    throw UserError("{}: expected an audit, found a file that is not JSON: {}", source_name, error);
  const JsonFields fields(json, source_name);
  if (fields.text("format") != kAuditFormat)
    fields.refuse("format", fmt::format("\"{}\", as ddl audit --out writes it", kAuditFormat));
  if (fields.whole("version") != kAuditVersion) fields.refuse("version", fmt::format("{}", kAuditVersion));
  json.erase(kReadFrom);
  constexpr std::string_view file =
      "/audit.json";  // as ddl audit --out names it, in a folder that the user named
  if (source_name.size() > file.size() && source_name.ends_with(file))
    json[kReadFrom] = last_name(source_name.substr(0, source_name.size() - file.size()));
  return json;
}

std::vector<AuditGroup> name_audits(const std::vector<Json>& audits) {
  const std::vector<std::string> names = model_names(audits);
  std::vector<AuditGroup> groups;
  for (std::size_t i = 0; i < audits.size(); ++i) groups.push_back({names[i], {audits[i]}});
  return groups;
}

void add_audits(ReportDocument& document, const std::vector<AuditGroup>& groups) {
  if (groups.empty()) return;
  std::vector<Json> averages;
  for (const AuditGroup& group : groups) averages.push_back(average_audits(group.audits));
  std::vector<ShownAudits> shown;
  for (std::size_t i = 0; i < groups.size(); ++i) shown.emplace_back(groups[i], averages[i]);
  add_comparison(document, shown);
  for (std::size_t i = 0; i < shown.size(); ++i) add_one(document, shown[i].average, i + 1);
}

ReportDocument audits_document(const std::vector<Json>& audits) {
  const std::vector<AuditGroup> groups = name_audits(audits);
  ReportDocument document(
      groups.size() == 1 ? "Inside " + groups[0].name : "Inside trained models",
      "What the residual stream does on real text; docs/audit.md says what each number means");
  add_audits(document, groups);
  return document;
}

}  // namespace ddl
