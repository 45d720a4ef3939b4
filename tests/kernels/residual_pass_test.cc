// The residual pass against the oracle: forward, and every gradient by complex step.
#include "kernels/residual.h"

#include <map>
#include <string>

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::residual_test {
namespace {

struct Case {
  WriteRule rule = WriteRule::kDelta;
  ValueBranch value = ValueBranch::kSigmoid;
  Index N = 5, D = 4, C = 19;
  int threads = 2;
  bool writes = true, reads = true;
  bool mixes() const { return rule != WriteRule::kAdd && reads && D > 1; }
  bool branches() const { return rule != WriteRule::kAdd; }
  std::string name() const {
    return fmt::format("rule {} value {} N {} D {} C {} threads {} writes {} reads {}", int(rule), int(value),
                       N, D, C, threads, writes, reads);
  }
};

using Tensors = std::map<std::string, std::vector<double>>;
using ComplexTensors = std::map<std::string, std::vector<Complex>>;

// T: how h and context are stored.
template <class T>
Tensors inputs(const Case& c) {
  Tensors t;
  t["state"] = normals(c.N * c.D * c.C, 1);
  if (c.writes) {
    t["h"] = normals<T>(c.N * c.C, 2);
    if (c.branches()) {
      t["beta"] = normals(c.N, 3);
      t["v"] = normals(c.N * c.D, 4);
    }
  }
  if (c.reads) {
    if (c.mixes()) t["mix"] = normals(c.D * c.C, 5);
    t["norm"] = normals(c.C, 6);
    if (c.branches()) {
      t["gate_w"] = normals(c.C, 7, 0.3);
      t["gate_b"] = normals(1, 8);
      t["value_w"] = normals(c.D * c.C, 9, 0.3);
      if (c.value != ValueBranch::kLinear) t["value_b"] = normals(c.D, 10);
    }
  }
  return t;
}

// The weights of the scalar loss: what arrives as gradient of each output.
Tensors output_gradients(const Case& c) {
  Tensors g;
  g["state"] = normals(c.N * c.D * c.C, 11);
  if (c.reads) {
    g["context"] = normals(c.N * c.C, 12);
    if (c.branches()) {
      g["beta"] = normals(c.N, 13);
      g["v"] = normals(c.N * c.D, 14);
    }
  }
  return g;
}

template <class Num>
std::map<std::string, std::vector<Num>> oracle_forward(const Case& c,
                                                       std::map<std::string, std::vector<Num>> in) {
  std::map<std::string, std::vector<Num>> out;
  auto& X = in["state"];
  if (c.writes) {
    if (c.rule == WriteRule::kAdd) {
      X = ref::add(X, in["h"]);
    } else {
      const auto k = ref::direction(in["h"], c.N, c.C);
      if (c.rule == WriteRule::kDelta) out["readout"] = ref::readout(X, k, c.N, c.D, c.C);
      X = c.rule == WriteRule::kDelta ? ref::delta_rewrite(X, k, in["beta"], in["v"], c.N, c.D, c.C)
                                      : ref::write_only(X, k, in["beta"], in["v"], c.N, c.D, c.C);
    }
  }
  out["state"] = X;
  if (!c.reads) return out;
  const auto x_in = c.mixes() ? ref::channel_compress(X, in["mix"], c.N, c.D, c.C) : X;
  const auto context = ref::rmsnorm(x_in, in["norm"], c.N, c.C);
  out["context"] = context;
  if (!c.branches()) return out;
  out["beta"] = ref::gate_linear(context, in["gate_w"], in["gate_b"], c.N, c.C);
  switch (c.value) {
    case ValueBranch::kSigmoid:
      out["v"] = ref::value_sigmoid(x_in, in["value_w"], in["value_b"], c.N, c.C, c.D);
      break;
    case ValueBranch::kBiased:
      out["v"] = ref::value_biased(context, in["value_w"], in["value_b"], c.N, c.C, c.D);
      break;
    case ValueBranch::kLinear:
      out["v"] = ref::value_linear(context, in["value_w"], c.N, c.C, c.D);
  }
  return out;
}

Tensors oracle_gradients(const Case& c, const Tensors& in, const Tensors& g) {
  ComplexTensors z;
  for (const auto& [name, x] : in) z[name] = complexify(x);
  Tensors gradients;
  for (const auto& [name, x] : in)
    gradients[name] = oracle_gradient(x, [&, &name = name](const std::vector<Complex>& moved) {
      ComplexTensors at = z;
      at[name] = moved;
      const auto out = oracle_forward(c, at);
      Complex loss = 0;
      for (const auto& [output, weights] : g) loss += weighted_sum(out.at(output), weights);
      return loss;
    });
  return gradients;
}

// Runs the kernels: outputs of the forward pass under their names, gradients of the inputs under "d" + name,
// the state after the walk back under "state_before".
template <class T>
Tensors run(const Case& c, const Tensors& in, const Tensors& g) {
  const Exec ex{.threads = c.threads};
  std::map<std::string, Buffer<float>> b;
  for (const auto& [name, x] : in) b.emplace(name, Buffer<float>(x));
  const auto ptr = [&](const std::string& name) { return b.count(name) ? b.at(name).data() : nullptr; };
  Buffer<T> h(c.writes ? in.at("h") : std::vector<double>()), context(c.reads ? c.N * c.C : 0), dh(h.size());
  Buffer<float> readout(c.N * c.D), kscale(c.N), rstd(c.N), beta(c.N), v(c.N * c.D), dbeta(c.N),
      dv(c.N * c.D);

  WriteFwd<T> write{.rule = c.rule,
                    .h_NC = h.data(),
                    .beta_N = ptr("beta"),
                    .v_ND = ptr("v"),
                    .readout_ND = readout.data(),
                    .kscale_N = kscale.data()};
  BranchWeights branches;
  if (c.reads && c.branches())
    branches = {.gate_w_C = ptr("gate_w"),
                .gate_b = ptr("gate_b"),
                .value = c.value,
                .value_w_DC = ptr("value_w"),
                .value_b_D = ptr("value_b"),
                .channels = c.D};
  ReadFwd<T> read{.mix_DC = ptr("mix"),
                  .norm_C = ptr("norm"),
                  .context_NC = context.data(),
                  .rstd_N = rstd.data(),
                  .branches = branches,
                  .beta_N = beta.data(),
                  .v_ND = v.data()};
  residual_fwd<T>(b.at("state").data(), c.writes ? &write : nullptr, c.reads ? &read : nullptr, c.N, c.D, c.C,
                  ex);

  Tensors result;
  result["state"] = b.at("state").values();
  result["context"] = context.values();
  result["beta"] = beta.values();
  result["v"] = v.values();
  result["readout"] = readout.values();

  std::map<std::string, Buffer<float>> grad, incoming;
  for (const auto& [name, x] : in) grad.emplace(name, Buffer<float>(std::ssize(x)));
  for (const auto& [name, x] : g) incoming.emplace(name, Buffer<float>(x));
  const auto gptr = [&](const std::string& name) {
    return grad.count(name) ? grad.at(name).data() : nullptr;
  };
  const auto iptr = [&](const std::string& name) {
    return incoming.count(name) ? incoming.at(name).data() : nullptr;
  };
  Buffer<float> scratch(residual_bwd_scratch(c.D, c.C, c.D));
  ReadBwd<T> read_bwd{.mix_DC = ptr("mix"),
                      .norm_C = ptr("norm"),
                      .rstd_N = rstd.data(),
                      .dcontext_NC = iptr("context"),
                      .branches = branches,
                      .beta_N = beta.data(),
                      .v_ND = v.data(),
                      .dbeta_N = iptr("beta"),
                      .dv_ND = iptr("v"),
                      .dmix_DC = gptr("mix"),
                      .dnorm_C = gptr("norm"),
                      .dgate_w_C = gptr("gate_w"),
                      .dgate_b = gptr("gate_b"),
                      .dvalue_w_DC = gptr("value_w"),
                      .dvalue_b_D = gptr("value_b")};
  WriteBwd<T> write_bwd{.rule = c.rule,
                        .h_NC = h.data(),
                        .beta_N = ptr("beta"),
                        .v_ND = ptr("v"),
                        .readout_ND = readout.data(),
                        .kscale_N = kscale.data(),
                        .dh_NC = dh.data(),
                        .dbeta_N = dbeta.data(),
                        .dv_ND = dv.data()};
  residual_bwd<T>(b.at("state").data(), incoming.at("state").data(), c.reads ? &read_bwd : nullptr,
                  c.writes ? &write_bwd : nullptr, scratch.data(), c.N, c.D, c.C, ex);

  result["state_before"] = b.at("state").values();
  for (const auto& [name, buffer] : grad) result["d" + name] = buffer.values();
  result["dstate"] = incoming.at("state").values();
  if (c.writes) {
    result["dh"] = dh.values();
    if (c.branches()) result["dbeta"] = dbeta.values(), result["dv"] = dv.values();
  }
  for (const auto* buffers : {&b, &grad, &incoming})
    for (const auto& [name, buffer] : *buffers) EXPECT_TRUE(buffer.intact()) << name << " " << c.name();
  for (const auto* buffer : {&readout, &kscale, &rstd, &beta, &v, &dbeta, &dv, &scratch})
    EXPECT_TRUE(buffer->intact()) << c.name();
  EXPECT_TRUE(h.intact() && context.intact() && dh.intact()) << c.name();
  return result;
}

// The longest chain of roundings: a few sums over C and D, then (weights) one over N.
Index roundings(const Case& c) { return 4 * c.C * c.D + c.N + 64; }

template <class T>
void check(const Case& c) {
  const double storage = std::is_same_v<T, bf16> ? kBf16Epsilon : 0;
  const Tensors in = inputs<T>(c), g = output_gradients(c);
  const Tensors actual = run<T>(c, in, g);
  const auto expected = oracle_forward(c, in);
  for (const auto& [name, x] : expected)
    EXPECT_LT(rounding_ratio(actual.at(name), x, roundings(c), name == "context" ? storage : 0), 1)
        << name << " " << c.name();
  EXPECT_LT(rounding_ratio(actual.at("state_before"), in.at("state"), roundings(c)), 1)
      << "walk back " << c.name();
  for (const auto& [name, x] : oracle_gradients(c, in, g))
    EXPECT_LT(rounding_ratio(actual.at("d" + name), x, roundings(c), name == "h" ? storage : 0), 1)
        << "d" << name << " " << c.name();
}

TEST(Residual, AddAndNorm) {
  for (Index C : {1, 2, 7, 8, 16, 31, 33})
    for (Index N : {1, 5, 70}) check<float>({.rule = WriteRule::kAdd, .N = N, .D = 1, .C = C});
}

TEST(Residual, DeltaEveryWidthAndChannelCount) {
  // From two features up: with one, the direction is a constant and dh is nothing but cancellation.
  for (Index C : {2, 3, 8, 15, 16, 17, 35})
    for (Index D : {1, 2, 3, 4, 5, 8}) check<float>({.N = 3, .D = D, .C = C});
  check<float>({.N = 2, .D = 16, .C = 9});
}

TEST(Residual, EveryRuleAndValueBranch) {
  for (WriteRule rule : {WriteRule::kDelta, WriteRule::kWriteOnly})
    for (ValueBranch value : {ValueBranch::kSigmoid, ValueBranch::kBiased, ValueBranch::kLinear})
      for (Index D : {1, 4}) check<float>({.rule = rule, .value = value, .D = D});
}

TEST(Residual, EachPartAlone) {
  for (WriteRule rule : {WriteRule::kAdd, WriteRule::kDelta, WriteRule::kWriteOnly}) {
    const Index D = rule == WriteRule::kAdd ? 1 : 3;
    check<float>({.rule = rule, .D = D, .reads = false});
    check<float>({.rule = rule, .D = D, .writes = false});
  }
}

TEST(Residual, Bf16Activations) {
  for (WriteRule rule : {WriteRule::kAdd, WriteRule::kDelta, WriteRule::kWriteOnly})
    check<bf16>({.rule = rule, .D = rule == WriteRule::kAdd ? 1 : 4});
}

TEST(Residual, BitsDoNotDependOnThreads) {
  Case c{.N = 77, .C = 40};
  const Tensors in = inputs<float>(c), g = output_gradients(c);
  c.threads = 1;
  const Tensors one = run<float>(c, in, g);
  for (int threads : {2, 3, 8}) {
    c.threads = threads;
    EXPECT_EQ(run<float>(c, in, g), one) << threads;
  }
}

// At the top of the network nothing else reaches the state: the read's gradient overwrites.
TEST(Residual, OverwritingReadIgnoresWhatWasThere) {
  const Index N = 3, D = 2, C = 5;
  const Buffer<float> mix(normals(D * C, 1)), norm(normals(C, 2)), dcontext(normals(N * C, 3));
  Buffer<float> state(normals(N * D * C, 4)), context(N * C), rstd(N), scratch(residual_bwd_scratch(D, C, 0));
  const ReadFwd<float> fwd{
      .mix_DC = mix.data(), .norm_C = norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()};
  residual_fwd<float>(state.data(), nullptr, &fwd, N, D, C, Exec{});
  ReadBwd<float> bwd{
      .mix_DC = mix.data(), .norm_C = norm.data(), .rstd_N = rstd.data(), .dcontext_NC = dcontext.data()};
  Buffer<float> added(N * D * C), fresh(normals(N * D * C, 5));
  residual_bwd<float>(state.data(), added.data(), &bwd, nullptr, scratch.data(), N, D, C, Exec{});
  bwd.dstate_mode = Write::kOverwrite;
  residual_bwd<float>(state.data(), fresh.data(), &bwd, nullptr, scratch.data(), N, D, C, Exec{});
  EXPECT_EQ(fresh.values(), added.values());
}

// A tiny sublayer output: the guard keeps k finite, its gradient too.
TEST(Residual, TinyDirectionsAreGuarded) {
  const Case c{.N = 2, .D = 2, .C = 6};
  Tensors in = inputs<float>(c);
  for (Index i = 0; i < c.C; ++i) in["h"][i] = 0;               // first token: h = 0
  for (Index i = c.C; i < 2 * c.C; ++i) in["h"][i] *= 0x1p-20;  // second: |h| near eps_k
  const Tensors g = output_gradients(c), actual = run<float>(c, in, g);
  for (const auto& [name, x] : oracle_gradients(c, in, g))
    EXPECT_LT(rounding_ratio(actual.at("d" + name), x, roundings(c)), 1) << name;
}

// Mutants: what the tests above must reject. Each takes the kernel's right result, breaks it as a dropped
// term or a swapped sign would, and checks that the comparison with the oracle notices.
TEST(ResidualMutants, AreRejected) {
  const Case c;
  const Tensors in = inputs<float>(c), g = output_gradients(c);
  const Tensors actual = run<float>(c, in, g), truth = oracle_gradients(c, in, g);
  const auto rejected = [&](const std::string& name, const std::vector<double>& mutant) {
    return rounding_ratio(mutant, truth.at(name), roundings(c)) > 1;
  };
  for (const auto& [name, x] : truth) EXPECT_FALSE(rejected(name, actual.at("d" + name))) << name;

  // Another rule: the erase term left out, forward and backward.
  Case write_only = c;
  write_only.rule = WriteRule::kWriteOnly;
  const Tensors no_erase = run<float>(write_only, in, g);
  EXPECT_GT(rounding_ratio(no_erase.at("state"), oracle_forward(c, in).at("state"), roundings(c)), 1);
  for (const char* name : {"state", "h", "beta"})
    EXPECT_TRUE(rejected(name, no_erase.at(std::string("d") + name)));

  // dh without the projection off k, rebuilt from the oracle's parts:
  //   dh + s k (k . dk)   with k . dk = dh_raw . k / s
  const auto k = ref::direction(in.at("h"), c.N, c.C);
  std::vector<double> unprojected = actual.at("dh");
  for (Index n = 0; n < c.N; ++n) {
    double norm = 0;
    for (Index i = 0; i < c.C; ++i) norm += in.at("h")[n * c.C + i] * in.at("h")[n * c.C + i];
    double k_dk = 0;
    for (Index d = 0; d < c.D; ++d) {
      const double a = actual.at("dv")[n * c.D + d];  // beta (k . g_d)
      k_dk += a * (in.at("v")[n * c.D + d] - 2 * actual.at("readout")[n * c.D + d]);
    }
    for (Index i = 0; i < c.C; ++i) unprojected[n * c.C + i] += k[n * c.C + i] * k_dk / std::sqrt(norm);
  }
  EXPECT_TRUE(rejected("h", unprojected));

  // dX without the erase's own gradient, - beta (k.g) k.
  std::vector<double> dstate = actual.at("dstate");
  for (Index n = 0; n < c.N; ++n)
    for (Index d = 0; d < c.D; ++d)
      for (Index i = 0; i < c.C; ++i)
        dstate[(n * c.D + d) * c.C + i] += actual.at("dv")[n * c.D + d] * k[n * c.C + i];
  EXPECT_TRUE(rejected("state", dstate));

  // A sign, and one dropped token in a sum over tokens.
  for (const char* name : {"norm", "mix", "gate_w", "gate_b", "value_w", "value_b"}) {
    std::vector<double> flipped = actual.at(std::string("d") + name);
    flipped[0] = -flipped[0];
    EXPECT_TRUE(rejected(name, flipped)) << name;
  }
  Case shorter = c;
  shorter.N = c.N - 1;
  const Tensors fewer = run<float>(shorter, inputs<float>(shorter), output_gradients(shorter));
  for (const char* name : {"norm", "mix", "gate_w", "value_w"})
    EXPECT_TRUE(rejected(name, fewer.at(std::string("d") + name))) << name;
}

}  // namespace
}  // namespace ddl::residual_test
