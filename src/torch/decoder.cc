#include "torch/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "torch/host_tensor.h"
#include "torch/inference_network.h"
#include "torch/translated.h"

namespace ddl {
namespace {

constexpr const char* kDecodingAdvice = "fewer sequences at a time need less";

class TorchDecoder final : public Decoder, private KeysAndValues {
 public:
  TorchDecoder(const Weights& weights, const DecoderShape& shape, const TorchPlace& place)
      : config_(weights.config()),
        context_(shape.context > 0 ? shape.context : config_.context),
        chunk_(std::max(shape.chunk, shape.slots)),
        network_(weights, place, shape.slots),
        length_(static_cast<std::size_t>(shape.slots), 0) {
    const Index H = config_.heads, K = config_.head_size();
    for (at::Tensor* cache : {&keys_, &values_}) {
      *cache = network_.empty_cache({config_.layers, shape.slots, context_, H, K});
      arena_.take<std::byte>("keys and values", static_cast<Index>(cache->nbytes()));
    }
  }

  const ModelConfig& config() const override { return config_; }
  Index slots() const override { return std::ssize(length_); }
  Index context() const override { return context_; }
  Index length(Index slot) const override { return length_[slot]; }
  const Arena& arena() const override { return arena_; }

  void append(std::span<const Append> appends, const Exec& ex) override {
    last_logits_.assign(appends.size(), {});
    run(
        appends, false,
        [&](Index i, Index, std::span<const float> logits) {
          last_logits_[i].assign(logits.begin(), logits.end());
        },
        ex);
  }
  std::span<const float> logits(Index append) const override { return last_logits_[append]; }
  void append_visiting(std::span<const Append> appends, Visit visit, const Exec& ex) override {
    run(appends, true, visit, ex);
  }

  // A shorter sequence attends beside a longer one behind a mask, so what a sequence leaves must be finite.
  void reset(Index slot) override {
    const at::NoGradGuard no_graph;
    translated(kDecodingAdvice, [&] {
      for (const at::Tensor& cache : {keys_, values_})
        cache.narrow(2, 0, length_[slot]).select(1, slot).zero_();
    });
    length_[slot] = 0;
  }
  void copy(Index to_slot, Index from_slot) override {
    if (to_slot == from_slot) return;
    const at::NoGradGuard no_graph;
    translated(kDecodingAdvice, [&] {
      for (const at::Tensor& cache : {keys_, values_}) {
        const at::Tensor past = cache.narrow(2, 0, length_[from_slot]);
        past.select(1, to_slot).copy_(past.select(1, from_slot));
      }
      network_.copy_slot(to_slot, from_slot);
    });
    length_[to_slot] = length_[from_slot];
  }

 private:
  // A row of this pass whose logits are wanted, and whose they are.
  struct Wanted {
    Index row, append, token;
  };
  // Neighbouring spans of as many tokens each, which attend together.
  struct Group {
    Index first, spans, count;  // its first row, G, n
    Index keys;                 // L: of the longest sequence
    Index first_slot;           // of slots that are neighbours, in order; -1: they are not
    at::Tensor slot_G;
    at::Tensor mask_G1nL;  // undefined: everything is seen
  };

  // Cuts the appends into passes of at most chunk_ tokens. Those of equal length are neighbours.
  void run(std::span<const Append> appends, bool every_token, Visit visit, const Exec& ex) {
    std::vector<bool> taken(length_.size(), false);
    for (const Append& a : appends) {
      DDL_CHECK(a.slot >= 0 && a.slot < slots() && !taken[a.slot], "slot {} of {}", a.slot, slots());
      taken[a.slot] = true;
      check_append(a, length_[a.slot], context_, config_.vocab);
    }
    std::vector<Index> order(appends.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](Index i, Index j) {
      const Append &a = appends[i], &b = appends[j];
      return a.tokens.size() != b.tokens.size() ? a.tokens.size() > b.tokens.size() : a.slot < b.slot;
    });
    forget_pass();
    for (const Index i : order) {
      const Append& a = appends[i];
      const Index total = std::ssize(a.tokens);
      for (Index done = 0; done < total;) {
        const Index used = std::ssize(token_N_), count = std::min(total - done, chunk_ - used);
        spans_.push_back({.slot = a.slot, .position = length_[a.slot], .count = count});
        for (Index j = done; j < done + count; ++j) {
          if (every_token || j + 1 == total) wanted_.push_back({std::ssize(token_N_), i, j});
          token_N_.push_back(a.tokens[j]);
        }
        length_[a.slot] += count, done += count;
        if (used + count == chunk_) pass(visit, ex);
      }
    }
    if (!token_N_.empty()) pass(visit, ex);
  }

  void forget_pass() { token_N_.clear(), spans_.clear(), wanted_.clear(), groups_.clear(); }

