// The mixer of mhc on streams that differ, in front of a loss that sees every stream. In a whole model the first
// sublayer's streams are equal and the readout sums the last one's, so some gradients vanish there and cannot be
// compared (vanishes() in oracle_model.h). Here none does, and all are held to the oracle.
#include "model/residual/permutation_mixer.h"

#include <gtest/gtest.h>

#include "kernels/named_gradients.h"
#include "model/oracle_model.h"

namespace ddl::permutation_mixer_test {
namespace {

const std::string kMixer = "transformer.h.0.mhc_attn.";  // the first sublayer's
constexpr Index N = 5, C = 8, D = kPermutedStreams;

enum class Fault { kNone, kOtherPermutation, kNoScale };

// A mixer whose backward is wrong.
class FaultyMixer final : public StreamMixer {
 public:
  explicit FaultyMixer(Fault fault) : fault_(fault) {}
  Index rows() const override { return inner_.rows(); }
  bool shares_rows() const override { return inner_.shares_rows(); }
  Index extra_count() const override { return inner_.extra_count(); }
  void forward(const Forward& token) const override { inner_.forward(token); }
  void backward(const Backward& token) const override {
    Backward wrong = token;
    float transposed[D * D];
    for (Index i = 0; i < D * D; ++i) transposed[i] = token.dmix_DD[i % D * D + i / D];
    if (fault_ == Fault::kOtherPermutation) wrong.dmix_DD = transposed;  // the inverse of each permutation
    const float before = token.dextra[PermutationMixer::kScales];
    inner_.backward(wrong);
    if (fault_ == Fault::kNoScale) token.dextra[PermutationMixer::kScales] = before;
  }

 private:
  const PermutationMixer inner_;
  const Fault fault_;
};

struct Streams {
  const ModelConfig config = model_config({.residual = "mhc"});
  const Weights weights = scrambled_weights(config);
  const std::vector<double> h = normals(N * C, 2), norm = normals(C, 3), dcontext = normals(N * C, 4),
                            dnext = normals(N * D * C, 5);
  std::vector<double> state = normals(N * D * C, 1);

  std::vector<Param> params() const {
    std::vector<Param> own;
    for (const Param& p : weights.table().list())
      if (p.name.starts_with(kMixer)) own.push_back(p);
    return own;
  }

  // By complex step: of the parameters, the state and h.
  NamedTensors<double> oracle() const {
    NamedTensors<double> inputs{{"state", state}, {"h", h}};
    for (const Param& p : params()) inputs[p.name] = tensor(weights.values(), p);
    const auto rule = make_oracle<ref::Complex>(config);
    const ref::Place first{0, "transformer.h.0.", "attn"};
    return named_gradients(inputs, [&](const NamedTensors<Complex>& at) {
      ref::SublayerTrace<Complex> sublayer;
      sublayer.h_NC = at.at("h");
      const auto context = ref::rmsnorm(rule->read(at.at("state"), first, at, 1, N), complexify(norm), N, C);
      return weighted_sum(context, dcontext) +
             weighted_sum(rule->write(at.at("state"), sublayer, first, at, N), dnext);
    });
  }

  NamedTensors<double> fast(const StreamMixer& mixer) const {
    const Exec ex{.threads = 2};
    const Index rows = weights.table().find(kMixer + "read.weight").offset,
                extra = weights.table().find(kMixer + "read.bias").offset;
    std::vector<float> grads(weights.values().size());
    const Buffer<float> x(state), hb(h), norm_C(norm), dcontext_NC(dcontext);
    Buffer<float> read_state(state), next(N * D * C), context(N * C), rstd(N), dots(N * mixer.dots(D)),
        square(N * D), numbers(N * StreamNumbers{D}.count()), dstate(dnext), dh(N * C),
        dnumbers(N * StreamNumbers{D}.count()), dnorm(C), scratch(streams_bwd_scratch(mixer, D, C));
    const StreamsLook look{.mixer = &mixer,
                           .w = weights.values().data() + rows,
                           .extra = weights.values().data() + extra,
                           .dots_NQ = dots.data(),
                           .square_ND = square.data(),
                           .numbers_NK = numbers.data()};
    const StreamsReadFwd<float> read{
        .look = look, .norm_C = norm_C.data(), .context_NC = context.data(), .rstd_N = rstd.data()};
    streams_fwd<float>(read_state.data(), nullptr, &read, N, D, C, ex);
    const StreamsWriteFwd<float> write{x.data(), hb.data(), numbers.data()};
    streams_fwd<float>(next.data(), &write, nullptr, N, D, C, ex);

    const StreamsWriteBwd<float> write_back{.from_NDC = x.data(),
                                            .h_NC = hb.data(),
                                            .numbers_NK = numbers.data(),
                                            .dh_NC = dh.data(),
                                            .dnumbers_NK = dnumbers.data()};
    streams_bwd<float>(dstate.data(), nullptr, &write_back, scratch.data(), N, D, C, ex);
    const StreamsReadBwd<float> read_back{.look = look,
                                          .state_NDC = x.data(),
                                          .norm_C = norm_C.data(),
                                          .rstd_N = rstd.data(),
                                          .dcontext_NC = dcontext_NC.data(),
                                          .dnumbers_NK = dnumbers.data(),
                                          .dw = grads.data() + rows,
                                          .dextra = grads.data() + extra,
                                          .dnorm_C = dnorm.data()};
    streams_bwd<float>(dstate.data(), &read_back, nullptr, scratch.data(), N, D, C, ex);
    NamedTensors<double> all{{"state", dstate.values()}, {"h", dh.values()}};
    for (const Param& p : params()) all[p.name] = tensor(grads, p);
    return all;
  }

  // Sums over C and D features and over tokens; the softmax over permutations.
  static constexpr Index kRoundings = 8 * C * D + kPermutations + N;
};

TEST(PermutationMixer, EveryGradientWhereStreamsDiffer) {
  const Streams streams;
  const auto truth = streams.oracle();
  const auto error = [&](Fault fault) {
    return worst_ratio<float>(streams.fast(FaultyMixer(fault)), truth, Streams::kRoundings, {});
  };
  EXPECT_EQ(truth.size(), 9u) << "state, h and seven parameters";
  for (const auto& [name, gradient] : truth) EXPECT_GT(rms(gradient), 1e-3) << name;
  EXPECT_LT(error(Fault::kNone), 1);
  EXPECT_GT(error(Fault::kOtherPermutation), 1);
  EXPECT_GT(error(Fault::kNoScale), 1);
}

// A doubly stochastic mix leaves equal streams as they are: the very gradients that vanish in the first sublayer.
TEST(PermutationMixer, EqualStreamsGiveTheMixNoGradient) {
  Streams streams;
  const Streams different;
  for (Index i = 0; i < N * D * C; ++i) streams.state[i] = streams.state[i / (D * C) * D * C + i % C];
  const auto truth = streams.oracle(), ours = streams.fast(PermutationMixer()), usual = different.oracle();
  for (const char* name : {"mix.weight", "mix.bias"}) {
    const double size = rms(usual.at(kMixer + name));  // of the terms that cancel
    EXPECT_LT(rms(truth.at(kMixer + name)), 1e-12 * size) << name;
    EXPECT_LT(rms(ours.at(kMixer + name)), 16 * 0x1p-24 * std::sqrt(Streams::kRoundings) * size) << name;
  }
  EXPECT_GT(rms(truth.at(kMixer + "write.weight")), 1e-3 * rms(usual.at(kMixer + "write.weight")));
}

}  // namespace
}  // namespace ddl::permutation_mixer_test
