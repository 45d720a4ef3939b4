#include "model/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/profiler.h"
#include "kernels/adamw.h"
#include "model/optimizer/adamw.h"
#include "model/optimizer/muon.h"

namespace ddl {
namespace {

constexpr Index kOptimizerGrain = 1 << 16;
constexpr Index kLineFloats = Arena::kAlignBytes / sizeof(float);

std::vector<OptimizerEntry>& known_optimizers() {
  static std::vector<OptimizerEntry> all = {adamw_entry(), muon_entry()};  // a new one is one word here
  return all;
}

}  // namespace

void register_optimizer(OptimizerEntry entry) {
  std::erase_if(known_optimizers(), [&](const OptimizerEntry& other) { return other.name == entry.name; });
  known_optimizers().push_back(std::move(entry));
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerEntry& entry : known_optimizers()) names.push_back(entry.name);
  return names;
}

const OptimizerEntry& find_optimizer(const std::string& name) {
  for (const OptimizerEntry& entry : known_optimizers())
    if (entry.name == name) return entry;
  throw UserError("no optimizer '{}'; there are {} (nearest: {})", name, fmt::join(optimizer_names(), ", "),
                  nearest(name, optimizer_names()));
}

std::vector<int> state_owners(const ParamTable& table, int ranks) {
  std::vector<int> owners;
  const double piece = static_cast<double>(table.floats()) / ranks;
  for (const Param& p : table.list()) {  // by the middle of each, which grows from tensor to tensor
    const double middle = static_cast<double>(p.offset) + 0.5 * static_cast<double>(p.count);
    owners.push_back(std::min(ranks - 1, static_cast<int>(middle / piece)));
  }
  return owners;
}

ParamTable with_optimizer_choices(const ParamTable& table, const OptimizerConfig& config) {
  const std::vector<int> owners = state_owners(table, config.share.ranks);
  auto owner = owners.begin();
  return table.with_choices([&](Param& p) {
    p.updated_here = *owner++ == config.share.rank;
    if (config.decay == Decays::kAllButNorms) p.decays = !p.norm;
    if (config.mup_rates == MupRates::kAllButEmbedding) p.scaled_rate = !p.embedding;
  });
}

std::unique_ptr<Optimizer> make_optimizer(const ParamTable& table, double hidden_lr_factor,
                                          const OptimizerConfig& config, Arena& arena) {
  return find_optimizer(config.name)
      .make(with_optimizer_choices(table, config), hidden_lr_factor, config, arena);
}

void OptimizerConfig::choose(const std::string& optimizer) {
  own = find_optimizer(optimizer).options;
  name = optimizer;
}

void OptimizerConfig::describe(Options& o) {
  std::vector<NamedOptionSet> all;
  for (const OptimizerEntry& entry : known_optimizers()) all.push_back({entry.name, entry.options});
  o.add("train.optimizer", name, "what makes an update of a gradient").choices(optimizer_names());
  describe_chosen(o, "train.optimizer", name, *own, all);
  o.add("train.weight_decay", weight_decay, "of the tensors that train.decay says").range(0, 100);
  o.add("train.decay", decay, "what decays: matrices and the embedding, or all but norms");
  o.add("train.mup_rates", mup_rates, "whose rate mup scales: hidden matrices', or all but the embedding's");
  o.add("train.clip", clip, "largest global gradient norm; 0 means no limit").range(0, 1e30);
  o.add("train.ema", average, "decay of the weights' average, which is validated and used; 0: off")
      .range(0, 0.9999999);
}

std::vector<TensorEntry> tensor_entries(const ParamTable& table, double hidden_lr_factor) {
  std::vector<TensorEntry> tensors;
  for (Index i = 0; i < std::ssize(table.list()); ++i) {
    const Param& param = table.list()[i];
    if (!param.updated_here) continue;
    TensorEntry t;
    t.param = i;
    t.offset = param.offset, t.count = param.count;
    t.rows = param.shape.size() == 2 ? param.shape[0] : 1;
    t.cols = t.count / std::max<Index>(t.rows, 1);
    t.hidden_matrix = param.hidden_matrix;
    t.lr_factor = param.scaled_rate ? hidden_lr_factor : 1.0;
    t.decays = param.decays;
    tensors.push_back(t);
  }
  return tensors;
}

NamedArray take_state(const std::string& name, std::span<const TensorEntry> tensors, Arena& arena) {
  NamedArray array;
  array.name = name;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& t : tensors) {
    const bool neighbour = before && before->param + 1 == t.param;
    const Index gap = neighbour ? t.offset - (before->offset + before->count) : 0;
    const Index at = neighbour ? array.floats + gap : round_up(array.floats, kLineFloats);
    array.tensors.push_back({t.param, at});
    array.floats = at + t.count;
    before = &t;
  }
  array.data = arena.take<float>("optimizer: " + name, array.floats);
  return array;
}

Optimizer::Optimizer(const ParamTable& table, const OptimizerConfig& config, Arena& arena)
    : weight_decay_(config.weight_decay),
      clip_(config.clip),
      average_decay_(config.average),
      table_floats_(table.floats()),
      shared_(config.share.ranks > 1) {
  if (has_average()) average_ = arena.take<float>("average of weights", table_floats_);
}

Index Optimizer::state_floats() const {
  Index floats = has_average() ? table_floats_ : 0;
  for (const NamedArray& array : state()) floats += array.floats;
  return floats;
}

Optimizer::Update Optimizer::step(std::span<float> params, std::span<float> grads, bf16* copy, double lr,
                                  const Exec& ex) {
  const ProfileScope scope("optimizer", ex);
  Update result;
  result.grad_norm = std::sqrt(sum_of_squares(grads.data(), std::ssize(grads), ex));
  if (!std::isfinite(result.grad_norm)) {
    discard(grads, ex);
    return result;
  }
  result.applied = true;
  ++updates_;
  OptimizerStep step;
  step.params = params.data(), step.grads = grads.data(), step.copy = copy;
  step.lr = lr;
  step.grad_scale = clip_ > 0 && result.grad_norm > clip_ ? clip_ / result.grad_norm : 1;
  step.weight_decay = weight_decay_;
  step.number = updates_;
  update(step, ex);
  if (shared_) {
    discard(grads, ex);
    exchange_();
  }
  if (average_) {
    const float keep = static_cast<float>(average_keeps());
    parallel_chunks(std::ssize(params), kOptimizerGrain, ex, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) average_[i] = params[i] + keep * (average_[i] - params[i]);
    });
  }
  return result;
}

// Early on the average follows quickly, so that the starting values do not linger in it.
double Optimizer::average_keeps() const {
  const double n = static_cast<double>(updates_);
  return std::min(average_decay_, (1 + n) / (10 + n));
}

void Optimizer::discard(std::span<float> grads, const Exec& ex) {
  parallel_chunks(std::ssize(grads), kOptimizerGrain, ex,
                  [&](Index begin, Index end) { std::fill(grads.data() + begin, grads.data() + end, 0.0f); });
}

void Optimizer::start_average(std::span<const float> params, const Exec& ex) {
  if (!average_) return;
  parallel_chunks(std::ssize(params), kOptimizerGrain, ex, [&](Index begin, Index end) {
    std::copy(params.data() + begin, params.data() + end, average_ + begin);
  });
}

void Optimizer::swap_average(std::span<float> params, const Exec& ex) {
  if (!average_) return;
  parallel_chunks(std::ssize(params), kOptimizerGrain, ex, [&](Index begin, Index end) {
    std::swap_ranges(params.data() + begin, params.data() + end, average_ + begin);
  });
}

}  // namespace ddl
