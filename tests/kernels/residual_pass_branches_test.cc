// The branches of a read against the oracle, every kind.
#include <string>
#include <vector>

#include "kernels/residual_pass.h"
#include "kernels/residual_pass_testing.h"
#include "ref/ops.h"

namespace ddl::residual_pass_test {
namespace {

// Branches of every kind, in a pass that only reads.

struct Kind {
  Index rows = 3;
  BranchInput input = BranchInput::kContext;
  Activation activation = Activation::kIdentity;
  double scale = 1.5;
  bool bias = true;
};

// All eighteen. The numbers of rows go over one, two and three groups of the kernel's loop.
std::vector<Kind> every_kind() {
  std::vector<Kind> kinds;
  const Index rows[] = {1, 2, 3, 4, 5, 9};
  const double scales[] = {0.5, 1, 2, 4};
  for (BranchInput input : {BranchInput::kContext, BranchInput::kUnnormed, BranchInput::kNone})
    for (Activation activation : {Activation::kIdentity, Activation::kSigmoid, Activation::kTanh})
      for (bool bias : {true, false}) {
        const std::size_t i = kinds.size();
        kinds.push_back({rows[(i + i / 6) % 6], input, activation, scales[i % 4], bias});
      }
  return kinds;
}

struct BranchCase {
  std::vector<Kind> kinds;
  Index N = 4, D = 3, C = 11;
  int threads = 2;