  void pass(Visit visit, const Exec& ex) {
    const at::NoGradGuard no_graph;
    translated(kDecodingAdvice, [&] {
      find_groups();
      head(network_.forward(token_N_, spans_, *this, ex), visit);
    });
    forget_pass();
  }

  void find_groups() {
    std::vector<std::int64_t> row_N;  // of the caches
    for (const Span& span : spans_)
      for (Index i = 0; i < span.count; ++i) row_N.push_back(span.slot * context_ + span.position + i);
    cache_row_N_ = to_device(row_N, network_.device());
    Index row = 0;
    for (auto begin = spans_.begin(); begin != spans_.end();) {
      const Index count = begin->count;
      const auto end =
          std::find_if(begin, spans_.end(), [&](const Span& span) { return span.count != count; });
      Group g{.first = row,
              .spans = end - begin,
              .count = count,
              .keys = 0,
              .first_slot = begin->slot,
              .slot_G = {},
              .mask_G1nL = {}};
      std::vector<std::int64_t> slots, position_n;
      Index shortest = context_;
      for (auto span = begin; span != end; ++span) {
        if (span->slot != begin->slot + (span - begin)) g.first_slot = -1;
        slots.push_back(span->slot);
        for (Index i = 0; i < count; ++i) position_n.push_back(span->position + i);
        g.keys = std::max(g.keys, span->position + count), shortest = std::min(shortest, span->position + 1);
      }
      g.slot_G = to_device(slots, network_.device());
      if (shortest < g.keys)  // a token sees what is not after it
        g.mask_G1nL = at::arange(g.keys, g.slot_G.options()) <=
                      to_device(position_n, network_.device()).view({g.spans, 1, count, 1});
      groups_.push_back(g);
      row += g.spans * count, begin = end;
    }
  }

  // Keys and values of this pass enter the caches; then each group attends to its sequences.
  at::Tensor attend(Index layer, const at::Tensor& q_NHK, const at::Tensor& k_NHK,
                    const at::Tensor& v_NHK) override {
    const std::int64_t H = q_NHK.size(1), K = q_NHK.size(2);
    const at::Tensor keys = keys_.select(0, layer), values = values_.select(0, layer);
    keys.flatten(0, 1).index_copy_(0, cache_row_N_, k_NHK);
    values.flatten(0, 1).index_copy_(0, cache_row_N_, v_NHK);
    std::vector<at::Tensor> attended;
    for (const Group& g : groups_) {
      const at::Tensor q = q_NHK.narrow(0, g.first, g.spans * g.count).view({g.spans, g.count, H, K});
      const auto past_GHLK = [&](const at::Tensor& cache) {
        const at::Tensor past = cache.narrow(1, 0, g.keys);
        return (g.first_slot >= 0 ? past.narrow(0, g.first_slot, g.spans) : past.index_select(0, g.slot_G))
            .transpose(1, 2);
      };
      const at::Tensor o =
          at::scaled_dot_product_attention(q.transpose(1, 2), past_GHLK(keys), past_GHLK(values),
                                           g.mask_G1nL.defined() ? std::optional(g.mask_G1nL) : std::nullopt);
      attended.push_back(o.transpose(1, 2).reshape({g.spans * g.count, H, K}));
    }
    return at::cat(attended);
  }

  void head(const at::Tensor& context_NC, Visit visit) {
    std::vector<std::int64_t> row_R;
    for (const Wanted& wanted : wanted_) row_R.push_back(wanted.row);
    network_.logits(context_NC, row_R, [&](Index first, const at::Tensor& z_RV) {
      const at::Tensor here = (z_RV * config_.logit_scale()).cpu();
      const auto* logits = static_cast<const float*>(here.data_ptr());
      for (Index i = first; i < first + here.size(0); ++i, logits += config_.vocab)
        visit(wanted_[i].append, wanted_[i].token, {logits, static_cast<std::size_t>(config_.vocab)});
    });
  }

  const ModelConfig config_;
  const Index context_, chunk_;
  InferenceNetwork network_;
  std::vector<Index> length_;  // by slot
  at::Tensor keys_, values_;   // [layers][slots][context][H][K]
  Arena arena_ = Arena::measuring();
  std::vector<std::vector<float>> last_logits_;

  // Of this pass.
  std::vector<std::int64_t> token_N_;
  std::vector<Span> spans_;
  std::vector<Wanted> wanted_;
  std::vector<Group> groups_;
  at::Tensor cache_row_N_;
};

}  // namespace

std::unique_ptr<Decoder> make_torch_decoder(const Weights& weights, const DecoderShape& shape,
                                            const TorchPlace& place) {
  return translated(kDecodingAdvice, [&] { return std::make_unique<TorchDecoder>(weights, shape, place); });
}

}  // namespace ddl
