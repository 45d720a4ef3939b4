#include "model/params.h"

#include <algorithm>

#include "core/rng.h"

namespace ddl {

Index ParamTable::add(std::string name, std::vector<Index> shape, Init init, Placement placement) {
  Param p;
  p.name = std::move(name);
  p.count = 1;
  for (const Index extent : shape) p.count *= extent;
  p.shape = std::move(shape);
  p.init = init;
  p.joined = placement == kJoined;
  p.offset = p.joined ? end_ : round_up(end_, 16);
  end_ = p.offset + p.count;
  params_.push_back(std::move(p));
  return params_.back().offset;
}

Index ParamTable::add_matrix(std::string name, Index out, Index in, Init init, Placement placement) {
  const Index offset = add(std::move(name), {out, in}, init, placement);
  Param& p = params_.back();
  p.hidden_matrix = p.decays = p.scaled_rate = true;
  return offset;
}

Index ParamTable::add_linear(std::string name, Index out, Index in, Init init, Placement placement) {
  add_matrix(std::move(name), out, in, init, placement);
  return pack_last();
}

Index ParamTable::add_embedding(std::string name, Index rows, Index width, Init init) {
  add(std::move(name), {rows, width}, init);
  params_.back().embedding = params_.back().decays = true;
  return pack_last();
}

Index ParamTable::pack_last() {
  Param& p = params_.back();
  if (matrices_ == Matrices::kPacked) {
    p.packed = true;
    end_ -= p.count;
    p.offset = packed_end_;
    packed_end_ += p.count;
  }
  return p.offset;
}

Index ParamTable::add_norm(std::string name, Index features) {
  const Index offset = add(std::move(name), {features}, Init::constant(1));
  params_.back().norm = true;
  return offset;
}

const Param& ParamTable::find(const std::string& name) const {
  const auto found =
      std::find_if(params_.begin(), params_.end(), [&](const Param& p) { return p.name == name; });
  DDL_CHECK(found != params_.end(), "no parameter {}", name);
  return *found;
}

Index ParamTable::parameter_count() const {
  Index total = 0;
  for (const Param& p : params_) total += p.count;
  return total;
}

void ParamTable::initialise(float* array, std::uint64_t seed, const Exec& ex) const {
  std::fill_n(array, end_, 0.0f);
  for (const Param& p : params_) {
    if (p.packed) continue;
    float* x = array + p.offset;
    switch (p.init.kind) {
      case Init::kConstant:
        std::fill_n(x, p.count, static_cast<float>(p.init.value));
        break;
      case Init::kNormal:
      case Init::kUniform: {
        const Random random(seed, p.init.draws_as.empty() ? p.name : p.init.draws_as);
        const bool normal = p.init.kind == Init::kNormal;
        parallel_chunks(p.count, 1 << 16, ex, [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) {
            const auto counter = static_cast<std::uint64_t>(i);
            const double draw = normal ? random.normal(counter) : 2 * random.uniform(counter) - 1;
            x[i] = static_cast<float>(p.init.value * draw);
          }
        });
        break;
      }
      case Init::kTap: {
        const Index tap = p.count / p.shape.front();
        std::fill_n(x + p.count - (p.init.tap_from_end + 1) * tap, tap, static_cast<float>(p.init.value));
        break;
      }
      case Init::kOneElement: {
        std::fill_n(x, p.count, static_cast<float>(p.init.value));
        const Index columns = p.shape.back();
        for (Index row = 0; row < p.count / columns; ++row)
          x[row * columns + p.init.element + row * p.init.step] = static_cast<float>(p.init.there);
      }
    }
  }
}

}  // namespace ddl
