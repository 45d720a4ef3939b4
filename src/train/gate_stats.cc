#include "train/gate_stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace ddl {
namespace {

constexpr Index kBins = 20;

const TokenSeries* find(const std::vector<TokenSeries>& series, const char* name) {
  for (const TokenSeries& s : series)
    if (s.name == name) return &s;
  return nullptr;
}

Json statistics(const std::vector<TokenSeries>& series, Index s, Index tokens) {
  const TokenSeries& gates = *find(series, "gate");
  const TokenSeries *targets = find(series, "target"), *readouts = find(series, "readout");
  std::array<Index, kBins> bins{};
  double sum = 0, before = 0, after = 0;
  const double width = static_cast<double>(gates.high - gates.low) / kBins;
  for (Index n = 0; n < tokens; ++n) {
    const double gate = gates.values[n * gates.stride];
    sum += gate;
    const auto bin = static_cast<Index>((gate - static_cast<double>(gates.low)) / width);
    ++bins[static_cast<std::size_t>(std::clamp<Index>(bin, 0, kBins - 1))];
    if (!targets || !readouts) continue;
    for (Index j = 0; j < targets->per_token; ++j) {
      const double gap = std::abs(static_cast<double>(targets->values[n * targets->stride + j]) -
                                  static_cast<double>(readouts->values[n * readouts->stride + j]));
      before += gap;
      after += std::abs(1 - gate) * gap;
    }
  }
  const double count = static_cast<double>(tokens);
  Json histogram = Json::array();
  for (const Index bin : bins) histogram.push_back(static_cast<double>(bin) / count);
  Json json{{"sublayer", s}, {"kind", s % 2 == 0 ? "attention" : "mlp"}, {"mean_gate", sum / count}};
  if (targets && readouts) {
    const double values = count * static_cast<double>(targets->per_token);
    json["discrepancy_before"] = before / values, json["discrepancy_after"] = after / values;
  }
  json["histogram"] = std::move(histogram);
  return json;
}

}  // namespace

Json gate_statistics(const TrainableModel& model, const Exec& ex) {
  const Index sublayers = model.config().sublayers();
  if (!find(model.series(0), "gate")) return nullptr;
  std::vector<Json> each(static_cast<std::size_t>(sublayers));
  parallel_for(sublayers, ex, [&](Index s) { each[s] = statistics(model.series(s), s, model.shape().N()); });
  return Json(std::move(each));
}

}  // namespace ddl
