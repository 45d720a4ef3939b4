#include "model/native/engine.h"

#include "kernels/isa.h"

namespace ddl {
namespace {

class NativeEngine final : public Engine {
 public:
  std::string name() const override { return "native"; }
  std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                                 const OptimizerConfig& optimizer, std::uint64_t seed,
                                                 const Exec& ex) const override {
    return make_native_trainable(config, shape, optimizer, seed, ex);
  }
  std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape,
                                        const Exec& ex) const override {
    return make_native_decoder(weights, shape, ex);
  }
  std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape,
                                               const Exec& ex) const override {
    return make_native_tree_scorer(weights, shape, ex);
  }
  bool has_fast_bf16() const override { return ddl::has_fast_bf16(); }
  bool takes_packed_weights() const override { return true; }
  bool can_be_watched() const override { return true; }
};

}  // namespace

const Engine& native_engine() {
  static const NativeEngine engine;
  return engine;
}

}  // namespace ddl
