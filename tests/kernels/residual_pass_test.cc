// The residual pass against the oracle: forward, and every gradient by complex step.
#include "kernels/residual_pass.h"

#include <map>
#include <string>

#include "kernels/kernel_test.h"
#include "model/residual/delta_coefficients.h"
#include "ref/ops.h"

namespace ddl::residual_pass_test {
namespace {

template <class Num>
using Named = std::map<std::string, std::vector<Num>>;
using Tensors = Named<double>;

// The gradients of every input of `forward`, a function from named tensors to named tensors, for the loss
//   sum over outputs of g . output
// g: what arrives as gradient of each output.
template <class Forward>
Tensors oracle_gradients(const Tensors& in, const Tensors& g, const Forward& forward) {
  Named<Complex> z;
  for (const auto& [name, x] : in) z[name] = complexify(x);
  Tensors gradients;
  for (const auto& [name, x] : in)
    gradients[name] = oracle_gradient(x, [&, &name = name](const std::vector<Complex>& moved) {
      Named<Complex> at = z;
      at[name] = moved;
      const auto out = forward(at);
      Complex loss = 0;
      for (const auto& [output, weights] : g) loss += weighted_sum(out.at(output), weights);
      return loss;
    });
  return gradients;
}

// Steering numbers as the kernel sees them: N rows of R, in rows that are two floats longer. All start as NaN,
// so that a number that was never written is seen; the floats between the rows must stay NaN.
class Steering {
 public:
  Steering(Index N, Index R) : stride(R + 2), N_(N), R_(R), rows_(N * stride) {
    std::fill_n(rows_.data(), rows_.size(), std::numeric_limits<float>::quiet_NaN());
  }
  const Index stride;

  float* data() { return rows_.data(); }
  void put(Index first, const std::vector<double>& values) {
    const Index count = std::ssize(values) / N_;
    for (Index n = 0; n < N_; ++n)
      for (Index j = 0; j < count; ++j)
        rows_[n * stride + first + j] = static_cast<float>(values[n * count + j]);
  }
  std::vector<double> take(Index first, Index count) const {
    std::vector<double> values;
    for (Index n = 0; n < N_; ++n)
      for (Index j = 0; j < count; ++j) values.push_back(rows_[n * stride + first + j]);
    return values;
  }
  std::vector<double> all() const { return take(0, R_); }
  bool intact() const {
    bool untouched = true;
    for (double x : take(R_, stride - R_)) untouched = untouched && std::isnan(x);
    return untouched && rows_.intact();
  }

 private:
  Index N_, R_;
  Buffer<float> rows_;
};

// The buffers of a set of named tensors; a name that is not there has a null pointer.
class Buffers {
 public:
  explicit Buffers(const Tensors& tensors) {
    for (const auto& [name, x] : tensors) buffers_.emplace(name, Buffer<float>(x));
  }
  static Buffers zeros_like(const Tensors& tensors) {
    Tensors zeros;
    for (const auto& [name, x] : tensors) zeros[name].resize(x.size());
    return Buffers(zeros);
  }
  float* operator[](const std::string& name) {
    return buffers_.count(name) ? buffers_.at(name).data() : nullptr;
  }
  std::vector<double> values(const std::string& name) const { return buffers_.at(name).values(); }
  void add_to(Tensors& tensors, const std::string& prefix) const {
    for (const auto& [name, buffer] : buffers_) tensors[prefix + name] = buffer.values();
  }
  bool intact() const {
    return std::all_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b.second.intact(); });
  }

