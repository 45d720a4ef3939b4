// The pass over mixed streams, write and read together, against complex-step derivatives of the same in scalar code.
#include "kernels/hyper_connections.h"

#include <type_traits>

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::hyper_connections_test {
namespace {

// What a mutant gets wrong in the backward pass.
enum class Fault { kNone, kTransposedMix, kNoSquares, kNoReadPath, kDotsTooLarge };

// A mixer that uses everything a mixer may: dots, squares, parameters of its own, and numbers of all three kinds.
// With d(i, r) the dot of stream i with row r, or of all streams where rows are not shared:
//   read_i  = own_0 + d(i, 0) + own_1 square_i
//   write_i = own_2 d(i, 1)
//   mix_ij  = own_{3 + i D + j} + d(i, 0) d(j, 2)
constexpr Index R = 3;
template <class Num>
void mix_numbers(Num* read, Num* write, Num* mix, const Num* extra, const Num* dots, const Num* square,
                 Index D, bool shared) {
  const auto d = [&](Index i, Index r) { return dots[(shared ? i * R : 0) + r]; };
  for (Index i = 0; i < D; ++i) {
    read[i] = extra[0] + d(i, 0) + extra[1] * square[i];
    write[i] = extra[2] * d(i, 1);
    for (Index j = 0; j < D; ++j) mix[i * D + j] = extra[3 + i * D + j] + d(i, 0) * d(j, 2);
  }
}

class TestMixer final : public StreamMixer {
 public:
  TestMixer(Index D, bool shared, Fault fault) : D_(D), shared_(shared), fault_(fault) {}
  Index rows() const override { return R; }
  bool shares_rows() const override { return shared_; }
  Index extra_count() const override { return 3 + D_ * D_; }
  void forward(const Forward& t) const override {
    mix_numbers(t.read_D, t.write_D, t.mix_DD, t.extra, t.dots, t.square_D, D_, shared_);
  }
  void backward(const Backward& t) const override {
    const auto at = [&](Index i, Index r) { return (shared_ ? i * R : 0) + r; };
    std::fill_n(t.ddots, dots(D_), 0.0f);
    for (Index i = 0; i < D_; ++i) {
      const float dread = fault_ == Fault::kNoReadPath ? 0 : t.dread_D[i];
      t.dextra[0] += dread;
      t.dextra[1] += dread * t.square_D[i];
      t.dextra[2] += t.dwrite_D[i] * t.dots[at(i, 1)];
      t.ddots[at(i, 0)] += dread;
      t.ddots[at(i, 1)] += t.extra[2] * t.dwrite_D[i];
      t.dsquare_D[i] = fault_ == Fault::kNoSquares ? 0 : t.extra[1] * dread;
      for (Index j = 0; j < D_; ++j) {
        const float dmix = fault_ == Fault::kTransposedMix ? t.dmix_DD[j * D_ + i] : t.dmix_DD[i * D_ + j];
        t.dextra[3 + i * D_ + j] += dmix;
        t.ddots[at(i, 0)] += dmix * t.dots[at(j, 2)];
        t.ddots[at(j, 2)] += dmix * t.dots[at(i, 0)];
      }
    }
    if (fault_ == Fault::kDotsTooLarge) t.ddots[0] *= 1.001f;
  }

 private:
  const Index D_;
  const bool shared_;
  const Fault fault_;
};

struct Sizes {
  Index N = 5, D = 4, C = 24;
  bool shared = true;
  Index weights() const { return R * C * (shared ? 1 : D); }
  Index dots() const { return shared ? D * R : R; }
};

// The inputs of one pass: the state and the numbers of the write; rows, extra parameters and norm of the read.
template <class Num>
struct Inputs {
  std::vector<Num> X, h, numbers, w, extra, norm;
};
template <class Num>
struct Outputs {
  std::vector<Num> X, context, numbers;
};

template <class Num>
Outputs<Num> scalar_pass(const Inputs<Num>& in, const Sizes& z) {
  const Index D = z.D, C = z.C;
  const StreamNumbers at{D};
  Outputs<Num> out{std::vector<Num>(in.X.size()), std::vector<Num>(z.N * C),
                   std::vector<Num>(in.numbers.size())};
  std::vector<Num> x_in(z.N * C, Num(0));
  for (Index n = 0; n < z.N; ++n) {
    const Num* numbers = in.numbers.data() + n * at.count();
    Num* next = out.numbers.data() + n * at.count();
    const Num* X = in.X.data() + n * D * C;
    Num* Y = out.X.data() + n * D * C;
    for (Index j = 0; j < D; ++j)
      for (Index c = 0; c < C; ++c) {
        Y[j * C + c] = numbers[at.write() + j] * in.h[n * C + c];
        for (Index i = 0; i < D; ++i) Y[j * C + c] += numbers[at.mix() + i * D + j] * X[i * C + c];
      }
    std::vector<Num> dots(z.dots(), Num(0)), square(D, Num(0));
    for (Index i = 0; i < D; ++i)
      for (Index c = 0; c < C; ++c) {
        square[i] += Y[i * C + c] * Y[i * C + c];
        for (Index r = 0; r < R; ++r)
          dots[(z.shared ? i * R : 0) + r] += Y[i * C + c] * in.w[z.shared ? r * C + c : (r * D + i) * C + c];
      }
    mix_numbers(next + at.read(), next + at.write(), next + at.mix(), in.extra.data(), dots.data(),
                square.data(), D, z.shared);
    for (Index i = 0; i < D; ++i) {
      next[at.diagonal() + i] = next[at.mix() + i * (D + 1)];
      for (Index c = 0; c < C; ++c) x_in[n * C + c] += next[at.read() + i] * Y[i * C + c];
    }
  }
  out.context = ref::rmsnorm(x_in, in.norm, z.N, C);
  return out;
}

template <class T>
Inputs<double> inputs(const Sizes& z) {
  const double per_row = 1 / std::sqrt(static_cast<double>(z.C * (z.shared ? 1 : z.D)));
  Inputs<double> in{normals(z.N * z.D * z.C, 1),
                    normals<T>(z.N * z.C, 2),
                    normals(z.N * StreamNumbers{z.D}.count(), 3, 0.5),
                    normals(z.weights(), 4, per_row),
                    normals(3 + z.D * z.D, 5),
                    normals(z.C, 6)};
  in.extra[1] = to_float(static_cast<float>(0.3 / static_cast<double>(z.C)));
  return in;
}

// The gradients that reach the pass from later: of the state, of the context, of the numbers that steer the next
// write (those of the read are the pass's own business).
struct Later {
  std::vector<double> dX, dcontext, dnumbers;
  explicit Later(const Sizes& z)
      : dX(normals(z.N * z.D * z.C, 11)),
        dcontext(normals(z.N * z.C, 12)),
        dnumbers(normals(z.N * StreamNumbers{z.D}.count(), 13)) {
    const StreamNumbers at{z.D};
    for (Index n = 0; n < z.N; ++n) {
      std::fill_n(dnumbers.begin() + n * at.count() + at.read(), z.D, 0.0);
      std::fill_n(dnumbers.begin() + n * at.count() + at.diagonal(), z.D, 0.0);
    }
  }
};

// All that a forward and a backward pass give.
struct Result {
  std::vector<double> X, context, numbers;
  std::vector<double> dX, dh, dnumbers, dw, dextra, dnorm;
  bool operator==(const Result&) const = default;
};

template <class T>
Result fast_pass(const Inputs<double>& in, const Later& later, const Sizes& z, int threads, Fault fault,
                 bool in_place = false) {
  const Exec ex{.threads = threads};
  const TestMixer mixer(z.D, z.shared, fault);
  const Buffer<float> before(in.X), numbers(in.numbers), w(in.w), extra(in.extra), norm(in.norm);
  const Buffer<T> h(in.h);
  Buffer<float> state(in_place ? in.X : std::vector<double>(in.X.size())), dots(z.N * z.dots()),
      square(z.N * z.D), next(std::ssize(in.numbers)), rstd(z.N);
  Buffer<T> context(z.N * z.C);
  const StreamsLook look{.mixer = &mixer,
                         .w = w.data(),
                         .extra = extra.data(),
                         .dots_NQ = dots.data(),
                         .square_ND = square.data(),
                         .numbers_NK = next.data()};
  const StreamsWriteFwd<T> write{in_place ? state.data() : before.data(), h.data(), numbers.data()};
  const StreamsReadFwd<T> read{
      .look = look, .norm_C = norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()};
  streams_fwd<T>(state.data(), &write, &read, z.N, z.D, z.C, ex);

  Buffer<float> dX(later.dX), dnumbers(later.dnumbers), dw(z.weights()), dextra(mixer.extra_count()),
      dnorm(z.C), scratch(streams_bwd_scratch(mixer, z.D, z.C));
  const Buffer<float> dcontext(later.dcontext);
  Buffer<T> dh(z.N * z.C);
  const StreamsReadBwd<T> read_back{.look = look,
                                    .state_NDC = state.data(),
                                    .norm_C = norm.data(),
                                    .rstd_N = rstd.data(),
                                    .dcontext_NC = dcontext.data(),
                                    .dnumbers_NK = dnumbers.data(),
                                    .dw = dw.data(),
                                    .dextra = dextra.data(),
                                    .dnorm_C = dnorm.data()};
  const StreamsWriteBwd<T> write_back{.from_NDC = before.data(),
                                      .h_NC = h.data(),
                                      .numbers_NK = numbers.data(),
                                      .dh_NC = dh.data(),
                                      .dnumbers_NK = dnumbers.data()};
  streams_bwd<T>(dX.data(), &read_back, &write_back, scratch.data(), z.N, z.D, z.C, ex);
  for (const Buffer<float>* b :
       {&state, &dots, &square, &next, &rstd, &dX, &dnumbers, &dw, &dextra, &dnorm, &scratch})
    EXPECT_TRUE(b->intact());
  EXPECT_TRUE(context.intact() && dh.intact());
  return {state.values(),    context.values(), next.values(),   dX.values(),   dh.values(),
          dnumbers.values(), dw.values(),      dextra.values(), dnorm.values()};
}

Result oracle_pass(const Inputs<double>& in, const Later& later, const Sizes& z) {
  const Outputs<double> out = scalar_pass(in, z);
  Result result;
  result.X = out.X, result.context = out.context, result.numbers = out.numbers;
  Inputs<Complex> zin{complexify(in.X), complexify(in.h),     complexify(in.numbers),
                      complexify(in.w), complexify(in.extra), complexify(in.norm)};
  // The gradient with respect to one of the inputs.
  const auto gradient = [&](const std::vector<double>& x, std::vector<Complex> Inputs<Complex>::*member) {
    const std::vector<Complex> kept = zin.*member;
    const auto g = oracle_gradient(x, [&](const std::vector<Complex>& stepped) {
      zin.*member = stepped;
      const Outputs<Complex> o = scalar_pass(zin, z);
      return weighted_sum(o.X, later.dX) + weighted_sum(o.context, later.dcontext) +
             weighted_sum(o.numbers, later.dnumbers);
    });
    zin.*member = kept;
    return g;
  };
  result.dX = gradient(in.X, &Inputs<Complex>::X);
  result.dh = gradient(in.h, &Inputs<Complex>::h);
  result.dnumbers = gradient(in.numbers, &Inputs<Complex>::numbers);
  result.dw = gradient(in.w, &Inputs<Complex>::w);
  result.dextra = gradient(in.extra, &Inputs<Complex>::extra);
  result.dnorm = gradient(in.norm, &Inputs<Complex>::norm);
  return result;
}

template <class T>
double worst_ratio(const Result& actual, const Result& expected, const Sizes& z) {
  const double storage = std::is_same_v<T, bf16> ? kBf16Epsilon : 0;
  const Index r = 8 * z.C * z.D + 8 * z.D * z.D + z.N;
  return std::max(
      {rounding_ratio(actual.X, expected.X, r), rounding_ratio(actual.context, expected.context, r, storage),
       rounding_ratio(actual.numbers, expected.numbers, r), rounding_ratio(actual.dX, expected.dX, r),
       rounding_ratio(actual.dh, expected.dh, r, storage),
       rounding_ratio(actual.dnumbers, expected.dnumbers, r), rounding_ratio(actual.dw, expected.dw, r),
       rounding_ratio(actual.dextra, expected.dextra, r), rounding_ratio(actual.dnorm, expected.dnorm, r)});
}

template <class T>
void check_streams(const Sizes& z) {
  const Inputs<double> in = inputs<T>(z);
  const Later later(z);
  const Result actual = fast_pass<T>(in, later, z, 2, Fault::kNone);
  EXPECT_LT(worst_ratio<T>(actual, oracle_pass(in, later, z), z), 1)
      << "N " << z.N << " D " << z.D << " C " << z.C << (z.shared ? " shared" : "");
}

TEST(HyperConnections, EveryNumberOfStreams) {
  for (const bool shared : {true, false})
    for (Index D = 2; D <= kMaxStreams; ++D) check_streams<float>({.N = 3, .D = D, .C = 9, .shared = shared});
}

TEST(HyperConnections, EveryWidth) {
  for (const bool shared : {true, false})
    for (Index C : {1, 3, 7, 8, 9, 16, 31}) check_streams<float>({.N = 2, .D = 4, .C = C, .shared = shared});
}

// One tile of tokens, part of one, and more than one in a part of the sums.
TEST(HyperConnections, EveryNumberOfTokens) {
  for (Index N : {1, 2, 5, 33}) check_streams<float>({.N = N, .D = 2, .C = 3});
}

TEST(HyperConnections, Bf16) {
  for (const bool shared : {true, false}) check_streams<bf16>({.N = 4, .D = 4, .C = 17, .shared = shared});
}

TEST(HyperConnections, MutantsAreRejected) {
  for (const bool shared : {true, false}) {
    const Sizes z{.N = 5, .D = 4, .C = 24, .shared = shared};
    const Inputs<double> in = inputs<float>(z);
    const Later later(z);
    const Result truth = oracle_pass(in, later, z);
    EXPECT_LT(worst_ratio<float>(fast_pass<float>(in, later, z, 1, Fault::kNone), truth, z), 1);
    for (const Fault fault :
         {Fault::kTransposedMix, Fault::kNoSquares, Fault::kNoReadPath, Fault::kDotsTooLarge})
      EXPECT_GT(worst_ratio<float>(fast_pass<float>(in, later, z, 1, fault), truth, z), 1)
          << static_cast<int>(fault);
    // A write that mixes by the transposed matrix is another function.
    Inputs<double> transposed = in;
    const StreamNumbers at{z.D};
    for (Index n = 0; n < z.N; ++n)
      for (Index i = 0; i < z.D; ++i)
        for (Index j = 0; j < i; ++j)
          std::swap(transposed.numbers[n * at.count() + at.mix() + i * z.D + j],
                    transposed.numbers[n * at.count() + at.mix() + j * z.D + i]);
    EXPECT_GT(rounding_ratio(scalar_pass(transposed, z).X, truth.X, 8 * z.C * z.D), 1);
  }
}

TEST(HyperConnections, BitsDoNotDependOnThreadsOrOnWhereTheStateIsWritten) {
  for (const bool shared : {true, false}) {
    const Sizes z{.N = 150, .D = 4, .C = 40, .shared = shared};
    const Inputs<double> in = inputs<float>(z);
    const Later later(z);
    const Result one = fast_pass<float>(in, later, z, 1, Fault::kNone);
    EXPECT_EQ(fast_pass<float>(in, later, z, 2, Fault::kNone), one);
    EXPECT_EQ(fast_pass<float>(in, later, z, 3, Fault::kNone), one);
    EXPECT_EQ(fast_pass<float>(in, later, z, 2, Fault::kNone, true), one);
  }
}

// A token's bits do not depend on its neighbours in the tile: what decoding relies on.
TEST(HyperConnections, ATokenAloneHasTheSameBits) {
  const Sizes many{.N = 7, .D = 4, .C = 40, .shared = false}, one{.N = 1, .D = 4, .C = 40, .shared = false};
  const Inputs<double> in = inputs<float>(many);
  const Result all = fast_pass<float>(in, Later(many), many, 1, Fault::kNone);
  const auto row = [&](const std::vector<double>& x, Index n) {
    const Index length = std::ssize(x) / many.N;
    return std::vector<double>(x.begin() + n * length, x.begin() + (n + 1) * length);
  };
  for (Index n = 0; n < many.N; ++n) {
    Inputs<double> alone = in;
    alone.X = row(in.X, n), alone.h = row(in.h, n), alone.numbers = row(in.numbers, n);
    const Result result = fast_pass<float>(alone, Later(one), one, 1, Fault::kNone);
    EXPECT_EQ(result.X, row(all.X, n));
    EXPECT_EQ(result.context, row(all.context, n));
    EXPECT_EQ(result.numbers, row(all.numbers, n));
  }
}

}  // namespace
}  // namespace ddl::hyper_connections_test
