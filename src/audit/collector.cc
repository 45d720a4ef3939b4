#include "audit/collector.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ddl {
namespace {

std::size_t size(Index count) { return static_cast<std::size_t>(count); }

// The gate of the erase, or of the write, where the rule has one for both, too.
template <class Series>
const Series* gate_of(const std::vector<Series>& all, SeriesRole part) {
  const Series* own = find_series(all, part);
  return own ? own : find_series(all, SeriesRole::kGate);
}
double at(const TokenSeries& series, Index n, Index i = 0) {
  return static_cast<double>(series.values[n * series.stride + i]);
}

double cosine(double dot, double square_a, double square_b) {
  const double lengths = std::sqrt(square_a * square_b);
  return lengths > 0 ? dot / lengths : 0;
}

constexpr std::vector<double> AuditSums::*kMembers[] = {
    &AuditSums::output_SC,           &AuditSums::output_square_S, &AuditSums::input_square_S1,
    &AuditSums::state_square_S1,     &AuditSums::plane_cosine_S1, &AuditSums::turn_cosine_S,
    &AuditSums::readout_square_S,    &AuditSums::null_square_S,   &AuditSums::target_square_S,
    &AuditSums::error_before_S,      &AuditSums::error_after_S,   &AuditSums::error_end_S,
    &AuditSums::change_square_S,     &AuditSums::change_kept_S,   &AuditSums::cosine_SS,
    &AuditSums::cosine_square_SS,    &AuditSums::left_SS,         &AuditSums::start_left_S,
    &AuditSums::surviving_square_S1, &AuditSums::rebuilt_error,   &AuditSums::rebuilt_square,
    &AuditSums::lens_loss_S1,        &AuditSums::lens_correct_S1, &AuditSums::lens_own_S1};

}  // namespace

AuditSums::AuditSums(Index S, Index C) {
  for (auto* sums :
       {&output_square_S, &turn_cosine_S, &readout_square_S, &null_square_S, &target_square_S,
        &error_before_S, &error_after_S, &error_end_S, &change_square_S, &change_kept_S, &start_left_S})
    sums->assign(size(S), 0.0);
  for (auto* sums : {&input_square_S1, &state_square_S1, &plane_cosine_S1, &surviving_square_S1,
                     &lens_loss_S1, &lens_correct_S1, &lens_own_S1})
    sums->assign(size(S + 1), 0.0);
  for (auto* sums : {&cosine_SS, &cosine_square_SS, &left_SS}) sums->assign(size(S * S), 0.0);
  for (auto* sums : {&rebuilt_error, &rebuilt_square}) sums->assign(1, 0.0);
  output_SC.assign(size(S * C), 0.0);
}

void AuditSums::add(const AuditSums& other) {
  for (const auto member : kMembers)
    for (std::size_t i = 0; i < (this->*member).size(); ++i) (this->*member)[i] += (other.*member)[i];
}

Collector::Collector(Probe& probe)
    : probe_(probe),
      S_(probe.config().sublayers()),
      C_(probe.config().width),
      N_(probe.shape().N()),
      T_(probe.shape().T),
      window_sums_(size(probe.shape().B), AuditSums(S_, C_)),
      series_(size(S_)),
      state_spread_S1_(size(S_ + 1)),
      input_spread_S1_(size(S_ + 1)),
      h_SNC_(size(S_ * N_ * C_)),
      pass_series_(size(S_)) {}

AuditSums Collector::sums() const {
  AuditSums total(S_, C_);
  for (const AuditSums& window : window_sums_) total.add(window);
  return total;
}

const SeriesRecord* Collector::find(Index s, const std::string& name) const {
  for (const SeriesRecord& record : series_[s])
    if (record.name == name) return &record;
  return nullptr;
}
bool Collector::has_targets() const { return find_series(series_[0], SeriesRole::kTarget) != nullptr; }
bool Collector::erases() const {
  using enum SeriesRole;
  return has_targets() && find_series(series_[0], kReadout) && gate_of(series_[0], kEraseGate) &&
         gate_of(series_[0], kWriteGate);
}

