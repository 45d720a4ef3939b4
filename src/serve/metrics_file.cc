#include "serve/metrics_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

namespace ddl {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;  // a longer line is no record

bool says_where(std::string_view name) {
  return name == "tokens" || name == "flops" || name == "elapsed_s" || name == "epoch";
}

Index step_of(const Json& record) {
  const auto at = record.find("step");
  if (at == record.end() || !at->is_number()) return -1;
  const double step = at->get<double>();
  return step >= 0 && step < 1e15 ? static_cast<Index>(step) : -1;
}

struct Bin {
  double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
  Index count = 0;
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum += value, ++count;
    low = std::min(low, value), high = std::max(high, value);
  }
};

}  // namespace

void RecordColumns::add(Index at, const Json& record) {
  const auto keep = static_cast<std::size_t>(std::lower_bound(step.begin(), step.end(), at) - step.begin());
  step.resize(keep);
  for (auto& [name, values] : columns) values.resize(std::min(values.size(), keep));
  for (const auto& [name, value] : record.items()) {
    if (!value.is_number() || name == "v" || name == "step") continue;
    std::vector<double>& column = columns[name];
    column.resize(keep, NAN);
    column.push_back(value.get<double>());
  }
  step.push_back(at);
}

Json RecordColumns::thinned(Index after, Index points) const {
  const Index begin = std::upper_bound(step.begin(), step.end(), after) - step.begin();
  const Index count = std::ssize(step) - begin, most = std::max<Index>(1, points);
  const Index bin = std::max<Index>(1, (count + most - 1) / most);
  // Bins begin at multiples of their size from the run's start, so that they stay as the run grows.
  const auto for_each_bin = [&](auto&& visit) {
    for (Index i = begin; i < begin + count;) {
      const Index end = std::min((i / bin + 1) * bin, begin + count);
      visit(i, end);
      i = end;
    }
  };
  Json json;
  Json& at = json["step"] = Json::array();
  for_each_bin([&](Index, Index end) { at.push_back(step[end - 1]); });
  for (const auto& [name, values] : columns) {
    const auto value = [&column = values](Index i) { return i < std::ssize(column) ? column[i] : NAN; };
    if (says_where(name)) {
      Json& list = json[name] = Json::array();
      for_each_bin([&](Index, Index end) { list.push_back(value(end - 1)); });
      continue;
    }
    Json mean = Json::array(), low = Json::array(), high = Json::array();
    for_each_bin([&](Index from, Index end) {
      Bin sums;
      for (Index i = from; i < end; ++i) sums.add(value(i));
      mean.push_back(sums.count > 0 ? sums.sum / static_cast<double>(sums.count) : NAN);
      low.push_back(sums.low), high.push_back(sums.high);
    });
    json[name]["mean"] = std::move(mean);
    if (bin > 1) json[name]["min"] = std::move(low), json[name]["max"] = std::move(high);
  }
  return json;
}

void MetricsFile::clear() {
  const Index restarts = restarts_ + 1;
  *this = MetricsFile(path_);
  restarts_ = restarts;
}

void MetricsFile::refresh() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return;
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (inode_ != 0 && (inode_ != now.st_ino || size < offset_)) clear();
  inode_ = now.st_ino;
  if (size == offset_) return;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset_));
  std::string held;  // from offset_ on: a line whose end has not come
  std::vector<char> piece(kReadBytes);
  while (file && held.size() < kMaxLineBytes) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    held.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    std::size_t from = 0;
    for (std::size_t end; (end = held.find('\n', from)) != std::string::npos; from = end + 1)
      if (const Json record = parse_json(std::string_view(held).substr(from, end - from)); record.is_object())
        take(record);
    held.erase(0, from);
    offset_ += from;
  }
}

void MetricsFile::take(const Json& record) {
  const auto event = record.find("event");
  const Index step = step_of(record);
  if (event == record.end() || !event->is_string() || step < 0) return;
  last_event_ = event->get<std::string>(), last_step_ = step;
  if (last_event_ == "step") {
    steps_.add(step, record);
  } else if (last_event_ == "validation") {
    validations_.add(step, record);
  } else if (last_event_ == "gates") {
    while (!gates_.empty() && gates_.back()["step"].get<Index>() >= step) gates_.pop_back();
    if (const auto sublayers = record.find("sublayers"); sublayers != record.end())
      gates_.push_back(Json{{"step", step}, {"sublayers", *sublayers}});
  } else if (last_event_ == "start" || last_event_ == "resume") {
    if (const auto config = record.find("config"); config != record.end()) config_ = *config;
  }
}

Json MetricsFile::gates(Index after, Index most) const {
  std::vector<const Json*> later;
  for (const Json& record : gates_)
    if (record["step"].get<Index>() > after) later.push_back(&record);
  Json list = Json::array();
  const Index count = std::ssize(later), kept = std::min(count, most);
  for (Index i = 0; i < kept; ++i)
    list.push_back(*later[kept == 1 ? count - 1 : i * (count - 1) / (kept - 1)]);
  return list;
}

}  // namespace ddl
