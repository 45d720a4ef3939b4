// The residual pass against the oracle: forward, and every gradient by complex step.
#include "kernels/residual_pass.h"

#include <string>
#include <vector>

#include "kernels/residual_pass_testing.h"
#include "model/residual/delta_coefficients.h"
#include "ref/ops.h"

namespace ddl::residual_pass_test {
namespace {

// The paper's rules, whole passes: steering numbers beta, v_0, ..., v_{D-1}.

enum class Rule {
  kAdd,        // X_0 += h                              (D = 1)
  kDelta,      // X_d += beta (v_d - r_d) k
  kWriteOnly,  // X_d += beta v_d k
};

// The target v_d of the write, with u_d = value_w_d . input + value_b_d.
enum class Value {
  kSigmoid,  // v_d = 4 sigmoid(u_d), input x_in
  kBiased,   // v_d = u_d,            input context
  kLinear,   // v_d = u_d without the bias
};

struct Case {
  Rule rule = Rule::kDelta;
  Value value = Value::kSigmoid;
  Index N = 5, D = 4, C = 19;
  int threads = 2;
  bool writes = true, reads = true;
  bool steered() const { return rule != Rule::kAdd; }
  bool mixes() const { return steered() && reads && D > 1; }
  Index steering_numbers() const { return steered() ? 1 + D : 0; }
  std::string name() const {
    return fmt::format("rule {} value {} N {} D {} C {} threads {} writes {} reads {}", int(rule), int(value),
                       N, D, C, threads, writes, reads);
  }
};

// T: how h and context are stored.
template <class T>
Tensors inputs(const Case& c) {
  Tensors t;
  t["state_NDC"] = normals(c.N * c.D * c.C, 1);
  if (c.writes) {
    t["h_NC"] = normals<T>(c.N * c.C, 2);
    if (c.steered()) {
      t["beta_N"] = normals(c.N, 3);
      t["v_ND"] = normals(c.N * c.D, 4);
    }
  }
  if (c.reads) {
    if (c.mixes()) t["mix_DC"] = normals(c.D * c.C, 5);
    t["norm_C"] = normals(c.C, 6);
    if (c.steered()) {
      t["gate_w_C"] = normals(c.C, 7, 0.3);
      t["gate_b"] = normals(1, 8);
      t["value_w_DC"] = normals(c.D * c.C, 9, 0.3);
      if (c.value != Value::kLinear) t["value_b_D"] = normals(c.D, 10);
    }
  }
  return t;
}

Tensors output_gradients(const Case& c) {
  Tensors g;
  g["state_NDC"] = normals(c.N * c.D * c.C, 11);
  if (c.reads) {
    g["context_NC"] = normals(c.N * c.C, 12);
    if (c.steered()) {
      g["beta_N"] = normals(c.N, 13);
      g["v_ND"] = normals(c.N * c.D, 14);
    }
  }
  return g;
}

template <class Num>
NamedTensors<Num> oracle_forward(const Case& c, NamedTensors<Num> in) {
  NamedTensors<Num> out;
  auto& X = in["state_NDC"];
  if (c.writes) {
    if (c.rule == Rule::kAdd) {
      X = ref::add(X, in["h_NC"]);
    } else {
      const auto k = ref::direction(in["h_NC"], c.N, c.C);
      if (c.rule == Rule::kDelta) out["readout_ND"] = ref::readout(X, k, c.N, c.D, c.C);
      X = c.rule == Rule::kDelta ? ref::delta_rewrite(X, k, in["beta_N"], in["v_ND"], c.N, c.D, c.C)
                                 : ref::write_only(X, k, in["beta_N"], in["v_ND"], c.N, c.D, c.C);
    }
  }
  out["state_NDC"] = X;
  if (!c.reads) return out;
  const auto x_in = c.mixes() ? ref::channel_compress(X, in["mix_DC"], c.N, c.D, c.C) : X;
  const auto context = ref::rmsnorm(x_in, in["norm_C"], c.N, c.C);
  out["context_NC"] = context;
  if (!c.steered()) return out;
  out["beta_N"] = ref::gate_linear(context, in["gate_w_C"], in["gate_b"], c.N, c.C);
  switch (c.value) {
    case Value::kSigmoid:
      out["v_ND"] = ref::value_sigmoid(x_in, in["value_w_DC"], in["value_b_D"], c.N, c.C, c.D);
      break;
    case Value::kBiased:
      out["v_ND"] = ref::value_biased(context, in["value_w_DC"], in["value_b_D"], c.N, c.C, c.D);
      break;
    case Value::kLinear:
      out["v_ND"] = ref::value_linear(context, in["value_w_DC"], c.N, c.C, c.D);
  }
  return out;
}

Tensors oracle_gradients(const Case& c, const Tensors& in, const Tensors& g) {
  return gradients_by_complex_step(in, g,
                                   [&](const NamedTensors<Complex>& at) { return oracle_forward(c, at); });
}

// Runs the kernels: outputs of the forward pass under their names, gradients of the inputs under "d" + name,
// the state after the walk back under "state_before_NDC".
template <class T>
Tensors run(const Case& c, const Tensors& in, const Tensors& g) {
  const Exec ex{.threads = c.threads};
  const DeltaCoefficients delta(c.rule == Rule::kDelta ? DeltaCoefficients::Erase::kYes
                                                       : DeltaCoefficients::Erase::kNo);
  const Coefficients* rule = c.steered() ? &delta : nullptr;
  const Index R = c.steering_numbers(), Q = delta.saved_per_token(c.D);
  Buffers x(in), dx = Buffers::zeros_like(in), dout(g);
  Buffer<T> h(c.writes ? in.at("h_NC") : std::vector<double>()), context(c.reads ? c.N * c.C : 0),
      dh(h.size());
  Buffer<float> saved(c.N * Q), rstd(c.N), scratch(residual_bwd_scratch(c.D, c.C, R));
  Steering steer(c.N, R), dsteer(c.N, R);            // of this write
  Steering next_steer(c.N, R), next_dsteer(c.N, R);  // of the next
  if (c.writes && c.steered()) steer.put(0, in.at("beta_N")), steer.put(1, in.at("v_ND"));
  if (c.reads && c.steered()) next_dsteer.put(0, g.at("beta_N")), next_dsteer.put(1, g.at("v_ND"));

  std::vector<Branch> branches;
  if (c.reads && c.steered()) {
    const bool sigmoid = c.value == Value::kSigmoid;
    branches.push_back({.first = 0,
                        .rows = 1,
                        .activation = Activation::kSigmoid,
                        .scale = 2,
                        .w_RC = x["gate_w_C"],
                        .b_R = x["gate_b"],
                        .dw_RC = dx["gate_w_C"],
                        .db_R = dx["gate_b"]});
    branches.push_back({.first = 1,
                        .rows = c.D,
                        .input = sigmoid ? BranchInput::kUnnormed : BranchInput::kContext,
                        .activation = sigmoid ? Activation::kSigmoid : Activation::kIdentity,
                        .scale = sigmoid ? 4.0f : 1.0f,
                        .w_RC = x["value_w_DC"],
                        .b_R = x["value_b_D"],
                        .dw_RC = dx["value_w_DC"],
                        .db_R = dx["value_b_D"]});
  }
  const WriteFwd<T> write{.coefficients = rule,
                          .h_NC = h.data(),
                          .steer_NR = steer.data(),
                          .steer_stride = steer.stride,
                          .saved_NQ = saved.data()};
  const ReadFwd<T> read{.mix_DC = x["mix_DC"],
                        .norm_C = x["norm_C"],
                        .context_NC = context.data(),
                        .rstd_N = rstd.data(),
                        .branches = branches,
                        .steer_NR = next_steer.data(),
                        .steer_stride = next_steer.stride};
  residual_fwd<T>(x["state_NDC"], c.writes ? &write : nullptr, c.reads ? &read : nullptr, c.N, c.D, c.C, ex);

  Tensors result;
  result["state_NDC"] = x.values("state_NDC");
  if (c.reads) result["context_NC"] = context.values();
  if (c.reads && c.steered()) {
    result["beta_N"] = next_steer.take(0, 1);
    result["v_ND"] = next_steer.take(1, c.D);
  }
  if (c.writes && c.rule == Rule::kDelta)
    for (Index n = 0; n < c.N; ++n)
      for (Index d = 0; d < c.D; ++d) result["readout_ND"].push_back(saved[n * Q + 1 + d]);

  const ReadBwd<T> read_bwd{.mix_DC = x["mix_DC"],
                            .norm_C = x["norm_C"],
                            .rstd_N = rstd.data(),
                            .dcontext_NC = dout["context_NC"],
                            .branches = branches,
                            .steer_NR = next_steer.data(),
                            .dsteer_NR = next_dsteer.data(),
                            .steer_stride = next_steer.stride,
                            .dmix_DC = dx["mix_DC"],
                            .dnorm_C = dx["norm_C"]};
  const WriteBwd<T> write_bwd{.coefficients = rule,
                              .h_NC = h.data(),
                              .steer_NR = steer.data(),
                              .steer_stride = steer.stride,
                              .saved_NQ = saved.data(),
                              .dh_NC = dh.data(),
                              .dsteer_NR = dsteer.data()};
  residual_bwd<T>(x["state_NDC"], dout["state_NDC"], c.reads ? &read_bwd : nullptr,
                  c.writes ? &write_bwd : nullptr, scratch.data(), c.N, c.D, c.C, ex);

  result["state_before_NDC"] = x.values("state_NDC");
  dx.add_to(result, "d");
  result["dstate_NDC"] = dout.values("state_NDC");
  if (c.writes) {
    result["dh_NC"] = dh.values();
    if (c.steered()) result["dbeta_N"] = dsteer.take(0, 1), result["dv_ND"] = dsteer.take(1, c.D);
  }
  EXPECT_TRUE(x.intact() && dx.intact() && dout.intact()) << c.name();
  EXPECT_TRUE(steer.intact() && dsteer.intact() && next_steer.intact() && next_dsteer.intact()) << c.name();
  EXPECT_TRUE(saved.intact() && rstd.intact() && scratch.intact()) << c.name();
  EXPECT_TRUE(h.intact() && context.intact() && dh.intact()) << c.name();
  return result;
}

Index roundings(const Case& c) { return pass_roundings(c.N, c.D, c.C); }

template <class T>
void check(const Case& c) {
  const Tensors in = inputs<T>(c), g = output_gradients(c);
  const Tensors actual = run<T>(c, in, g);
  const auto expected = oracle_forward(c, in);
  for (const auto& [name, x] : expected)
    EXPECT_LT(rounding_ratio(actual.at(name), x, roundings(c), name == "context_NC" ? kStorage<T> : 0), 1)
        << name << " " << c.name();
  EXPECT_LT(rounding_ratio(actual.at("state_before_NDC"), in.at("state_NDC"), roundings(c)), 1)
      << "walk back " << c.name();
  for (const auto& [name, x] : oracle_gradients(c, in, g))
    EXPECT_LT(rounding_ratio(actual.at("d" + name), x, roundings(c), name == "h_NC" ? kStorage<T> : 0), 1)
        << "d" << name << " " << c.name();
}

TEST(Residual, AddAndNorm) {
  for (Index C : {1, 2, 7, 8, 16, 31, 33})
    for (Index N : {1, 5, 70}) check<float>({.rule = Rule::kAdd, .N = N, .D = 1, .C = C});
}

TEST(Residual, DeltaEveryWidthAndChannelCount) {
  // From two features up: with one, the direction is a constant and dh is nothing but cancellation.
  for (Index C : {2, 3, 8, 15, 16, 17, 35})
    for (Index D : {1, 2, 3, 4, 5, 8}) check<float>({.N = 3, .D = D, .C = C});
  check<float>({.N = 2, .D = 16, .C = 9});
}

TEST(Residual, EveryRuleAndValueBranch) {
  for (Rule rule : {Rule::kDelta, Rule::kWriteOnly})
    for (Value value : {Value::kSigmoid, Value::kBiased, Value::kLinear})
      for (Index D : {1, 4}) check<float>({.rule = rule, .value = value, .D = D});
}

TEST(Residual, EachPartAlone) {
  for (Rule rule : {Rule::kAdd, Rule::kDelta, Rule::kWriteOnly}) {
    const Index D = rule == Rule::kAdd ? 1 : 3;
    check<float>({.rule = rule, .D = D, .reads = false});
    check<float>({.rule = rule, .D = D, .writes = false});
  }
}

TEST(Residual, Bf16Activations) {
  for (Rule rule : {Rule::kAdd, Rule::kDelta, Rule::kWriteOnly})
    check<bf16>({.rule = rule, .D = rule == Rule::kAdd ? 1 : 4});
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
  const Buffer<float> mix_DC(normals(D * C, 1)), norm_C(normals(C, 2)), dcontext_NC(normals(N * C, 3));
  Buffer<float> state_NDC(normals(N * D * C, 4)), context_NC(N * C), rstd_N(N),
      scratch(residual_bwd_scratch(D, C, 0));
  const ReadFwd<float> fwd{.mix_DC = mix_DC.data(),
                           .norm_C = norm_C.data(),
                           .context_NC = context_NC.data(),
                           .rstd_N = rstd_N.data()};
  residual_fwd<float>(state_NDC.data(), nullptr, &fwd, N, D, C, Exec{});
  ReadBwd<float> bwd{.mix_DC = mix_DC.data(),
                     .norm_C = norm_C.data(),
                     .rstd_N = rstd_N.data(),
                     .dcontext_NC = dcontext_NC.data()};
  Buffer<float> added_NDC(N * D * C), fresh_NDC(normals(N * D * C, 5));
  residual_bwd<float>(state_NDC.data(), added_NDC.data(), &bwd, nullptr, scratch.data(), N, D, C, Exec{});
  bwd.dstate_mode = Write::kOverwrite;
  residual_bwd<float>(state_NDC.data(), fresh_NDC.data(), &bwd, nullptr, scratch.data(), N, D, C, Exec{});
  EXPECT_EQ(fresh_NDC.values(), added_NDC.values());
}

// A tiny sublayer output: the guard keeps k finite, its gradient too.
TEST(Residual, TinyDirectionsAreGuarded) {
  const Case c{.N = 2, .D = 2, .C = 6};
  Tensors in = inputs<float>(c);
  for (Index i = 0; i < c.C; ++i) in["h_NC"][i] = 0;               // first token: h = 0
  for (Index i = c.C; i < 2 * c.C; ++i) in["h_NC"][i] *= 0x1p-20;  // second: |h| near eps_k
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
  write_only.rule = Rule::kWriteOnly;
  const Tensors no_erase = run<float>(write_only, in, g);
  EXPECT_GT(rounding_ratio(no_erase.at("state_NDC"), oracle_forward(c, in).at("state_NDC"), roundings(c)), 1);
  for (const char* name : {"state_NDC", "h_NC", "beta_N"})
    EXPECT_TRUE(rejected(name, no_erase.at(std::string("d") + name)));

  // dh without the projection off k, rebuilt from the oracle's parts:
  //   dh + s k (k . dk)   with k . dk = dh_raw . k / s
  const auto k_NC = ref::direction(in.at("h_NC"), c.N, c.C);
  std::vector<double> unprojected_NC = actual.at("dh_NC");
  for (Index n = 0; n < c.N; ++n) {
    double norm = 0;
    for (Index i = 0; i < c.C; ++i) norm += in.at("h_NC")[n * c.C + i] * in.at("h_NC")[n * c.C + i];
    double k_dk = 0;
    for (Index d = 0; d < c.D; ++d) {
      const double a = actual.at("dv_ND")[n * c.D + d];  // beta (k . g_d)
      k_dk += a * (in.at("v_ND")[n * c.D + d] - 2 * actual.at("readout_ND")[n * c.D + d]);
    }
    for (Index i = 0; i < c.C; ++i) unprojected_NC[n * c.C + i] += k_NC[n * c.C + i] * k_dk / std::sqrt(norm);
  }
  EXPECT_TRUE(rejected("h_NC", unprojected_NC));

  // dX without the erase's own gradient, - beta (k.g) k.
  std::vector<double> dstate_NDC = actual.at("dstate_NDC");
  for (Index n = 0; n < c.N; ++n)
    for (Index d = 0; d < c.D; ++d)
      for (Index i = 0; i < c.C; ++i)
        dstate_NDC[(n * c.D + d) * c.C + i] += actual.at("dv_ND")[n * c.D + d] * k_NC[n * c.C + i];
  EXPECT_TRUE(rejected("state_NDC", dstate_NDC));

  // A sign, and one dropped token in a sum over tokens.
  for (const char* name : {"norm_C", "mix_DC", "gate_w_C", "gate_b", "value_w_DC", "value_b_D"}) {
    std::vector<double> flipped = actual.at(std::string("d") + name);
    flipped[0] = -flipped[0];
    EXPECT_TRUE(rejected(name, flipped)) << name;
  }
  Case shorter = c;
  shorter.N = c.N - 1;
  const Tensors fewer = run<float>(shorter, inputs<float>(shorter), output_gradients(shorter));
  for (const char* name : {"norm_C", "mix_DC", "gate_w_C", "value_w_DC"})
    EXPECT_TRUE(rejected(name, fewer.at(std::string("d") + name))) << name;
}

}  // namespace
}  // namespace ddl::residual_pass_test