void Collector::add(const BatchView& batch, Index rows, Wanted wanted, const Exec& ex) {
  std::vector<float> loss_N(size(N_));
  probe_.watch(
      batch, {.loss_N = loss_N.data()},
      [&](const Probe::Depth& depth) {
        look(depth, rows, ex);
        if (wanted.lens) look_through_lens(depth.s, batch, rows, ex);
        if (wanted.rank) measure_rank(depth, rows, ex);
      },
      ex);
  loss_N_.insert(loss_N_.end(), loss_N.begin(), loss_N.begin() + rows * T_);
  if (wanted.lens) lens_tokens_ += rows * T_;
  if (wanted.rank) rank_tokens_ = rows * T_;
  for (Index s = 0; s < S_; ++s) pass_series_[s] = probe_.series(s);
  keep_series(rows);
  parallel_for(rows, ex, [&](Index b) { sum_up_window(b); });
}

void Collector::look(const Probe::Depth& depth, Index rows, const Exec& ex) {
  if (depth.s == 0) {
    D_ = depth.state.state_NDC ? depth.state.channels : 0;
    for (auto* state : {&start_NDC_, &before_NDC_}) state->resize(size(N_ * D_ * C_));
    for (auto* dots : {&before_SND_, &after_SND_, &end_SND_}) dots->assign(size(S_ * N_ * D_), 0.0);
  }
  if (depth.s == S_) end_NDC_ = depth.state.state_NDC;
  parallel_for(rows, ex, [&](Index b) { look_at_window(depth, b); });
}

void Collector::look_at_window(const Probe::Depth& depth, Index b) {
  const Index s = depth.s, D = D_, C = C_;
  AuditSums& sums = window_sums_[b];
  const double eps = probe_.config().norm_eps;
  std::vector<double> square_D(size(D));
  for (Index n = b * T_; n < (b + 1) * T_; ++n) {
    if (depth.state.rstd_N) {
      const double rstd = static_cast<double>(depth.state.rstd_N[n]);
      sums.input_square_S1[s] += std::max(0.0, static_cast<double>(C) * (1 / (rstd * rstd) - eps));
    }
    if (depth.h_NC) {
      const float* h_C = depth.h_NC + n * C;
      std::copy(h_C, h_C + C, h_SNC_.data() + (s * N_ + n) * C);
      sums.output_square_S[s] += square(h_C, C);
      for (Index c = 0; c < C; ++c) sums.output_SC[s * C + c] += static_cast<double>(h_C[c]);
    }
    if (D == 0) continue;

    const float* X_DC = depth.state.state_NDC + n * D * C;
    double total = 0;
    for (Index d = 0; d < D; ++d) total += square_D[d] = square(X_DC + d * C, C);
    sums.state_square_S1[s] += total / static_cast<double>(D);
    if (s < S_) sums.null_square_S[s] += total / static_cast<double>(C);
    const double pairs = static_cast<double>(D * (D - 1) / 2);
    for (Index d = 0; d < D; ++d)
      for (Index e = d + 1; e < D; ++e)
        sums.plane_cosine_S1[s] +=
            cosine(dot(X_DC + d * C, X_DC + e * C, C), square_D[d], square_D[e]) / pairs;

    // h of an earlier sublayer with the state as it is now.
    const auto dots = [&](std::vector<double>& to_SND, Index m) {
      for (Index d = 0; d < D; ++d)
        to_SND[(m * N_ + n) * D + d] = dot(h_SNC_.data() + (m * N_ + n) * C, X_DC + d * C, C);
    };
    float* before_DC = before_NDC_.data() + n * D * C;
    if (s == 0) {
      std::copy(X_DC, X_DC + D * C, start_NDC_.data() + n * D * C);
    } else {
      dots(after_SND_, s - 1);
      sums.turn_cosine_S[s - 1] += cosine(dot(before_DC, X_DC, D * C), square(before_DC, D * C), total);
    }
    if (s < S_) {
      dots(before_SND_, s);
      std::copy(X_DC, X_DC + D * C, before_DC);
    } else {
      for (Index m = 0; m < S_; ++m) dots(end_SND_, m);
    }
  }
}