  Index steering_numbers() const { return first(-1); }
  // The last branch gives the token's first numbers: the order of the branches is not that of the numbers.
  Index first(Index branch) const {
    Index sum = 0;
    for (Index i = branch + 1; i < std::ssize(kinds); ++i) sum += kinds[i].rows;
    return sum;
  }
  Index roundings() const { return pass_roundings(N, D, C) + steering_numbers(); }
};

std::string weight(Index branch) { return fmt::format("w{}_RC", branch); }
std::string bias(Index branch) { return fmt::format("b{}_R", branch); }

Tensors inputs(const BranchCase& c) {
  Tensors t;
  t["state_NDC"] = normals(c.N * c.D * c.C, 21);
  t["norm_C"] = normals(c.C, 22);
  if (c.D > 1) t["mix_DC"] = normals(c.D * c.C, 23);
  for (Index i = 0; i < std::ssize(c.kinds); ++i) {
    const Kind& kind = c.kinds[i];
    const auto seed = static_cast<std::uint64_t>(30 + 2 * i);
    if (kind.input != BranchInput::kNone) t[weight(i)] = normals(kind.rows * c.C, seed, 0.3);
    if (kind.bias) t[bias(i)] = normals(kind.rows, seed + 1);
  }
  return t;
}

Tensors output_gradients(const BranchCase& c) {
  return {{"state_NDC", normals(c.N * c.D * c.C, 24)},
          {"context_NC", normals(c.N * c.C, 25)},
          {"steer_NR", normals(c.N * c.steering_numbers(), 26)}};
}

// x_in    = sum_d mix_d * X_d
// context = RMSNorm(x_in)
// steer_r = scale act(w_r . input + b_r)
template <class Num>
NamedTensors<Num> oracle_forward(const BranchCase& c, NamedTensors<Num> in) {
  using std::tanh;
  const auto& X = in["state_NDC"];
  const auto x_in = c.D > 1 ? ref::channel_compress(X, in["mix_DC"], c.N, c.D, c.C) : X;
  const auto context = ref::rmsnorm(x_in, in["norm_C"], c.N, c.C);
  const Index R = c.steering_numbers();
  std::vector<Num> steer_NR(c.N * R);
  for (Index i = 0; i < std::ssize(c.kinds); ++i) {
    const Kind& kind = c.kinds[i];
    for (Index n = 0; n < c.N; ++n)
      for (Index r = 0; r < kind.rows; ++r) {
        Num u = kind.bias ? in[bias(i)][r] : Num(0);
        if (kind.input != BranchInput::kNone)
          for (Index j = 0; j < c.C; ++j)
            u += in[weight(i)][r * c.C + j] *
                 (kind.input == BranchInput::kContext ? context : x_in)[n * c.C + j];
        const Num value = kind.activation == Activation::kSigmoid ? Num(1) / (Num(1) + exp(-u))
                          : kind.activation == Activation::kTanh  ? tanh(u)
                                                                  : u;
        steer_NR[n * R + c.first(i) + r] = Num(kind.scale) * value;
      }
  }
  return {{"state_NDC", X}, {"context_NC", context}, {"steer_NR", steer_NR}};
}

Tensors oracle_gradients(const BranchCase& c, const Tensors& in, const Tensors& g) {
  return gradients_by_complex_step(in, g,
                                   [&](const NamedTensors<Complex>& at) { return oracle_forward(c, at); });
}

// Outputs under their names, gradients of the inputs under "d" + name. A mutant's backward pass may take its
// branches for others than those that ran forward.
template <class T>
Tensors run(const BranchCase& c, const std::vector<Kind>& backward_kinds, const Tensors& in,
            const Tensors& g) {
  const Exec ex{.threads = c.threads};
  const Index R = c.steering_numbers();
  Buffers x(in), dx = Buffers::zeros_like(in), dout(g);
  Buffer<T> context_NC(c.N * c.C);
  Buffer<float> rstd_N(c.N), scratch(residual_bwd_scratch(c.D, c.C, R));
  Steering steer(c.N, R), dsteer(c.N, R);
  dsteer.put(0, g.at("steer_NR"));
  const auto branches_of = [&](const std::vector<Kind>& kinds) {
    std::vector<Branch> branches;
    for (Index i = 0; i < std::ssize(kinds); ++i)
      branches.push_back({.first = c.first(i),
                          .rows = kinds[i].rows,
                          .input = kinds[i].input,
                          .activation = kinds[i].activation,
                          .scale = static_cast<float>(kinds[i].scale),
                          .w_RC = x[weight(i)],
                          .b_R = x[bias(i)],
                          .dw_RC = dx[weight(i)],
                          .db_R = dx[bias(i)]});
    return branches;
  };
  const std::vector<Branch> forward = branches_of(c.kinds), backward = branches_of(backward_kinds);

  const ReadFwd<T> read{.mix_DC = x["mix_DC"],
                        .norm_C = x["norm_C"],
                        .context_NC = context_NC.data(),
                        .rstd_N = rstd_N.data(),
                        .branches = forward,
                        .steer_NR = steer.data(),
                        .steer_stride = steer.stride};
  residual_fwd<T>(x["state_NDC"], nullptr, &read, c.N, c.D, c.C, ex);
  const ReadBwd<T> read_bwd{.mix_DC = x["mix_DC"],
                            .norm_C = x["norm_C"],
                            .rstd_N = rstd_N.data(),
                            .dcontext_NC = dout["context_NC"],
                            .branches = backward,
                            .steer_NR = steer.data(),
                            .dsteer_NR = dsteer.data(),
                            .steer_stride = steer.stride,
                            .dmix_DC = dx["mix_DC"],
                            .dnorm_C = dx["norm_C"]};
  residual_bwd<T>(x["state_NDC"], dout["state_NDC"], &read_bwd, nullptr, scratch.data(), c.N, c.D, c.C, ex);

  Tensors result;
  result["state_NDC"] = x.values("state_NDC");
  result["context_NC"] = context_NC.values();
  result["steer_NR"] = steer.all();
  dx.add_to(result, "d");
  result["dstate_NDC"] = dout.values("state_NDC");
  EXPECT_TRUE(x.intact() && dx.intact() && dout.intact());
  EXPECT_TRUE(steer.intact() && dsteer.intact());
  EXPECT_TRUE(context_NC.intact() && rstd_N.intact() && scratch.intact());
  return result;
}

template <class T>
void check(const BranchCase& c, const std::string& what) {
  const Tensors in = inputs(c), g = output_gradients(c), actual = run<T>(c, c.kinds, in, g);
  for (const auto& [name, x] : oracle_forward(c, in))
    EXPECT_LT(rounding_ratio(actual.at(name), x, c.roundings(), name == "context_NC" ? kStorage<T> : 0), 1)
        << name << " " << what;
  for (const auto& [name, x] : oracle_gradients(c, in, g))
    EXPECT_LT(rounding_ratio(actual.at("d" + name), x, c.roundings()), 1) << "d" << name << " " << what;
}

TEST(ResidualBranches, EachKindAlone) {
  for (const Kind& kind : every_kind())
    for (Index D : {1, 3})
      check<float>({.kinds = {kind}, .D = D},
                   fmt::format("input {} activation {} bias {} rows {} D {}", int(kind.input),
                               int(kind.activation), kind.bias, kind.rows, D));
}

TEST(ResidualBranches, AllKindsInOneRead) {
  std::vector<Kind> kinds = every_kind();
  check<float>({.kinds = kinds}, "in order");
  std::reverse(kinds.begin(), kinds.end());
  check<float>({.kinds = kinds, .N = 37, .D = 1, .C = 5}, "reversed, D = 1");
}

TEST(ResidualBranches, EveryWidth) {
  const std::vector<Kind> kinds = {
      {.rows = 5, .input = BranchInput::kUnnormed, .activation = Activation::kTanh},
      {.rows = 2, .input = BranchInput::kContext, .activation = Activation::kSigmoid, .bias = false},
      {.rows = 1, .input = BranchInput::kNone, .activation = Activation::kSigmoid},
      {.rows = 3, .input = BranchInput::kUnnormed},
  };
  for (Index C : {1, 2, 7, 8, 15, 16, 17, 33}) check<float>({.kinds = kinds, .C = C}, fmt::format("C {}", C));
}

// The branches read the context before it is rounded to bf16.
TEST(ResidualBranches, Bf16Context) { check<bf16>({.kinds = every_kind()}, "bf16"); }

TEST(ResidualBranches, BitsDoNotDependOnThreads) {
  BranchCase c{.kinds = every_kind(), .N = 77, .threads = 1};
  const Tensors in = inputs(c), g = output_gradients(c), one = run<float>(c, c.kinds, in, g);
  for (int threads : {2, 3, 8}) {
    c.threads = threads;
    EXPECT_EQ(run<float>(c, c.kinds, in, g), one) << threads;
  }
}

// Mutants: a branch that is taken for another kind, in both passes or in the backward pass only.
TEST(ResidualBranchMutants, AreRejected) {
  const BranchCase c{.kinds = {{.input = BranchInput::kContext, .activation = Activation::kSigmoid},
                               {.input = BranchInput::kUnnormed, .activation = Activation::kTanh},
                               {.input = BranchInput::kUnnormed, .activation = Activation::kIdentity}}};
  const Tensors in = inputs(c), g = output_gradients(c);
  const Tensors outputs = oracle_forward(c, in), gradients = oracle_gradients(c, in, g);
  const auto right = [&](const Tensors& result, const std::string& output) {
    return rounding_ratio(result.at(output), outputs.at(output), c.roundings()) < 1;
  };
  const auto right_gradient = [&](const Tensors& result, const std::string& name) {
    return rounding_ratio(result.at("d" + name), gradients.at(name), c.roundings()) < 1;
  };
  const auto expect_rejected = [&](Index branch, const std::vector<Kind>& kinds, const char* what) {
    BranchCase wrong = c;
    wrong.kinds = kinds;
    EXPECT_FALSE(right(run<float>(wrong, kinds, in, g), "steer_NR")) << what << " " << branch;
    const Tensors backward = run<float>(c, kinds, in, g);
    EXPECT_TRUE(right(backward, "steer_NR")) << what << " " << branch;
    EXPECT_FALSE(right_gradient(backward, weight(branch))) << what << " " << branch;
    EXPECT_FALSE(right_gradient(backward, "state_NDC")) << what << " " << branch;
    for (Index other = 0; other < std::ssize(kinds); ++other)
      EXPECT_TRUE(other == branch || right_gradient(backward, weight(other))) << what << " " << branch;
  };
  for (Index i = 0; i < std::ssize(c.kinds); ++i) {
    std::vector<Kind> kinds = c.kinds;
    kinds[i].input =
        c.kinds[i].input == BranchInput::kContext ? BranchInput::kUnnormed : BranchInput::kContext;
    expect_rejected(i, kinds, "input");

    kinds = c.kinds;
    kinds[i].activation =
        c.kinds[i].activation == Activation::kSigmoid ? Activation::kTanh : Activation::kSigmoid;
    expect_rejected(i, kinds, "activation");

    kinds = c.kinds;
    kinds[i].scale *= 1.01;
    expect_rejected(i, kinds, "scale");
  }

  // No bias.
  for (Index i = 0; i < std::ssize(c.kinds); ++i) {
    Tensors without = in;
    without.erase(bias(i));
    EXPECT_FALSE(right(run<float>(c, c.kinds, without, g), "steer_NR")) << "bias " << i;
  }
}

}  // namespace
}  // namespace ddl::residual_pass_test
