#include "model/reference/engine.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/reference/oracle.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

std::vector<std::int32_t> to_vector(const std::int32_t* tokens, Index n) { return {tokens, tokens + n}; }

// The oracle with weights as they were when it was made.
class Oracle {
 public:
  explicit Oracle(const Weights& weights)
      : shape_(oracle_shape(weights.config())),
        rule_(make_oracle<double>(weights.config())),
        parameters_(oracle_parameters(weights)),
        model_(shape_, *rule_, parameters_) {}

  std::vector<double> logits(const std::vector<std::int32_t>& tokens, Index B, Index T) const {
    return model_.logits(tokens, B, T);
  }
  // What follows every token of one sequence: T rows of V logits, rounded to f32.
  std::vector<float> logits(const std::vector<std::int32_t>& sequence) const {
    const std::vector<double> z = logits(sequence, 1, std::ssize(sequence));
    return {z.begin(), z.end()};
  }

 private:
  const ref::Shape shape_;
  const std::unique_ptr<ref::Rule<double>> rule_;
  const ref::Parameters<double> parameters_;
  const ref::Model<double> model_;
};

class ReferenceTrainable final : public TrainableModel {
 public:
  ReferenceTrainable(const ModelConfig& config, BatchShape shape, const OptimizerConfig& optimizer,
                     std::uint64_t seed, const Exec& ex)
      : config_(config),
        shape_(shape),
        weights_(config, seed, ex),
        tape_rule_(make_oracle<ref::Var>(config)),
        gradients_(weights_.values().size(), 0.0f) {
    arena_ = Arena::planned([&](Arena& arena) {
      optimizer_ = make_optimizer(weights_.table(), config.hidden_lr_factor(), optimizer, arena);
    });
    optimizer_->start_average(weights_.values(), ex);
  }

  const ModelConfig& config() const override { return config_; }
  BatchShape shape() const override { return shape_; }
  Weights& weights() override { return weights_; }
  Optimizer& optimizer() override { return *optimizer_; }
  void upload(const Exec& ex) override { weights_.update_copy(ex); }

  double loss(const BatchView& batch, const TokenScores& scores, const Exec&) override {
    const Index N = shape_.N(), V = config_.vocab;
    const std::vector<double> z_NV =
        Oracle(weights_).logits(to_vector(batch.token_BT, N), shape_.B, shape_.T);
    const std::vector<double> lse_N = ref::logsumexp(z_NV, N, V);
    double sum = 0;
    Index targets = 0;
    for (Index n = 0; n < N; ++n) {
      const std::int32_t target = batch.target_BT[n];
      const double* z = z_NV.data() + n * V;
      const double loss = target < 0 ? 0 : lse_N[n] - z[target];
      if (scores.loss_N) scores.loss_N[n] = static_cast<float>(loss);
      if (scores.correct_N)
        scores.correct_N[n] = target >= 0 && *std::max_element(z, z + V) == z[target] ? 1 : 0;
      sum += loss, targets += target >= 0;
    }
    require_targets(targets);
    return sum / static_cast<double>(targets);
  }

  double loss_and_grad(const BatchView& batch, double grad_scale, const Exec&) override {
    const Index N = shape_.N();
    require_targets(
        std::count_if(batch.target_BT, batch.target_BT + N, [](std::int32_t t) { return t >= 0; }));
    const ref::LossAndGradient result = ref::loss_gradient_by_tape(
        oracle_shape(config_), *tape_rule_, oracle_parameters(weights_), to_vector(batch.token_BT, N),
        to_vector(batch.target_BT, N), shape_.B, shape_.T);
    for (const Param& p : weights_.table().list()) {
      const std::vector<double>& gradient = result.gradient.at(p.name);
      for (Index i = 0; i < p.count; ++i)
        gradients_[p.offset + i] += static_cast<float>(grad_scale * gradient[i]);
    }
    return result.loss;
  }

  std::span<float> gradients() override { return gradients_; }
  Optimizer::Update update(double lr, const Exec& ex) override {
    return optimizer_->step(weights_.values(), gradients_, weights_.copy(), lr, ex);
  }
  void discard_gradients(const Exec& ex) override { Optimizer::discard(gradients_, ex); }
  std::vector<TokenSeries> series(Index) const override { return {}; }
  std::vector<Arena::Entry> memory() const override {
    std::vector<Arena::Entry> all = weights_.arena().ledger();
    all.insert(all.end(), arena_.ledger().begin(), arena_.ledger().end());
    all.push_back({"gradients", gradients_.size() * sizeof(float)});
    return all;
  }

 private:
  void require_targets(Index targets) const {
    if (targets == 0) throw UserError("a batch of {} tokens has no target to predict", shape_.N());
  }