 private:
  std::map<std::string, Buffer<float>> buffers_;
};

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
Named<Num> oracle_forward(const Case& c, Named<Num> in) {
  Named<Num> out;
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
  return oracle_gradients(in, g, [&](const Named<Complex>& at) { return oracle_forward(c, at); });
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

// The longest chain of roundings: a few sums over C and D, then (weights) one over N.
Index roundings(Index N, Index D, Index C) { return 4 * C * D + N + 64; }
Index roundings(const Case& c) { return roundings(c.N, c.D, c.C); }

template <class T>
constexpr double kStorage = std::is_same_v<T, bf16> ? kBf16Epsilon : 0;

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
  Index roundings() const { return residual_pass_test::roundings(N, D, C) + steering_numbers(); }
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
Named<Num> oracle_forward(const BranchCase& c, Named<Num> in) {
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
  return oracle_gradients(in, g, [&](const Named<Complex>& at) { return oracle_forward(c, at); });
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

// Rules of the test's own, in a pass that only writes: the contract of Coefficients.

// A rule that uses all that a rule may. Steering numbers a_0, ..., a_{D-1}, b. With q = |h|^2, p_d = h . X_d,
//   s      = 1 / sqrt(1 + q)            ds / dq = - s^3 / 2
//   r_d    = s p_d
//   coef_d = a_d (s - b r_d^2 s^2)   =  a_d (s - b p_d^2 s^4)
// so that
//   d coef_d / d a_d = s - b r_d^2 s^2
//   d coef_d / d b   = - a_d r_d^2 s^2
//   d coef_d / d p_d = - 2 a_d b r_d s^3
//   d coef_d / d q   = - a_d (1 - 4 b r_d^2 s) s^3 / 2
class CurvedRule final : public Coefficients {
 public:
  enum class Missing { kNothing, kErase, kAlong };  // the mutants
  explicit CurvedRule(Missing missing = Missing::kNothing) : missing_(missing) {}

  bool reads_state() const override { return true; }
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index D) const override { return D + 1; }  // r_0, ..., r_{D-1}, s

  void forward(const Forward& t) const override {
    const float s = 1 / std::sqrt(1 + t.h_square), b = t.steer[t.D];
    for (Index d = 0; d < t.D; ++d) {
      const float r = t.h_dot_X_D[d] * s;
      t.saved[d] = r;
      t.coef_D[d] = t.steer[d] * (s - b * r * r * s * s);
    }
    t.saved[t.D] = s;
  }

  void backward(Backward& t) const override {
    const float b = t.steer[t.D], s = t.saved[t.D];
    float db = 0, along = 0;
    for (Index d = 0; d < t.D; ++d) {
      const float a = t.steer[d], r = t.saved[d], A = t.h_dot_G_D[d];
      t.coef_D[d] = a * (s - b * r * r * s * s);
      t.dsteer[d] = A * (s - b * r * r * s * s);
      db -= A * a * r * r * s * s;
      t.erase_D[d] = missing_ == Missing::kErase ? 0 : 2 * A * a * b * r * s * s * s;
      along += A * a * (1 - 4 * b * r * r * s) * s * s * s;
    }
    t.dsteer[t.D] = db;
    t.along = missing_ == Missing::kAlong ? 0 : along;
  }

 private:
  const Missing missing_;
};

// A rule that uses as little as a rule can: coef_d = steer_d. It saves nothing and leaves `along` alone.
class PlainRule final : public Coefficients {
 public:
  Index saved_per_token(Index) const override { return 0; }
  void forward(const Forward& t) const override { std::copy_n(t.steer, t.D, t.coef_D); }
  void backward(Backward& t) const override {
    std::copy_n(t.h_dot_G_D, t.D, t.dsteer);
    std::copy_n(t.steer, t.D, t.coef_D);
    std::fill_n(t.erase_D, t.D, 0.0f);
  }
};

// coef_d from a token's steering numbers, q = |h|^2 and p = h . X_d.
struct CurvedFormula {
  template <class Num>
  Num operator()(const Num* steer, Index d, Index D, Num q, Num p) const {
    const Num s = Num(1) / sqrt(Num(1) + q);
    return steer[d] * (s - steer[D] * p * p * s * s * s * s);
  }
};
struct PlainFormula {
  template <class Num>
  Num operator()(const Num* steer, Index d, Index, Num, Num) const {
    return steer[d];
  }
};
struct DeltaFormula {  // beta (v_d - s p) s
  template <class Num>
  Num operator()(const Num* steer, Index d, Index, Num q, Num p) const {
    const Num s = Num(1) / sqrt(q + Num(1e-10));
    return steer[0] * (steer[1 + d] - s * p) * s;
  }
};

struct Shape {
  Index N = 5, D = 4, C = 19, R = 5;
};

template <class T>
Tensors inputs(const Shape& c) {
  return {{"state_NDC", normals(c.N * c.D * c.C, 41)},
          {"h_NC", normals<T>(c.N * c.C, 42)},
          {"steer_NR", normals(c.N * c.R, 43)}};
}

Tensors output_gradients(const Shape& c) { return {{"state_NDC", normals(c.N * c.D * c.C, 44)}}; }

// X_d + coef_d h
template <class Num, class Formula>
Named<Num> oracle_forward(const Shape& c, const Formula& formula, const Named<Num>& in) {
  std::vector<Num> X_NDC = in.at("state_NDC");
  for (Index n = 0; n < c.N; ++n) {
    const Num *h_C = in.at("h_NC").data() + n * c.C, *steer_R = in.at("steer_NR").data() + n * c.R;
    Num q(0);
    for (Index i = 0; i < c.C; ++i) q += h_C[i] * h_C[i];
    for (Index d = 0; d < c.D; ++d) {
      Num* X_C = X_NDC.data() + (n * c.D + d) * c.C;
      Num p(0);
      for (Index i = 0; i < c.C; ++i) p += h_C[i] * X_C[i];
      const Num coef = formula(steer_R, d, c.D, q, p);
      for (Index i = 0; i < c.C; ++i) X_C[i] += coef * h_C[i];
    }
  }
  return {{"state_NDC", X_NDC}};
}

// What the backward pass has of the state before the write.
struct Before {
  std::vector<double> stored_NDC = {};  // empty: nothing, it walks back
  bool spoilt = false;                  // the state after the write is lost: NaN
};

// Outputs under their names, gradients of the inputs under "d" + name, the state that the backward pass leaves
// under "state_before_NDC".
template <class T>
Tensors run(const Shape& c, const Coefficients& rule, const Tensors& in, const Tensors& g,
            const Before& before = {}) {
  const Exec ex{.threads = 2};
  const Index Q = rule.saved_per_token(c.D);
  Buffer<float> state_NDC(in.at("state_NDC")), dstate_NDC(g.at("state_NDC")), saved_NQ(c.N * Q);
  const Buffer<float> stored_NDC(before.stored_NDC);
  const Buffer<T> h_NC(in.at("h_NC"));
  Buffer<T> dh_NC(h_NC.size());
  Steering steer(c.N, c.R), dsteer(c.N, c.R);
  steer.put(0, in.at("steer_NR"));

  const WriteFwd<T> write{.coefficients = &rule,
                          .h_NC = h_NC.data(),
                          .steer_NR = steer.data(),
                          .steer_stride = steer.stride,
                          .saved_NQ = Q > 0 ? saved_NQ.data() : nullptr};
  residual_fwd<T>(state_NDC.data(), &write, nullptr, c.N, c.D, c.C, ex);
  Tensors result;
  result["state_NDC"] = state_NDC.values();

  if (before.spoilt) std::fill_n(state_NDC.data(), state_NDC.size(), std::numeric_limits<float>::quiet_NaN());
  const WriteBwd<T> write_bwd{.coefficients = &rule,
                              .h_NC = h_NC.data(),
                              .steer_NR = steer.data(),
                              .steer_stride = steer.stride,
                              .saved_NQ = Q > 0 ? saved_NQ.data() : nullptr,
                              .stored_state_NDC = stored_NDC.size() > 0 ? stored_NDC.data() : nullptr,
                              .dh_NC = dh_NC.data(),
                              .dsteer_NR = dsteer.data()};
  // A pass without a read needs no scratch.
  residual_bwd<T>(state_NDC.data(), dstate_NDC.data(), nullptr, &write_bwd, nullptr, c.N, c.D, c.C, ex);

  result["state_before_NDC"] = state_NDC.values();
  result["dstate_NDC"] = dstate_NDC.values();
  result["dh_NC"] = dh_NC.values();
  result["dsteer_NR"] = dsteer.all();
  EXPECT_EQ(stored_NDC.values(), before.stored_NDC);
  EXPECT_TRUE(state_NDC.intact() && dstate_NDC.intact() && saved_NQ.intact() && dh_NC.intact());
  EXPECT_TRUE(steer.intact() && dsteer.intact());
  return result;
}

// The names of the results that the oracle rejects.
template <class T, class Formula>
std::vector<std::string> rejected(const Shape& c, const Coefficients& rule, const Formula& formula) {
  const Tensors in = inputs<T>(c), g = output_gradients(c), actual = run<T>(c, rule, in, g);
  Tensors truth = oracle_forward(c, formula, in);
  truth["state_before_NDC"] = in.at("state_NDC");
  const Tensors gradients =
      oracle_gradients(in, g, [&](const Named<Complex>& at) { return oracle_forward(c, formula, at); });
  for (const auto& [name, x] : gradients) truth["d" + name] = x;
  std::vector<std::string> names;
  for (const auto& [name, x] : truth)
    if (!(rounding_ratio(actual.at(name), x, roundings(c.N, c.D, c.C), name == "dh_NC" ? kStorage<T> : 0) <
          1))
      names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

TEST(ResidualCoefficients, AnyRuleGetsItsGradients) {
  for (Index C : {2, 3, 8, 16, 19, 33})
    for (Index D : {1, 2, 4, 5, 16}) {
      const auto where = fmt::format("D {} C {}", D, C);
      const Shape c{.N = 3, .D = D, .C = C, .R = D + 1};
      EXPECT_EQ(rejected<float>(c, CurvedRule(), CurvedFormula()), Names()) << where;
      EXPECT_EQ(rejected<bf16>(c, CurvedRule(), CurvedFormula()), Names()) << where;
      const Shape plain{.N = 3, .D = D, .C = C, .R = D};
      EXPECT_EQ(rejected<float>(plain, PlainRule(), PlainFormula()), Names()) << where;
      EXPECT_EQ(rejected<bf16>(plain, PlainRule(), PlainFormula()), Names()) << where;
    }
  EXPECT_EQ(rejected<float>({}, DeltaCoefficients(DeltaCoefficients::Erase::kYes), DeltaFormula()), Names());
}

// A rule that forgets a term of its gradient is seen, and where: the erase term is in dX and dh, the other in
// dh alone.
TEST(ResidualCoefficients, MissingTermsAreSeen) {
  const CurvedRule no_erase(CurvedRule::Missing::kErase), no_along(CurvedRule::Missing::kAlong);
  EXPECT_EQ(rejected<float>({}, no_erase, CurvedFormula()), Names({"dh_NC", "dstate_NDC"}));
  EXPECT_EQ(rejected<float>({}, no_along, CurvedFormula()), Names({"dh_NC"}));
  EXPECT_EQ(rejected<bf16>({}, no_erase, CurvedFormula()), Names({"dh_NC", "dstate_NDC"}));
  EXPECT_EQ(rejected<bf16>({}, no_along, CurvedFormula()), Names({"dh_NC"}));
}

// Another formula than the rule's: everything is seen.
TEST(ResidualCoefficients, AnotherRuleIsSeen) {
  EXPECT_EQ(rejected<float>({}, CurvedRule(), DeltaFormula()),
            Names({"dh_NC", "dstate_NDC", "dsteer_NR", "state_NDC"}));
}

bool any_nan(const std::vector<double>& x) {
  return std::any_of(x.begin(), x.end(), [](double value) { return std::isnan(value); });
}

// Given the true state before the write, the backward pass does not walk back: it needs no state after it.
template <class T>
void check_stored_state(const Coefficients& rule, const Shape& c) {
  const Tensors in = inputs<T>(c), g = output_gradients(c);
  const auto& true_NDC = in.at("state_NDC");
  const Tensors walked = run<T>(c, rule, in, g);
  const Tensors stored = run<T>(c, rule, in, g, {.stored_NDC = true_NDC});
  const double storage = 2 * kStorage<T>;  // both are rounded
  for (const auto& [name, x] : walked)
    EXPECT_LT(rounding_ratio(stored.at(name), x, roundings(c.N, c.D, c.C), name == "dh_NC" ? storage : 0), 1)
        << name;
  EXPECT_EQ(stored.at("state_before_NDC"), true_NDC);

  EXPECT_EQ(run<T>(c, rule, in, g, {.stored_NDC = true_NDC, .spoilt = true}), stored);
  const Tensors lost = run<T>(c, rule, in, g, {.spoilt = true});
  EXPECT_TRUE(any_nan(lost.at("dh_NC")));
  EXPECT_TRUE(any_nan(lost.at("state_before_NDC")));

  // The mutant: the copy is of the state after the write. A rule that erases sees it in dh.
  if (!rule.reads_state()) return;
  const Tensors wrong = run<T>(c, rule, in, g, {.stored_NDC = walked.at("state_NDC")});
  EXPECT_GT(rounding_ratio(wrong.at("dh_NC"), walked.at("dh_NC"), roundings(c.N, c.D, c.C), storage), 1);
}

TEST(ResidualStoredState, ReplacesTheWalkBack) {
  const DeltaCoefficients delta(DeltaCoefficients::Erase::kYes), write_only(DeltaCoefficients::Erase::kNo);
  const CurvedRule curved;
  for (const Coefficients* rule : std::initializer_list<const Coefficients*>{&delta, &write_only, &curved})
    for (Index D : {1, 4, 5}) {
      check_stored_state<float>(*rule, {.D = D, .R = D + 1});
      check_stored_state<bf16>(*rule, {.D = D, .R = D + 1});
    }
}

}  // namespace
}  // namespace ddl::residual_pass_test
