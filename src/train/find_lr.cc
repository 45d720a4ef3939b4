#include "train/find_lr.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text_chart.h"
#include "data/dataset.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace ddl {
namespace {

constexpr double kMemory = 0.8;  // of the smoothed loss

// 1, 2, 3 or 5 times a power of ten, the largest that is not noticeably above `value`.
double round_down(double value) {
  value *= 1.05;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double digit : {5.0, 3.0, 2.0})
    if (digit * power <= value) return digit * power;
  return power;
}

}  // namespace

void suggest_rate(FindLrResult& result) {
  const auto& points = result.points;
  result.lowest_lr = result.suggested = 0;
  if (points.size() < 5) return;
  const auto lowest = std::min_element(points.begin(), points.end(),
                                       [](const auto& a, const auto& b) { return a.smooth < b.smooth; });
  if (lowest == points.begin()) return;
  result.lowest_lr = lowest->lr;
  constexpr std::ptrdiff_t kReach = 3;  // the slope is taken over so many points on either side
  double steepest = 0, at = 0;
  for (auto point = points.begin(); point <= lowest; ++point) {
    const auto before = point - std::min(kReach, point - points.begin());
    const auto after = point + std::min(kReach, lowest - point);
    if (before == after) continue;
    const double slope = (after->smooth - before->smooth) / std::log(after->lr / before->lr);
    if (slope < steepest) steepest = slope, at = point->lr;
  }
  if (at > 0) result.suggested = round_down(std::min(at, lowest->lr / 3));
}

Json FindLrResult::json() const {
  Json record = make_record("find_lr");
  record["steps"] = points.size();
  record["lowest_loss_lr"] = lowest_lr > 0 ? Json(lowest_lr) : Json(nullptr);
  record["suggested_lr"] = suggested > 0 ? Json(suggested) : Json(nullptr);
  record["diverged"] = diverged;
  return record;
}

std::string FindLrResult::screen() const {
  constexpr std::size_t kRows = 12;
  std::string text = fmt::format("{:>10}  {:>9}  {:>9}\n", "rate", "loss", "smoothed");
  const std::size_t every = std::max<std::size_t>(1, (points.size() + kRows - 1) / kRows);
  for (std::size_t i = 0; i < points.size(); i += every)
    text += fmt::format("{:>10.2e}  {:>9.4f}  {:>9.4f}\n", points[i].lr, points[i].loss, points[i].smooth);
  ChartSeries curve{"smoothed loss", '*'};
  for (const Point& point : points) curve.points.emplace_back(point.lr, point.smooth);
  text += "\nSmoothed loss against the learning rate:\n" + text_chart({curve}, {.log_x = true}) + "\n";
  if (suggested > 0)
    return text +
           fmt::format(
               "The loss fell fastest near {0:g} and was lowest at {1:.2g}. Try --set train.lr={0:g}\n",
               suggested, lowest_lr);
  return text + "The loss did not fall at any rate: look at the data, or take more steps.\n";
}

FindLrResult find_learning_rate(const RunRequest& request, const FindLrOptions& options,
                                const std::function<void(Index, const FindLrResult::Point&)>& on_step,
                                const StopSignals& signals, const Exec& ex) {
  if (request.resume || !request.from.empty() || !request.out.empty())
    throw UserError("--find-lr trains fresh weights and writes no run: leave --resume, --from and --out out");
  RunConfig config = load_run_config({request.preset, "", request.config_file, request.sets});
  if (!request.data.empty()) config.train.data_folder = request.data;
  if (config.train.data_folder.empty())
    throw UserError("which data? Give --data DIR, a dataset made by `./ddl data prepare`");
  const Dataset data = Dataset::open(config.train.data_folder, ex);
  config.train.min_lr = 0;
  resolve_with_data(config, data, ex);
  config.train.schedule = Schedule::kConstant;
  config.train.warmup = 0;
  config.train.background = false;  // nothing is saved
  Trainer trainer(config, data, ex);

  FindLrResult result;
  double mean = 0, weight = 0, best = INFINITY, first = 0;
  for (Index step = 0; step < options.steps && signals.received() == 0; ++step) {
    const double part =
        static_cast<double>(step) / static_cast<double>(std::max<Index>(1, options.steps - 1));
    config.train.lr = options.low * std::pow(options.high / options.low, part);  // the trainer reads it
    const Json record = trainer.step();
    const double loss = record["loss"].get<double>();
    if (!std::isfinite(loss) || record.contains("skipped")) {
      result.diverged = true;
      break;
    }
    mean = kMemory * mean + (1 - kMemory) * loss;
    weight = kMemory * weight + (1 - kMemory);
    result.points.push_back({config.train.lr, loss, mean / weight});
    const double smooth = result.points.back().smooth;
    if (step == 0) first = smooth;
    best = std::min(best, smooth);
    if (on_step) on_step(step + 1, result.points.back());
    if (smooth > first + 0.1 && smooth > best + 0.5) {
      result.diverged = true;
      break;
    }
  }
  suggest_rate(result);
  return result;
}

}  // namespace ddl