void Collector::look_through_lens(Index s, const BatchView& batch, Index rows, const Exec& ex) {
  std::vector<float> loss_N(size(N_)), own_N(size(N_));
  std::vector<std::uint8_t> correct_N(size(N_));
  has_lens_ = probe_.lens(batch, {loss_N.data(), correct_N.data(), own_N.data()}, ex);
  if (!has_lens_) return;
  for (Index b = 0; b < rows; ++b)
    for (Index n = b * T_; n < (b + 1) * T_; ++n) {
      window_sums_[b].lens_loss_S1[s] += static_cast<double>(loss_N[n]);
      window_sums_[b].lens_correct_S1[s] += correct_N[n];
      window_sums_[b].lens_own_S1[s] += static_cast<double>(own_N[n]);
    }
}

void Collector::measure_rank(const Probe::Depth& depth, Index rows, const Exec& ex) {
  const Index tokens = rows * T_;
  std::vector<float> rows_MC(depth.context_NC, depth.context_NC + tokens * C_);
  input_spread_S1_[depth.s] = spread(rows_MC, C_, ex);
  if (D_ == 0) return;
  rows_MC.assign(depth.state.state_NDC, depth.state.state_NDC + tokens * D_ * C_);
  state_spread_S1_[depth.s] = spread(rows_MC, C_, ex);
}

void Collector::keep_series(Index rows) {
  for (Index s = 0; s < S_; ++s) {
    if (series_[s].empty())
      for (const TokenSeries& t : pass_series_[s])
        series_[s].push_back({t.name,
                              t.role,
                              t.per_token,
                              t.low,
                              t.high,
                              std::vector<double>(size(t.per_token), 0.0),
                              std::vector<double>(size(t.per_token), 0.0),
                              {}});
    for (std::size_t k = 0; k < pass_series_[s].size(); ++k) {
      SeriesRecord& record = series_[s][k];
      for (Index n = 0; n < rows * T_; ++n) {
        for (Index i = 0; i < record.per_token; ++i) {
          const double value = at(pass_series_[s][k], n, i);
          record.sum[i] += value, record.square[i] += value * value;
        }
        if (record.is_gate()) record.values_N.push_back(static_cast<float>(at(pass_series_[s][k], n)));
      }
    }
  }
}

