#include "study/tuning.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace ddl {
namespace {

constexpr int kMostSteps = 5;  // by which the grid may grow at either end

class Grid {
 public:
  Grid(const Study& study, const StudySize& size, const Arm& arm, const Records& records)
      : study_(study), size_(size), arm_(arm), records_(records) {
    const auto one = std::find(study.scales.begin(), study.scales.end(), 1.0);
    unscaled_ = static_cast<int>(one - study.scales.begin());
  }

  using Place = std::pair<int, int>;  // scale, rate
  int unscaled() const { return unscaled_; }
  int rates() const { return static_cast<int>(size_.rates.size()); }
  int scales() const { return static_cast<int>(study_.scales.size()); }
  bool has_rate(int k) const { return k >= -kMostSteps && k < rates() + kMostSteps; }

  double rate(int k) const {
    const double factor = size_.rates[1] / size_.rates[0];
    if (k >= 0 && k < rates()) return rounded_rate(size_.rates[static_cast<std::size_t>(k)]);
    const double from = k < 0 ? size_.rates.front() : size_.rates.back();
    return rounded_rate(from * std::pow(factor, k < 0 ? k : k - rates() + 1));
  }
  void use_scale(double scale) { only_scale_ = scale; }
  double scale(int j) const {
    return only_scale_ ? *only_scale_ : study_.scales[static_cast<std::size_t>(j)];
  }

  // Looks the cell up; where runs are missing, notes them and returns false.
  bool look(Place place) {
    if (cells_.contains(place)) return true;
    TuningCell cell{rate(place.second), scale(place.first), {}, 0};
    bool complete = true;
    for (const Index seed : study_.tuning_seeds) {
      const Trial trial{size_.name, arm_.name, Stage::kTune, cell.rate, cell.scale, seed};
      if (const TrialRecord* record = records_.find(trial))
        cell.losses.push_back(record->result(StudyMetric::kLoss));
      else
        missing_.push_back(trial), complete = false;
    }
    if (!complete) return false;
    cell.mean = mean_over_seeds(cell.rate, cell.losses).loss;
    cells_.emplace(place, std::move(cell));
    return true;
  }

  Place best() const {
    return std::min_element(cells_.begin(), cells_.end(),
                            [](const auto& a, const auto& b) { return a.second.mean < b.second.mean; })
        ->first;
  }
  const std::map<Place, TuningCell>& cells() const { return cells_; }
  std::vector<Trial>& missing() { return missing_; }

 private:
  const Study& study_;
  const StudySize& size_;
  const Arm& arm_;
  const Records& records_;
  std::optional<double> only_scale_;
  int unscaled_ = 0;
  std::map<Place, TuningCell> cells_;
  std::vector<Trial> missing_;
};

}  // namespace

Tuning tune(const Study& study, const StudySize& size, const Arm& arm, const Records& records) {
  Tuning tuning;
  if (arm.rate) {
    tuning.settled = tuning.fixed = true;
    tuning.rate = *arm.rate;
    return tuning;
  }
  Grid grid(study, size, arm, records);
  // Later sizes keep the scale of the first, where the arm was there.
  const StudySize& first = study.sizes.front();
  const bool tunes_scale = &size == &first;
  if (!tunes_scale && std::find(first.arms.begin(), first.arms.end(), arm.name) != first.arms.end()) {
    const Tuning before = tune(study, first, arm, records);
    if (!before.settled) return tuning;  // its turn comes when the first size has settled
    grid.use_scale(before.scale);
  } else if (!tunes_scale) {
    grid.use_scale(1);
  }

  bool complete = true;
  for (int k = 0; k < grid.rates(); ++k) complete &= grid.look({grid.unscaled(), k});
  while (complete) {
    const auto [j, k] = grid.best();
    const bool all_diverged = !std::isfinite(grid.cells().at({j, k}).mean);
    std::vector<Grid::Place> neighbours;
    if (all_diverged) {
      int lowest = k;
      while (grid.cells().contains({j, lowest - 1})) --lowest;
      neighbours = {{j, lowest - 1}};
    } else {
      neighbours = {{j, k - 1}, {j, k + 1}};
      if (tunes_scale && j > 0) neighbours.push_back({j - 1, k});
      if (tunes_scale && j + 1 < grid.scales()) neighbours.push_back({j + 1, k});
    }
    bool all_known = true, all_seen_before = true;
    tuning.at_limit = false;
    for (const Grid::Place& place : neighbours) {
      if (!grid.has_rate(place.second)) {
        tuning.at_limit = true;
        continue;
      }
      all_seen_before &= grid.cells().contains(place);
      all_known &= grid.look(place);
    }
    if (!all_known) break;
    if (!all_seen_before) continue;  // one of the new ones may be better
    tuning.settled = true;
    std::vector<RatePoint> points;
    for (const auto& [place, cell] : grid.cells())
      if (place.first == j) points.push_back({cell.rate, cell.mean});
    tuning.rate = rounded_rate(rate_optimum(points).rate);
    tuning.scale = grid.scale(j);
    break;
  }
  for (const auto& [place, cell] : grid.cells()) tuning.cells.push_back(cell);
  tuning.missing = std::move(grid.missing());
  return tuning;
}

}  // namespace ddl
