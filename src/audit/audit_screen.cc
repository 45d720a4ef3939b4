// The audit in one screen: a row per sublayer, a few lines about the whole, and what the columns mean.
#include <algorithm>
#include <cmath>

#include "audit/audit_model.h"
#include "core/error.h"

namespace ddl {
namespace {

constexpr int kColumn = 8;

// A column of the table. Rows are the sublayers and then the head, where it may have nothing.
struct Column {
  std::string above, below;  // its two lines of title
  std::vector<std::string> cells;
};

std::string number(const Json& value, const char* form = "{:.2f}") {
  return value.is_number() ? fmt::format(fmt::runtime(form), value.get<double>()) : "-";
}

// Of an average, what its models do not share is null.
std::string text(const Json& value) { return value.is_string() ? value.get<std::string>() : "several"; }

Column column(std::string above, std::string below, const Json& values, const char* form = "{:.2f}") {
  Column c{std::move(above), std::move(below), {}};
  for (const Json& value : values) c.cells.push_back(number(value, form));
  return c;
}

Json ratio(const Json& a, const Json& b) {
  Json list = Json::array();
  for (std::size_t i = 0; i < a.size(); ++i)
    list.push_back(a[i].is_number() && b[i].is_number() && b[i].get<double>() != 0
                       ? Json(a[i].get<double>() / b[i].get<double>())
                       : Json(nullptr));
  return list;
}

std::vector<Column> columns(const Json& audit) {
  std::vector<Column> all;
  all.push_back(column("", "|h|", audit["norms"]["output"]));
  all.push_back(column("", "|x_in|", audit["norms"]["input"]));
  if (audit["lens"].is_object()) {
    all.push_back(column("lens", "loss", audit["lens"]["loss"], "{:.3f}"));
    all.push_back(column("lens", "own", audit["lens"]["own_log_probability"]));
  }
  const Json& rank = audit["rank"];
  all.push_back(column("", "rank", rank.contains("state") ? rank["state"] : rank["input"], "{:.1f}"));
  for (const auto& [name, gate] : audit["gates"].items()) {
    const std::size_t space = name.find(' ');
    all.push_back(space < 7
                      ? column(name.substr(0, space), name.substr(space + 1), gate["mean"])
                      : column("", space == std::string::npos ? name : name.substr(0, 7), gate["mean"]));
  }
  if (audit.contains("readouts")) {
    const Json& readouts = audit["readouts"];
    if (readouts.contains("target"))
      all.push_back(column("", "r/v", ratio(readouts["readout"], readouts["target"])));
    all.push_back(column("r to", "random", ratio(readouts["readout"], readouts["random"])));
    if (audit["survival"].is_object()) {
      Json left = audit["survival"]["left"];
      left.erase(left.begin());  // the embedding's
      all.push_back(column("", "left", left));
    } else {
      all.push_back(column("", "kept", readouts["kept"]));
    }
  }
  const Json& changes = audit["intervention_matrix"];
  for (std::size_t c = 0; c < changes["columns"].size(); ++c) {
    const auto name = changes["columns"][c].get<std::string>();
    const std::size_t cut = name.find(name.find(" = ") == std::string::npos ? " " : " = ");
    Column column{name.substr(0, cut).substr(0, kColumn - 1), name.substr(cut + 1), {}};
    for (const Json& row : changes["values"]) column.cells.push_back(number(row[c], "{:+.3f}"));
    all.push_back(std::move(column));
  }
  return all;
}

std::string table(const Json& audit) {
  const std::vector<Column> all = columns(audit);
  std::string text = fmt::format("{:<13}", "");
  for (const Column& c : all) text += fmt::format("{:>{}}", c.above, kColumn);
  text += fmt::format("\n{:<13}", "sublayer");
  for (const Column& c : all) text += fmt::format("{:>{}}", c.below, kColumn);
  text += "\n";
  const std::size_t S = audit["sublayers"].size();
  for (std::size_t s = 0; s <= S; ++s) {
    text += fmt::format("{:<13}", s < S ? audit["sublayers"][s]["name"].get<std::string>() : "head");
    for (const Column& c : all) text += fmt::format("{:>{}}", s < c.cells.size() ? c.cells[s] : "", kColumn);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string directions(const Json& alignment) {
  std::string text = "Directions, rms cosine by distance in depth:";
  for (const Json& at : alignment["by_distance"]) {
    const auto distance = at["distance"].get<Index>();
    if (distance <= 4 || distance == std::ssize(alignment["by_distance"]))
      text += fmt::format("  {}: {}", distance, number(at["rms"]));
  }
  return text + fmt::format("  (random {})\n", number(alignment["random_rms"]));
}

// The mean over sublayers for each group of tokens.
std::string gates_by_class(const std::string& name, const Json& gate) {
  std::string text;
  std::string line = fmt::format("Mean {} of tokens:", name);
  for (const Json& c : gate["classes"]) {
    std::string part = fmt::format("  {}", c["class"].get<std::string>());
    const Json& mean = c["mean"];
    for (std::size_t g = 0; g < mean["columns"].size(); ++g) {
      double sum = 0;
      bool known = true;
      for (const Json& row : mean["values"]) {
        known = known && row[g].is_number();
        if (known) sum += row[g].get<double>();
      }
      part +=
          fmt::format("{} {} {}", g == 0 ? ":" : ",", mean["columns"][g].get<std::string>(),
                      known ? fmt::format("{:.2f}", sum / static_cast<double>(mean["values"].size())) : "-");
    }
    if (line.size() + part.size() > 118) text += line + "\n", line = "   ";
    line += part;
  }
  return text + line + "\n";
}

std::string survivors(const Json& survival) {
  const Json &shares = survival["share_of_end"], &names = survival["matrix"]["rows"];
  std::vector<std::pair<double, std::string>> parts;
  for (std::size_t i = 0; i < shares.size(); ++i)
    parts.emplace_back(shares[i].get<double>(), names[i].get<std::string>());
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = "Largest surviving parts of the final state, |part|^2 / |X|^2:";
  for (std::size_t i = 0; i < std::min<std::size_t>(4, parts.size()); ++i)
    text += fmt::format("  {} {:.2f}", parts[i].second, parts[i].first);
  return text + fmt::format("\nSurviving parts add up to the final state within {}.\n",
                            number(survival["decomposition_error"], "{:.1e}"));
}

std::string whose(const AuditGroup& group, const Json& model) {
  const std::size_t models = group.audits.size();
  return fmt::format("{}{} ({}, {} layers of width {}, {} parameters)\n", group.name,
                     models > 1 ? fmt::format(": means of {} models", models) : "", text(model["residual"]),
                     number(model["layers"], "{:.0f}"), number(model["width"], "{:.0f}"),
                     number(model["parameters"], "{:.0f}"));
}

std::string errors_of_changes(const Json& audit) {
  const Json& changes = audit["intervention_matrix"];
  std::vector<double> errors;
  for (const Json& row : changes["se"])
    for (const Json& se : row)
      if (se.is_number()) errors.push_back(se.get<double>());
  std::sort(errors.begin(), errors.end());
  std::string line = fmt::format("Last {} columns: change of the loss by the change named, on {} tokens",
                                 changes["columns"].size(), number(audit["intervention_tokens"], "{:.0f}"));
  if (!errors.empty())
    line += fmt::format("; standard errors over {} {:.2g} (median) to {:.2g}",
                        audit.contains("models") ? "models" : "windows", errors[errors.size() / 2],
                        errors.back());
  return line + ".\n";
}

std::string screen(const AuditGroup& group) {
  const Json audit = average_audits(group.audits);
  std::string lines =
      whose(group, audit["model"]) +
      fmt::format("{} tokens of {} ({}), loss {:.4f}\n\n", number(audit["tokens"], "{:.0f}"),
                  text(audit["text"]["source"]), text(audit["text"]["kind"]), audit["loss"].get<double>());
  lines += table(audit) + "\n" + errors_of_changes(audit) + directions(audit["alignment"]);
  for (const auto& [name, gate] : audit["gates"].items()) lines += gates_by_class(name, gate);
  if (audit["survival"].is_object()) lines += survivors(audit["survival"]);
  return lines;
}

}  // namespace

std::string audit_screen(const std::vector<AuditGroup>& groups) {
  std::string lines;
  for (const AuditGroup& group : groups) lines += screen(group) + (groups.size() > 1 ? "\n" : "");
  return lines +
         "lens: loss of the head's guess in front of the sublayer; own: log-probability it gives the input "
         "token itself.\n"
         "rank: how many directions the stream uses. r: what the state holds along the output's direction "
         "before the write\n"
         "(r/v: compared with the target; r to random: with a random direction). left, kept: what later "
         "sublayers leave of it.\n"
         "What each number means and does not show: docs/audit.md\n";
}

}  // namespace ddl