// What needs the gates, and h of all sublayers together.
void Collector::sum_up_window(Index b) {
  const Index S = S_, D = D_, C = C_;
  AuditSums& sums = window_sums_[b];
  const bool erases = this->erases(), targets = has_targets();
  struct Of {
    const TokenSeries *scale, *erase, *write, *target;
  };
  std::vector<Of> of_S;
  using enum SeriesRole;
  for (const auto& all : pass_series_)
    of_S.push_back({find_series(all, kDirectionScale), gate_of(all, kEraseGate), gate_of(all, kWriteGate),
                    find_series(all, kTarget)});

  TokenWrites token;
  token.sublayers = S, token.channels = D;
  token.gram_SS.resize(size(S * S)), token.start_dot_SD.resize(size(S * D));
  token.start_square_D.resize(size(D)), token.erase_S.resize(size(S));
  Surviving left;
  std::vector<double> scale_S(size(S)), sums_DS(size(D * S));
  for (Index n = b * T_; n < (b + 1) * T_; ++n) {
    const auto h = [&](Index s) { return h_SNC_.data() + (s * N_ + n) * C; };
    // Directions k = scale h: the rule's own scale where it has one, unit vectors otherwise.
    for (Index s = 0; s < S; ++s) {
      const double length = std::sqrt(square(h(s), C));
      scale_S[s] = of_S[s].scale ? at(*of_S[s].scale, n) : length > 0 ? 1 / length : 0;
    }
    for (Index l = 0; l < S; ++l)
      for (Index m = 0; m <= l; ++m)
        token.gram_SS[l * S + m] = token.gram_SS[m * S + l] = dot(h(l), h(m), C) * scale_S[l] * scale_S[m];
    for (Index l = 0; l < S; ++l)
      for (Index m = 0; m < S; ++m) {
        const double c = cosine(token.gram_SS[l * S + m], token.gram_SS[l * S + l], token.gram_SS[m * S + m]);
        sums.cosine_SS[l * S + m] += c;
        sums.cosine_square_SS[l * S + m] += c * c;
      }
    if (D == 0) continue;

    for (Index s = 0; s < S; ++s)
      for (Index d = 0; d < D; ++d) {
        const Index i = (s * N_ + n) * D + d;
        const double before = before_SND_[i] * scale_S[s], after = after_SND_[i] * scale_S[s],
                     end = end_SND_[i] * scale_S[s];
        const double change = after - before;
        sums.readout_square_S[s] += before * before;
        sums.change_square_S[s] += change * change;
        sums.change_kept_S[s] += change * (end - before);
        if (!targets) continue;
        const double v = at(*of_S[s].target, n, d);
        sums.target_square_S[s] += v * v;
        sums.error_before_S[s] += (before - v) * (before - v);
        sums.error_after_S[s] += (after - v) * (after - v);
        sums.error_end_S[s] += (end - v) * (end - v);
      }
    if (!erases) continue;

    const float* start_DC = start_NDC_.data() + n * D * C;
    double start_square = 0;
    for (Index d = 0; d < D; ++d) start_square += token.start_square_D[d] = square(start_DC + d * C, C);
    for (Index s = 0; s < S; ++s) {
      token.erase_S[s] = at(*of_S[s].erase, n);
      for (Index d = 0; d < D; ++d)
        token.start_dot_SD[s * D + d] = dot(h(s), start_DC + d * C, C) * scale_S[s];
    }
    find_surviving(token, left);
    for (Index m = 0; m < S; ++m) {
      const double whole = left.left_SS[m * S + m];
      for (Index j = m; j < S; ++j)
        sums.left_SS[m * S + j] += whole > 0 ? left.left_SS[m * S + j] / whole : 0;
      sums.start_left_S[m] += start_square > 0 ? left.start_left_S[m] / std::sqrt(start_square) : 0;
      double written = 0;  // |w v|^2
      for (Index d = 0; d < D; ++d) {
        const double v = at(*of_S[m].write, n) * at(*of_S[m].target, n, d);
        written += v * v;
      }
      const double at_end = left.left_SS[m * S + S - 1];
      sums.surviving_square_S1[m] += at_end * at_end * written;
    }
    sums.surviving_square_S1[S] += left.start_left_S[S - 1] * left.start_left_S[S - 1];

    // The parts put together again must be the state that the model has: checked on one token of each window.
    if (n != (b + 1) * T_ - 1) continue;
    for (Index d = 0; d < D; ++d)
      for (Index l = 0; l < S; ++l) {
        double sum = left.start_DS[d * S + l];
        for (Index m = 0; m <= l; ++m)
          sum += at(*of_S[m].write, n) * at(*of_S[m].target, n, d) * left.write_SS[m * S + l];
        sums_DS[d * S + l] = sum * scale_S[l];
      }
    for (Index d = 0; d < D; ++d)
      for (Index c = 0; c < C; ++c) {
        double x = static_cast<double>(start_DC[d * C + c]);
        for (Index l = 0; l < S; ++l) x += sums_DS[d * S + l] * static_cast<double>(h(l)[c]);
        const double truth = static_cast<double>(end_NDC_[(n * D + d) * C + c]);
        sums.rebuilt_error[0] += (x - truth) * (x - truth);
        sums.rebuilt_square[0] += truth * truth;
      }
  }
}

}  // namespace ddl
