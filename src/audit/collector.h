// Watches a model's passes over the audited text and keeps sums. What the numbers mean: docs/audit.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/survival.h"
#include "audit/vectors.h"
#include "core/exec.h"
#include "model/probe.h"

namespace ddl {

// A series of the rule at one sublayer, over all tokens.
struct SeriesRecord {
  std::string name;
  SeriesRole role = SeriesRole::kOther;
  Index per_token = 1;
  float low = 0, high = 0;
  std::vector<double> sum, square;  // by component
  std::vector<float> values_N;      // of gates: one number per token with a range
  bool is_gate() const { return per_token == 1 && high > low; }
};

// Sums over tokens. S sublayers; a square without another word is of a vector's length.
struct AuditSums {
  std::vector<double> output_SC;                                          // h
  std::vector<double> output_square_S, input_square_S1, state_square_S1;  // of h, x_in; of a plane on average
  std::vector<double> plane_cosine_S1, turn_cosine_S;  // between planes; of X before and after
  std::vector<double> readout_square_S, null_square_S, target_square_S;  // r; |X|^2 / C; v
  std::vector<double> error_before_S, error_after_S, error_end_S;        // |k^T X - v|^2
  std::vector<double> change_square_S, change_kept_S;                    // of the write's change along k
  std::vector<double> cosine_SS, cosine_square_SS;                       // of k_l and k_m
  std::vector<double> left_SS, start_left_S;                             // survival.h, as shares
  std::vector<double> surviving_square_S1;  // of what is left of every write at the end, and of the embedding
  std::vector<double> rebuilt_error, rebuilt_square;  // one number each
  std::vector<double> lens_loss_S1, lens_correct_S1, lens_own_S1;

  AuditSums(Index S, Index C);
  void add(const AuditSums& other);
};

class Collector {
 public:
  explicit Collector(Probe& probe);

  struct Wanted {
    bool lens = false, rank = false;
  };
  // A pass over the probe's batch, of which the first `rows` windows count.
  void add(const BatchView& batch, Index rows, Wanted wanted, const Exec& ex);

  AuditSums sums() const;                                                           // of all windows so far
  const std::vector<std::vector<SeriesRecord>>& series() const { return series_; }  // by sublayer
  const SeriesRecord* find(Index s, const std::string& name) const;                 // null: no such series
  const std::vector<float>& losses() const { return loss_N_; }                      // of all tokens
  Index tokens() const { return std::ssize(loss_N_); }
  Index channels() const { return D_; }  // 0: the rule has no running state
  bool erases() const;                   // the rule has gates, a readout and a target: survival applies
  bool has_targets() const;
  bool has_lens() const { return has_lens_; }
  Index lens_tokens() const { return lens_tokens_; }
  Index rank_tokens() const { return rank_tokens_; }
  const std::vector<DirectionSpread>& state_spread() const { return state_spread_S1_; }
  const std::vector<DirectionSpread>& input_spread() const { return input_spread_S1_; }

 private:
  void look(const Probe::Depth& depth, Index rows, const Exec& ex);
  void look_at_window(const Probe::Depth& depth, Index b);
  void look_through_lens(Index s, const BatchView& batch, Index rows, const Exec& ex);
  void measure_rank(const Probe::Depth& depth, Index rows, const Exec& ex);
  void keep_series(Index rows);
  void sum_up_window(Index b);

  Probe& probe_;
  const Index S_, C_, N_, T_;
  Index D_ = 0;
  std::vector<AuditSums> window_sums_;  // of the batch's windows, apart: the order of sums is fixed
  std::vector<std::vector<SeriesRecord>> series_;
  std::vector<float> loss_N_;
  bool has_lens_ = false;
  Index lens_tokens_ = 0, rank_tokens_ = 0;
  std::vector<DirectionSpread> state_spread_S1_, input_spread_S1_;

  // Of the pass at work.
  std::vector<float> h_SNC_, start_NDC_, before_NDC_;
  std::vector<double> before_SND_, after_SND_,
      end_SND_;  // h_s . X_d before its write, after it, and at the end
  const float* end_NDC_ = nullptr;
  std::vector<std::vector<TokenSeries>> pass_series_;
};

}  // namespace ddl
