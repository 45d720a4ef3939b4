#include "model/native/gemm_floor.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/gemm.h"
#include "model/native/head.h"

namespace ddl {
namespace {

struct Product {
  Index M, N, K;
  Op a, b;
  Index times;
};

// The three products of a linear layer with O outputs and I inputs over N tokens.
void add_linear(std::vector<Product>& products, Index N, Index O, Index I, Index times) {
  products.push_back({N, O, I, Op::kNone, Op::kTranspose, times});
  products.push_back({N, I, O, Op::kNone, Op::kNone, times});
  products.push_back({O, I, N, Op::kTranspose, Op::kNone, times});
}

template <class T>
class Floor {
 public:
  Floor(const ModelConfig& config, BatchShape shape) : heads_(shape.B * config.heads * config.layers) {
    const Index N = shape.N(), C = config.width, F = config.mlp_width(), L = config.layers;
    add_linear(linear_, N, config.qkv_width(), C, L);
    add_linear(linear_, N, C, C, L);
    add_linear(linear_, N, config.gate_up_width(), C, L);
    add_linear(linear_, N, C, F, L);
    const Index rows = head_chunk_rows(N, config.vocab);
    add_linear(linear_, rows, config.vocab, C, N / rows);
    if (N % rows > 0) add_linear(linear_, N % rows, config.vocab, C, 1);
    const Index half = std::max<Index>(1, shape.T / 2), K = config.head_size();
    attention_ = {{shape.T, half, K, Op::kNone, Op::kTranspose, 3},   // scores, again in backward, and dP
                  {shape.T, K, half, Op::kNone, Op::kNone, 2},        // output, dq
                  {half, K, shape.T, Op::kTranspose, Op::kNone, 2}};  // dk, dv
    Index inputs = 1, outputs = 1;
    for (const auto* list : {&linear_, &attention_})
      for (const Product& p : *list) {
        inputs = std::max({inputs, p.M * p.K, p.K * p.N});
        outputs = std::max(outputs, p.M * p.N);
      }
    a_.assign(inputs, from_float<T>(0.5f));
    b_.assign(inputs, from_float<T>(0.25f));
    c_.assign(outputs, 0.0f);
    attention_floats_ = shape.T * std::max(half, K);
  }

  double seconds(const Exec& ex) {
    attention_out_.resize(static_cast<std::size_t>(ex.threads * attention_floats_));
    const auto start = std::chrono::steady_clock::now();
    for (const Product& p : linear_)
      for (Index i = 0; i < p.times; ++i) run(p, c_.data(), ex);
    // Heads are independent: each thread takes its share, with an output of its own that stays in its cache.
    parallel_for(ex.threads, ex, [&](Index thread) {
      for (Index head = thread; head < heads_; head += ex.threads)
        for (const Product& p : attention_)
          for (Index i = 0; i < p.times; ++i)
            run(p, attention_out_.data() + thread * attention_floats_, Exec{});
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void run(const Product& p, float* c, const Exec& ex) const {
    gemm<T, float>(c, p.N, Write::kOverwrite, {a_.data(), p.a == Op::kNone ? p.K : p.M, p.a},
                   {b_.data(), p.b == Op::kNone ? p.N : p.K, p.b}, p.M, p.N, p.K, ex);
  }

  Index heads_;
  std::vector<Product> linear_, attention_;
  std::vector<T> a_, b_;
  std::vector<float> c_, attention_out_;
  Index attention_floats_ = 0;
};

template <class T>
double best_of(const ModelConfig& config, BatchShape shape, int rounds, const Exec& ex) {
  Floor<T> floor(config, shape);
  double best = floor.seconds(ex);
  for (int i = 1; i < rounds; ++i) best = std::min(best, floor.seconds(ex));
  return best;
}

}  // namespace

double measure_step_floor(const ModelConfig& config, BatchShape shape, int rounds, const Exec& ex) {
  return config.uses_bf16() ? best_of<bf16>(config, shape, rounds, ex)
                            : best_of<float>(config, shape, rounds, ex);
}

}  // namespace ddl
