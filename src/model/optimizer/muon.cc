#include "model/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/adamw.h"
#include "kernels/gemm.h"

namespace ddl {
namespace {

constexpr Index kMuonGrain = 1 << 16;

bool is_muons(const TensorEntry& t) { return t.hidden_matrix && std::min(t.rows, t.cols) > 1; }

std::vector<TensorEntry> tensors_of(const ParamTable& table, double hidden_lr_factor, bool muons) {
  std::vector<TensorEntry> tensors = tensor_entries(table, hidden_lr_factor);
  std::erase_if(tensors, [&](const TensorEntry& t) { return is_muons(t) != muons; });
  return tensors;
}

class Muon final : public Optimizer {
 public:
  Muon(const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config, Arena& arena)
      : Optimizer(table, config, arena),
        options_(config.own.as<MuonOptions>()),
        matrices_(tensors_of(table, hidden_lr_factor, true)),
        momentum_(take_state("momentum", matrices_, arena)),
        rest_(tensors_of(table, hidden_lr_factor, false), options_.rest, arena) {
    Index largest = 0, side = 0;
    for (const TensorEntry& t : matrices_)
      largest = std::max(largest, t.count), side = std::max(side, std::min(t.rows, t.cols));
    const auto take = [&](Index floats) { return arena.take<float>("optimizer: scratch", floats); };
    x_ = take(largest), next_ = take(largest), gram_ = take(side * side), factor_ = take(side * side);
  }

  std::vector<NamedArray> state() const override {
    std::vector<NamedArray> all = {momentum_};
    for (NamedArray& array : rest_.state()) all.push_back(std::move(array));
    return all;
  }

 private:
  void update(const OptimizerStep& step, const Exec& ex) override;
  double take_direction(const TensorEntry& t, float* momentum, const OptimizerStep& step, const Exec& ex);
  void orthogonalise(Index rows, Index cols, const Exec& ex);
  void apply(const TensorEntry& t, const OptimizerStep& step, const Exec& ex) const;

  const MuonOptions options_;
  const std::vector<TensorEntry> matrices_;
  const NamedArray momentum_;
  AdamWTensors rest_;
  float *x_, *next_;       // the matrix at work, and where its next iterate goes
  float *gram_, *factor_;  // of its smaller side
};

// m = mu m + g        x = g + mu m (Nesterov: the momentum as the next step will see it), divided by its
// norm. Returns the norm; 0 where it is too small, and x is then zero.
double Muon::take_direction(const TensorEntry& t, float* m_n, const OptimizerStep& step, const Exec& ex) {
  const float mu = static_cast<float>(options_.momentum), scale = static_cast<float>(step.grad_scale);
  float *g_n = step.grads + t.offset, *x_n = x_;
  parallel_chunks(t.count, kMuonGrain, ex, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float g = scale * g_n[i];
      m_n[i] = mu * m_n[i] + g;
      x_n[i] = g + mu * m_n[i];
      g_n[i] = 0;
    }
  });
  const double norm = std::sqrt(sum_of_squares(x_n, t.count, ex));
  const bool lost = norm < MuonOptions::kSmallestRms * std::sqrt(static_cast<double>(t.count));
  const float factor = lost ? 0.0f : static_cast<float>(1 / norm);
  parallel_chunks(t.count, kMuonGrain, ex, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) x_n[i] *= factor;
  });
  return lost ? 0 : norm;
}

// Newton-Schulz: x = (a I + b A + c A^2) x with A = x x^T; for more rows than columns the same from the
// right, with A = x^T x, which is the smaller of the two.
void Muon::orthogonalise(Index rows, Index cols, const Exec& ex) {
  const bool wide = rows <= cols;
  const Index side = std::min(rows, cols), length = std::max(rows, cols);
  for (Index i = 0; i < options_.newton_schulz; ++i) {
    const Matrix<float> x{x_, cols}, x_t{x_, cols, Op::kTranspose};
    gemm<float, float>(gram_, side, Write::kOverwrite, wide ? x : x_t, wide ? x_t : x, side, side, length,
                       ex);
    gemm<float, float>(factor_, side, Write::kOverwrite, {gram_, side}, {gram_, side}, side, side, side, ex);
    parallel_chunks(side * side, kMuonGrain, ex, [&](Index begin, Index end) {
      for (Index j = begin; j < end; ++j)
        factor_[j] = MuonOptions::kB * gram_[j] + MuonOptions::kC * factor_[j];
    });
    for (Index j = 0; j < side; ++j) factor_[j * side + j] += MuonOptions::kA;
    const Matrix<float> factor{factor_, side};
    gemm<float, float>(next_, cols, Write::kOverwrite, wide ? factor : x, wide ? x : factor, rows, cols, side,
                       ex);
    std::swap(x_, next_);
  }
}

// p = p (1 - lr decay) - lr 0.2 sqrt(max(rows, cols)) x
void Muon::apply(const TensorEntry& t, const OptimizerStep& step, const Exec& ex) const {
  const double lr = step.lr * t.lr_factor;
  const float keep = static_cast<float>(1 - lr * (t.decays ? step.weight_decay : 0));
  const float rate = static_cast<float>(lr * MuonOptions::kAdamWRms *
                                        std::sqrt(static_cast<double>(std::max(t.rows, t.cols))));
  float* p_n = step.params + t.offset;
  bf16* copy_n = step.copy ? step.copy + t.offset : nullptr;
  parallel_chunks(t.count, kMuonGrain, ex, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) p_n[i] = keep * p_n[i] - rate * x_[i];
    if (copy_n)
      for (Index i = begin; i < end; ++i) copy_n[i] = to_bf16(p_n[i]);
  });
}

void Muon::update(const OptimizerStep& step, const Exec& ex) {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const TensorEntry& t = matrices_[i];
    if (take_direction(t, momentum_.data + momentum_.tensors[i].offset, step, ex) > 0)
      orthogonalise(t.rows, t.cols, ex);
    apply(t, step, ex);  // weights decay without a direction, too
  }
  rest_.update(step, ex);
}

}  // namespace

void MuonOptions::describe(Options& o) {
  o.add("train.momentum", momentum, "Muon: decay of the sum of gradients").range(0, 0.999999);
  o.add("train.newton_schulz", newton_schulz, "Muon: iterations that make an update orthogonal")
      .range(1, 100);
  rest.describe(o);
}

OptimizerEntry muon_entry() {
  return {"muon", OptionSetPtr(MuonOptions{}),
          [](const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config,
             Arena& arena) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Muon>(table, hidden_lr_factor, config, arena);
          }};
}

}  // namespace ddl