  const ModelConfig config_;
  const BatchShape shape_;
  Weights weights_;
  const std::unique_ptr<ref::Rule<ref::Var>> tape_rule_;
  Arena arena_ = Arena::measuring();
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> gradients_;
};

// Keeps the tokens of every sequence and computes the whole of it again for each append.
class ReferenceDecoder final : public Decoder {
 public:
  ReferenceDecoder(const Weights& weights, const DecoderShape& shape)
      : config_(weights.config()),
        context_(shape.context > 0 ? shape.context : config_.context),
        oracle_(weights),
        sequences_(static_cast<std::size_t>(shape.slots)) {}

  const ModelConfig& config() const override { return config_; }
  Index slots() const override { return std::ssize(sequences_); }
  Index context() const override { return context_; }
  Index length(Index slot) const override { return std::ssize(sequences_[slot]); }
  const Arena& arena() const override { return arena_; }

  void append(std::span<const Append> appends, const Exec& ex) override {
    logits_.assign(appends.size(), {});
    append_visiting(
        appends,
        [&](Index i, Index, std::span<const float> logits) {
          logits_[i].assign(logits.begin(), logits.end());
        },
        ex);
  }
  std::span<const float> logits(Index append) const override { return logits_[append]; }

  void append_visiting(std::span<const Append> appends, Visit visit, const Exec&) override {
    for (const Append& a : appends) check_append(a, length(a.slot), context_, config_.vocab);
    const auto V = static_cast<std::size_t>(config_.vocab);
    for (Index i = 0; i < std::ssize(appends); ++i) {
      std::vector<std::int32_t>& sequence = sequences_[appends[i].slot];
      const std::size_t past = sequence.size();
      sequence.insert(sequence.end(), appends[i].tokens.begin(), appends[i].tokens.end());
      const std::vector<float> rows = oracle_.logits(sequence);
      for (std::size_t t = past; t < sequence.size(); ++t)
        visit(i, static_cast<Index>(t - past), std::span(rows).subspan(t * V, V));
    }
  }

  void reset(Index slot) override { sequences_[slot].clear(); }
  void copy(Index to_slot, Index from_slot) override { sequences_[to_slot] = sequences_[from_slot]; }

 private:
  const ModelConfig config_;
  const Index context_;
  const Oracle oracle_;
  const Arena arena_ = Arena::measuring();
  std::vector<std::vector<std::int32_t>> sequences_;
  std::vector<std::vector<float>> logits_;
};

// Computes every run's whole path again.
class ReferenceTreeScorer final : public TreeScorer {
 public:
  ReferenceTreeScorer(const Weights& weights, const TreeShape& shape)
      : config_(weights.config()), shape_(shape), oracle_(weights) {}

  const ModelConfig& config() const override { return config_; }
  TreeShape shape() const override { return shape_; }
  const Arena& arena() const override { return arena_; }

  void run(std::span<const TreeRun> runs, Visit visit, const Exec&) override {
    for (const TreeRun& run : runs) check_run(run, shape_.depths, config_);
    std::vector<std::int32_t> path;
    const Index V = config_.vocab;
    for (Index r = 0; r < std::ssize(runs); ++r) {
      const TreeRun& run = runs[r];
      path.resize(static_cast<std::size_t>(run.position));
      path.insert(path.end(), run.tokens.begin(), run.tokens.end());
      if (run.first_wanted >= std::ssize(run.tokens)) continue;
      const std::vector<float> rows = oracle_.logits(path);
      for (Index i = run.first_wanted; i < std::ssize(run.tokens); ++i) {
        const auto row = static_cast<std::size_t>((run.position + i) * V);
        visit(r, i, next_token(std::span(rows).subspan(row, static_cast<std::size_t>(V))));
      }
    }
  }

 private:
  const ModelConfig config_;
  const TreeShape shape_;
  const Oracle oracle_;
  const Arena arena_ = Arena::measuring();
};

class ReferenceEngine final : public Engine {
 public:
  std::string name() const override { return "reference"; }
  std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                                 const OptimizerConfig& optimizer, std::uint64_t seed,
                                                 const Exec& ex) const override {
    return std::make_unique<ReferenceTrainable>(config, shape, optimizer, seed, ex);
  }
  std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape,
                                        const Exec&) const override {
    return std::make_unique<ReferenceDecoder>(weights, shape);
  }
  std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape,
                                               const Exec&) const override {
    return std::make_unique<ReferenceTreeScorer>(weights, shape);
  }
  bool has_fast_bf16() const override { return false; }
  bool computes_in_f64() const override { return true; }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace ddl
