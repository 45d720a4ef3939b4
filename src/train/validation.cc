#include "train/validation.h"

#include <algorithm>
#include <cmath>

namespace ddl {
namespace {

void count_answers(const std::uint8_t* answers_T, const std::uint8_t* correct_T, Index T,
                   ValidationResult& result) {
  for (Index t = 0; t < T;) {
    if (answers_T[t] == 0) {
      ++t;
      continue;
    }
    bool all = true;
    const Index begin = t;
    do {
      ++result.answer_tokens;
      result.correct_answer_tokens += correct_T[t];
      all = all && correct_T[t];
      ++t;
    } while (t < T && answers_T[t] == 2);
    if (answers_T[begin] == 1 && t < T) ++result.answers, result.exact_answers += all;
  }
}

// Sums over ranks. Counts are exact in a double.
void share_out(Comm& comm, double& sum, ValidationResult& result) {
  Index* const counts[] = {&result.targets, &result.answer_tokens, &result.correct_answer_tokens,
                           &result.answers, &result.exact_answers};
  std::vector<double> numbers{sum};
  for (const Index* count : counts) numbers.push_back(static_cast<double>(*count));
  comm.sum(numbers);
  sum = numbers[0];
  for (std::size_t i = 0; i < std::size(counts); ++i) *counts[i] = static_cast<Index>(numbers[i + 1]);
}

}  // namespace

Json ValidationResult::json() const {
  Json json{{"loss", loss}, {"perplexity", std::exp(loss)}, {"targets", targets}};
  if (answer_tokens > 0)
    json["answer_accuracy"] = static_cast<double>(correct_answer_tokens) / static_cast<double>(answer_tokens),
    json["answer_tokens"] = answer_tokens;
  if (answers > 0)
    json["exact_answers"] = static_cast<double>(exact_answers) / static_cast<double>(answers),
    json["answers"] = answers;
  return json;
}

Validator::Validator(const Dataset& data, Index context, Index windows) {
  if (data.val().tokens() > context) windows_.emplace(data.val(), data.end_of_text(), context, windows);
}

ValidationResult Validator::run(TrainableModel& model, const Exec& ex, Comm& comm) {
  const BatchShape shape = model.shape();
  ValidationResult result;
  double sum = 0;
  loss_N_.resize(static_cast<std::size_t>(shape.N()));
  correct_N_.resize(static_cast<std::size_t>(shape.N()));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.N()), 0), targets(tokens.size(), -1);
  for (Index first = comm.rank() * shape.B; first < windows(); first += comm.ranks() * shape.B) {
    const Index rows = std::min(shape.B, windows() - first), count = rows * shape.T;
    windows_->load(first, rows, batch_);
    std::copy_n(batch_.inputs_BT.begin(), count, tokens.begin());
    std::copy_n(batch_.targets_BT.begin(), count, targets.begin());
    std::fill(targets.begin() + count, targets.end(), -1);  // rows that fill up the last batch do not count
    model.loss({tokens.data(), targets.data()}, {loss_N_.data(), correct_N_.data()}, ex);
    for (Index n = 0; n < count; ++n) sum += loss_N_[n];
    result.targets += count;
    for (Index b = 0; b < rows && !batch_.answers_BT.empty(); ++b)
      count_answers(batch_.answers_BT.data() + b * shape.T, correct_N_.data() + b * shape.T, shape.T, result);
  }
  if (!comm.alone()) share_out(comm, sum, result);
  result.loss = sum / static_cast<double>(std::max<Index>(1, result.targets));
  return result;
}

}  // namespace ddl
