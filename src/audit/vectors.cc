#include "audit/vectors.h"

#include <algorithm>

namespace ddl {
namespace {

constexpr Index kLanes = 16;
constexpr Index kRowsAtOnce = 8;  // of the covariance, so that a row of data is read once for several

}  // namespace

double dot(const float* a_C, const float* b_C, Index C) {
  float lanes[kLanes] = {};
  Index c = 0;
  for (; c + kLanes <= C; c += kLanes)
    for (Index j = 0; j < kLanes; ++j) lanes[j] += a_C[c + j] * b_C[c + j];
  double sum = 0;
  for (; c < C; ++c) sum += static_cast<double>(a_C[c]) * static_cast<double>(b_C[c]);
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

DirectionSpread spread(std::vector<float>& rows_MC, Index C, const Exec& ex) {
  const Index M = div_exact(std::ssize(rows_MC), C);
  if (M == 0) return {};
  const double count = static_cast<double>(M);
  std::vector<double> mean_C(static_cast<std::size_t>(C), 0.0);
  double squares = 0;
  for (Index m = 0; m < M; ++m) {
    const float* row_C = rows_MC.data() + m * C;
    for (Index c = 0; c < C; ++c) mean_C[c] += static_cast<double>(row_C[c]) / count;
    squares += square(row_C, C);
  }
  double mean_square = 0;
  for (const double mean : mean_C) mean_square += mean * mean;
  for (Index m = 0; m < M; ++m)
    for (Index c = 0; c < C; ++c) rows_MC[m * C + c] -= static_cast<float>(mean_C[c]);

  std::vector<double> trace_C(static_cast<std::size_t>(C), 0.0), squares_C(trace_C);
  parallel_chunks(C, kRowsAtOnce, ex, [&](Index begin, Index end) {
    std::vector<float> sums(static_cast<std::size_t>((end - begin) * C), 0.0f);
    for (Index m = 0; m < M; ++m) {
      const float* row_C = rows_MC.data() + m * C;
      for (Index i = begin; i < end; ++i) {
        float* sum_C = sums.data() + (i - begin) * C;
        const float factor = row_C[i];
        for (Index c = 0; c < C; ++c) sum_C[c] += factor * row_C[c];
      }
    }
    for (Index i = begin; i < end; ++i) {
      const float* sum_C = sums.data() + (i - begin) * C;
      trace_C[i] = static_cast<double>(sum_C[i]);
      for (Index c = 0; c < C; ++c)
        squares_C[i] += static_cast<double>(sum_C[c]) * static_cast<double>(sum_C[c]);
    }
  });
  double trace = 0, trace_of_square = 0;
  for (Index c = 0; c < C; ++c) trace += trace_C[c], trace_of_square += squares_C[c];
  return {trace_of_square > 0 ? trace * trace / trace_of_square : 0,
          squares > 0 ? mean_square * count / squares : 0};
}

}  // namespace ddl
