#include "audit/interventions.h"

#include <cmath>

#include "core/error.h"

namespace ddl {
namespace {

std::vector<float> means(const SeriesRecord& record, double tokens) {
  std::vector<float> mean;
  for (const double sum : record.sum) mean.push_back(static_cast<float>(sum / tokens));
  return mean;
}

}  // namespace

std::vector<Change> possible_changes(Probe& probe, const Collector& seen) {
  const Index S = probe.config().sublayers(), C = probe.config().width;
  const double tokens = static_cast<double>(seen.tokens());
  std::vector<Change> changes;
  // Adds the change if the model can be changed so.
  const auto add = [&](const std::string& name, const std::string& series, auto values_of) {
    Change change{name, {}};
    for (Index s = 0; s < S; ++s) change.at_S.push_back({s, series, values_of(s)});
    const bool possible = probe.replace(&change.at_S[0]);
    probe.replace(nullptr);
    if (possible) changes.push_back(std::move(change));
    return possible;
  };
  const auto all_equal = [&](const std::string& series, float value) {
    return [&seen, series, value](Index s) {
      return std::vector<float>(static_cast<std::size_t>(seen.find(s, series)->per_token), value);
    };
  };
  const auto mean_of = [&](const std::string& series) {
    return [&seen, series, tokens](Index s) { return means(*seen.find(s, series), tokens); };
  };

  using enum SeriesRole;
  const std::vector<SeriesRecord>& all = seen.series()[0];
  // With a gate of its own for the erase, that gate = 0 says the same.
  if (const auto* readout = find_series(all, kReadout); readout && find_series(all, kGate))
    add("no erase", readout->name, all_equal(readout->name, 0));
  bool gated = false;
  for (const SeriesRole role : {kGate, kEraseGate, kWriteGate}) {
    const SeriesRecord* gate = find_series(all, role);
    if (!gate) continue;
    const std::string& name = gate->name;
    gated |= add(name + " = 0", name, all_equal(name, 0));
    add(name + " = 1", name, all_equal(name, 1));
    add(name + " = mean", name, mean_of(name));
  }
  if (const auto* target = find_series(all, kTarget))
    add(target->name + " = mean", target->name, mean_of(target->name));
  if (gated) return changes;

  add("output = 0", kOutputSeries,
      [&](Index) { return std::vector<float>(static_cast<std::size_t>(C), 0.0f); });
  const std::vector<double> output_SC = seen.sums().output_SC;
  add("output = mean", kOutputSeries, [&](Index s) {
    std::vector<float> mean_C;
    for (Index c = 0; c < C; ++c) mean_C.push_back(static_cast<float>(output_SC[s * C + c] / tokens));
    return mean_C;
  });
  return changes;
}

Effect effect_of(const Replacement& change, Probe& probe, const std::vector<InterventionBatch>& batches,
                 const Exec& ex) {
  const Index N = probe.shape().N(), T = probe.shape().T;
  const bool possible = probe.replace(&change);
  DDL_CHECK(possible, "'{}' cannot be replaced", change.series);
  std::vector<float> loss_N(static_cast<std::size_t>(N));
  std::vector<double> windows;  // the mean change of each
  for (const InterventionBatch& batch : batches) {
    probe.loss(batch.tokens, {.loss_N = loss_N.data()}, ex);
    for (Index b = 0; b < batch.rows; ++b) {
      double sum = 0;
      for (Index n = b * T; n < (b + 1) * T; ++n)
        sum += static_cast<double>(loss_N[n]) - static_cast<double>(batch.loss_N[n]);
      windows.push_back(sum / static_cast<double>(T));
    }
  }
  probe.replace(nullptr);
  Effect effect;
  const double count = static_cast<double>(windows.size());
  for (const double change_of_window : windows) effect.loss_change += change_of_window / count;
  if (windows.size() < 2) return effect;
  double squares = 0;
  for (const double w : windows) squares += (w - effect.loss_change) * (w - effect.loss_change);
  effect.error = std::sqrt(squares / (count - 1) / count);
  return effect;
}

}  // namespace ddl
