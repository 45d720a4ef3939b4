// Derivatives by reverse mode: a forward pass in Var writes every operation on a tape, and one walk back over
// the tape gives the derivative of the loss by every number. Complex step (complex_step.h) needs one forward
// pass per derivative, so a model learns by tape.
//
// The chain rule. Node n stands for a value y_n = f(y_a, y_b); its adjoint is dL/dy_n:
//   adjoint_L  = 1
//   adjoint_a += dy_n/dy_a adjoint_n        n from the last node to the first
//   adjoint_b += dy_n/dy_b adjoint_n
// A node comes after its parents, so adjoint_n is complete when the walk reaches n.
//
//   Tape tape;
//   const Tape::Scope scope(tape);
//   const Var x = tape.variable(3), y = x * x;
//   tape.gradients(y);
//   tape.gradient(x);  // 6
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/index.h"

namespace ddl::ref {

class Var;

class Tape {
 public:
  // 32 bits: four thousand million nodes are 100 GB.
  using NodeIndex = std::uint32_t;
  static constexpr NodeIndex kConstant = std::numeric_limits<NodeIndex>::max();  // no node

  // The operations of this thread go to `tape` for as long as the scope lives.
  class Scope {
   public:
    explicit Scope(Tape& tape) : outer_(std::exchange(current_, &tape)) {}
    ~Scope() { current_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tape* outer_;
  };

  static Tape& current() {
    DDL_CHECK(current_ != nullptr, "no tape: an operation on a Var needs a Tape::Scope");
    return *current_;
  }

  // Something to differentiate by.
  Var variable(double value);

  // A node with its parents and the derivatives by them. A constant parent is skipped on the way back.
  NodeIndex record(NodeIndex a, double dy_da, NodeIndex b = kConstant, double dy_db = 0) {
    const std::size_t node = nodes_.size();
    DDL_CHECK(node < kConstant, "the tape is full");
    DDL_DCHECK((a == kConstant || a < node) && (b == kConstant || b < node), "a Var of another tape");
    nodes_.push_back({dy_da, dy_db, a, b});
    return static_cast<NodeIndex>(node);
  }

  // dL/dy of every node, by one walk back. A constant loss has zero gradients.
  const std::vector<double>& gradients(const Var& loss);

  // dL/dx for the loss last given to gradients().
  double gradient(const Var& x) const;

  Index size() const { return static_cast<Index>(nodes_.size()); }

  // Forgets every node and keeps the memory for the next pass. Variables must be made anew.
  void clear() {
    nodes_.clear();
    adjoints_.clear();
  }

 private:
  struct Node {
    double dy_da, dy_db;
    NodeIndex a, b;
  };
  static_assert(sizeof(Node) == 24);

  std::vector<Node> nodes_;
  std::vector<double> adjoints_;
  static inline thread_local Tape* current_ = nullptr;
};

// A number that remembers how it was made. A plain number becomes a constant: it has no node, and operations
// on constants alone write nothing. Values are those of the same operations in double, bit for bit.
class Var {
 public:
  Var(double value = 0) : value_(value) {}

  // y = f(a), y = f(a, b), with the derivatives at this point.
  static Var make(double y, const Var& a, double dy_da) {
    if (a.node_ == Tape::kConstant) return Var(y);
    return Var(y, Tape::current().record(a.node_, dy_da));
  }
  static Var make(double y, const Var& a, double dy_da, const Var& b, double dy_db) {
    if (a.node_ == Tape::kConstant && b.node_ == Tape::kConstant) return Var(y);
    return Var(y, Tape::current().record(a.node_, dy_da, b.node_, dy_db));
  }

  // The value; comparisons go through it, so that no derivative hides in a branch.
  friend double real(const Var& x) { return x.value_; }

  // y = -a        dy/da = -1
  friend Var operator-(const Var& a) { return make(-a.value_, a, -1); }

  // y = a + b     dy/da = 1      dy/db = 1
  friend Var operator+(const Var& a, const Var& b) { return make(a.value_ + b.value_, a, 1, b, 1); }

  // y = a - b     dy/da = 1      dy/db = -1
  friend Var operator-(const Var& a, const Var& b) { return make(a.value_ - b.value_, a, 1, b, -1); }

  // y = a b       dy/da = b      dy/db = a
  friend Var operator*(const Var& a, const Var& b) {
    return make(a.value_ * b.value_, a, b.value_, b, a.value_);
  }

  // y = a / b     dy/da = 1/b    dy/db = -a/b^2 = -y/b
  friend Var operator/(const Var& a, const Var& b) {
    const double y = a.value_ / b.value_;
    return make(y, a, 1 / b.value_, b, -y / b.value_);
  }

  Var& operator+=(const Var& b) { return *this = *this + b; }
  Var& operator-=(const Var& b) { return *this = *this - b; }
  Var& operator*=(const Var& b) { return *this = *this * b; }
  Var& operator/=(const Var& b) { return *this = *this / b; }

  // y = exp(a)    dy/da = y
  friend Var exp(const Var& a) {
    const double y = std::exp(a.value_);
    return make(y, a, y);
  }

  // y = log(a)    dy/da = 1/a
  friend Var log(const Var& a) { return make(std::log(a.value_), a, 1 / a.value_); }

  // y = sqrt(a)   dy/da = 1/(2y)
  friend Var sqrt(const Var& a) {
    const double y = std::sqrt(a.value_);
    return make(y, a, 0.5 / y);
  }

  // y = tanh(a)   dy/da = 1 - y^2 = 1/cosh(a)^2, which keeps its digits where y rounds to 1
  friend Var tanh(const Var& a) {
    const double cosh = std::cosh(a.value_);
    return make(std::tanh(a.value_), a, 1 / (cosh * cosh));
  }

 private:
  friend class Tape;
  Var(double value, Tape::NodeIndex node) : value_(value), node_(node) {}

  double value_;
  Tape::NodeIndex node_ = Tape::kConstant;
};

inline Var Tape::variable(double value) { return Var(value, record(kConstant, 0)); }

inline const std::vector<double>& Tape::gradients(const Var& loss) {
  adjoints_.assign(nodes_.size(), 0.0);
  if (loss.node_ == kConstant) return adjoints_;
  DDL_CHECK(loss.node_ < nodes_.size(), "the loss is not on this tape");
  adjoints_[loss.node_] = 1;
  for (std::size_t n = loss.node_ + std::size_t{1}; n-- > 0;) {
    const Node& node = nodes_[n];
    if (node.a != kConstant) adjoints_[node.a] += node.dy_da * adjoints_[n];
    if (node.b != kConstant) adjoints_[node.b] += node.dy_db * adjoints_[n];
  }
  return adjoints_;
}

inline double Tape::gradient(const Var& x) const {
  DDL_CHECK(x.node_ < adjoints_.size(), "a constant, or a Var that gradients() has not seen");
  return adjoints_[x.node_];
}

// The gradient of f at x; f maps const std::vector<Var>& to Var. One evaluation of f.
template <class F>
std::vector<double> gradient_by_tape(F&& f, const std::vector<double>& x) {
  Tape tape;
  const Tape::Scope scope(tape);
  std::vector<Var> p;
  for (const double value : x) p.push_back(tape.variable(value));
  tape.gradients(f(std::as_const(p)));
  std::vector<double> slopes;
  for (const Var& variable : p) slopes.push_back(tape.gradient(variable));
  return slopes;
}

}  // namespace ddl::ref
