#include "audit/audit_average.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "report/spread.h"

namespace ddl {
namespace {

using Values = std::vector<const Json*>;  // the same place in every audit

template <class Key>
Values at(const Values& values, const Key& key) {
  Values children;
  for (const Json* value : values) children.push_back(&(*value)[key]);
  return children;
}

bool all(const Values& values, bool (Json::*is)() const) {
  return std::all_of(values.begin(), values.end(), [&](const Json* value) { return (value->*is)(); });
}

// `combine` takes the numbers of one place to the number that stands for them.
template <class Combine>
Json merge(const Values& values, const Combine& combine) {
  const Json& first = *values.front();
  if (all(values, &Json::is_number)) {
    std::vector<double> numbers;
    for (const Json* value : values) numbers.push_back(value->get<double>());
    return combine(numbers);
  }
  const auto same_size = [&](const Json* value) { return value->size() == first.size(); };
  if (all(values, &Json::is_array) && std::all_of(values.begin(), values.end(), same_size)) {
    Json merged = Json::array();
    for (std::size_t i = 0; i < first.size(); ++i) merged.push_back(merge(at(values, i), combine));
    return merged;
  }
  if (all(values, &Json::is_object)) {
    Json merged = Json::object();
    for (const auto& [key, value] : first.items())
      if (std::all_of(values.begin(), values.end(),
                      [&key = key](const Json* each) { return each->contains(key); }))
        merged[key] = merge(at(values, key), combine);
    return merged;
  }
  const auto same = [&](const Json* value) { return *value == first; };
  return std::all_of(values.begin(), values.end(), same) ? first : Json(nullptr);
}

// Counts stay whole where all models have the same.
Json mean(const std::vector<double>& numbers) {
  const double mean = Spread(numbers).mean;
  if (mean == std::floor(mean) && std::abs(mean) < 1e15) return static_cast<Index>(mean);
  return mean;
}

Json standard_error(const std::vector<double>& numbers) {
  return Spread(numbers).sd / std::sqrt(static_cast<double>(numbers.size()));
}

}  // namespace

Json average_audits(const std::vector<Json>& audits) {
  DDL_CHECK(!audits.empty(), "an average of no audits");
  if (audits.size() == 1) return audits.front();
  Values values;
  for (const Json& audit : audits) values.push_back(&audit);
  Json average = merge(values, mean);
  average["models"] = audits.size();
  const char *matrix = "intervention_matrix", *cells = "values";
  const auto has = [&](const Json* audit) {
    return audit->contains(matrix) && (*audit)[matrix].is_object() && (*audit)[matrix].contains(cells);
  };
  if (average.contains(matrix) && std::all_of(values.begin(), values.end(), has))
    average[matrix]["se"] = merge(at(at(values, matrix), cells), standard_error);
  return average;
}

}  // namespace ddl
