#include "train/series_stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace ddl {
namespace {

constexpr Index kBins = 20;
constexpr std::size_t kMostShown = 8;  // numbers of a token that a table shows one by one

double value_of(const TokenSeries& series, Index n, Index i) {
  return static_cast<double>(series.values[n * series.stride + i]);
}

Json summary(const TokenSeries& series, Index tokens) {
  const bool has_range = series.low < series.high;
  const double low = static_cast<double>(series.low),
               width = (static_cast<double>(series.high) - low) / kBins;
  std::array<Index, kBins> bins{};
  std::vector<double> each(static_cast<std::size_t>(series.per_token));
  double sum = 0, squares = 0;
  for (Index n = 0; n < tokens; ++n)
    for (Index i = 0; i < series.per_token; ++i) {
      const double value = value_of(series, n, i);
      sum += value, squares += value * value, each[i] += value;
      if (!has_range) continue;
      const auto bin = static_cast<Index>((value - low) / width);
      ++bins[static_cast<std::size_t>(std::clamp<Index>(bin, 0, kBins - 1))];
    }
  const double count = static_cast<double>(tokens * series.per_token), mean = sum / count;
  Json json{{"mean", mean}, {"deviation", std::sqrt(std::max(0.0, squares / count - mean * mean))}};
  if (series.per_token > 1) {
    for (double& part : each) part /= static_cast<double>(tokens);
    json["each"] = each;
  }
  if (has_range) {
    json["range"] = {series.low, series.high};
    json["histogram"] = Json::array();
    for (const Index bin : bins) json["histogram"].push_back(static_cast<double>(bin) / count);
  }
  return json;
}

void add_discrepancy(Json& json, const std::vector<TokenSeries>& series, Index tokens) {
  const TokenSeries *gates = find_series(series, SeriesRole::kGate),
                    *targets = find_series(series, SeriesRole::kTarget),
                    *readouts = find_series(series, SeriesRole::kReadout);
  if (!gates || !targets || !readouts) return;
  double before = 0, after = 0;
  for (Index n = 0; n < tokens; ++n)
    for (Index i = 0; i < targets->per_token; ++i) {
      const double gap = std::abs(value_of(*targets, n, i) - value_of(*readouts, n, i));
      before += gap;
      after += std::abs(1 - value_of(*gates, n, 0)) * gap;
    }
  const double count = static_cast<double>(tokens * targets->per_token);
  json["discrepancy_before"] = before / count, json["discrepancy_after"] = after / count;
}

Json statistics(const std::vector<TokenSeries>& series, Index s, Index tokens) {
  Json json{{"sublayer", s}, {"kind", s % 2 == 0 ? "attention" : "mlp"}};
  for (const TokenSeries& one : series) json["series"][one.name] = summary(one, tokens);
  add_discrepancy(json, series, tokens);
  return json;
}

// A bar of 20 characters from low to high.
std::string bar(double mean, double low, double high) {
  const double share = std::clamp((mean - low) / (high - low), 0.0, 1.0);
  return std::string(static_cast<std::size_t>(share * 20 + 0.5), '=');
}

}  // namespace

Json series_statistics(const TrainableModel& model, const Exec& ex) {
  const Index sublayers = model.config().sublayers();
  if (model.series(0).empty()) return nullptr;
  std::vector<Json> each(static_cast<std::size_t>(sublayers));
  parallel_for(sublayers, ex, [&](Index s) { each[s] = statistics(model.series(s), s, model.shape().N()); });
  return Json(std::move(each));
}

std::string series_table(const Json& sublayers) {
  std::string lines;
  for (const auto& item : sublayers[0]["series"].items()) {
    const Json& first = item.value();
    const bool has_range = first.contains("range");
    const bool has_few = first.contains("each") && first["each"].size() <= kMostShown;
    lines += fmt::format("{}{:<17} {:>7} {:>10}", lines.empty() ? "" : "\n", item.key(), "mean", "deviation");
    if (has_range)
      lines += fmt::format("   {} to {}", first["range"][0].get<double>(), first["range"][1].get<double>());
    else if (has_few)
      lines += "   mean of each";
    for (const Json& s : sublayers) {
      const Json& series = s["series"][item.key()];
      const double mean = series["mean"];
      lines += fmt::format("\n{:>3} {:<13} {:>7.2f} {:>10.2f}   ", s["sublayer"].get<Index>(),
                           s["kind"].get<std::string>(), mean, series["deviation"].get<double>());
      if (has_range)
        lines += bar(mean, series["range"][0], series["range"][1]);
      else if (has_few)
        for (const Json& part : series["each"]) lines += fmt::format("{:.2f} ", part.get<double>());
    }
  }
  return lines;
}

}  // namespace ddl
