#include "train/gate_stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace ddl {
namespace {

constexpr Index kBins = 20;

Json statistics(const GateTrace& trace, Index s, Index tokens) {
  std::array<Index, kBins> bins{};
  double sum = 0, before = 0, after = 0;
  for (Index n = 0; n < tokens; ++n) {
    const double beta = trace.beta_N[n];
    sum += beta;
    ++bins[static_cast<std::size_t>(std::clamp<Index>(static_cast<Index>(beta * kBins / 2), 0, kBins - 1))];
    if (!trace.readout_ND) continue;
    for (Index j = 0; j < trace.channels; ++j) {
      const double gap = std::abs(static_cast<double>(trace.v_ND[n * trace.channels + j]) -
                                  static_cast<double>(trace.readout_ND[n * trace.channels + j]));
      before += gap;
      after += std::abs(1 - beta) * gap;
    }
  }
  const double count = static_cast<double>(tokens), values = count * static_cast<double>(trace.channels);
  Json histogram = Json::array();
  for (const Index bin : bins) histogram.push_back(static_cast<double>(bin) / count);
  Json json{{"sublayer", s}, {"kind", s % 2 == 0 ? "attention" : "mlp"}, {"mean_gate", sum / count}};
  if (trace.readout_ND) json["discrepancy_before"] = before / values, json["discrepancy_after"] = after / values;
  json["histogram"] = std::move(histogram);
  return json;
}

}  // namespace

Json gate_statistics(const Model& model, const Exec& ex) {
  const Index sublayers = model.config().sublayers();
  if (!model.trace(0).beta_N) return nullptr;
  std::vector<Json> each(static_cast<std::size_t>(sublayers));
  parallel_for(sublayers, ex, [&](Index s) { each[s] = statistics(model.trace(s), s, model.shape().N()); });
  return Json(std::move(each));
}

}  // namespace ddl
