// The whole model: golden numbers from an independent derivation, gradients of every parameter, causality,
// and what each value branch gives before the first step.
#include "ref/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ref/tiny_model.h"
#include "ref/tolerance.h"

namespace ddl::ref::whole_model {
namespace {

using Real = std::vector<double>;
constexpr Index B = kTinyBatch, T = kTinyTime, N = B * T;

// The longest chain of roundings in the tiny model: about 60 for each of its 4 sublayers, 40 for embedding
// and head.
constexpr Index kModelRoundings = 4 * 60 + 40;

Real flatten(const Parameters<double>& parameters) {
  Real flat;
  for (const auto& [name, values] : parameters) flat.insert(flat.end(), values.begin(), values.end());
  return flat;
}

double norm(const Real& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class Tiny : public testing::TestWithParam<std::string> {
 protected:
  const Config config = tiny_config(GetParam());
  Parameters<double> parameters = formula_parameters(config);
  const std::vector<std::int32_t> tokens = tiny_tokens(), targets = tiny_targets();
};

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Variants, Tiny, testing::ValuesIn(tiny_names()), test_name);

// golden numbers

// From a float64 derivation of the same equations by other means: state as [C][D], the shortcut as a matrix,
// the direction in its RMS form, rotation by complex multiplication, library convolutions, reverse-mode
// gradients.
struct Golden {
  const char* name;
  Index count;          // numbers in all parameters
  double loss;          // for the tokens, targets and parameters of tiny_model.h
  double slope;         // sum_i cos(0.61 i) dL/dp_i over all parameters in name order
  double norm;          // |dL/dp|
  double wte_7, c_q_5;  // dL/d transformer.wte.weight[7] and transformer.h.1.attn.c_q.weight[5]
};

const Golden kGolden[] = {
    {"baseline", 748, 2.42466704079599, 1.09212156545975, 1.43438050459059, 0.218519700877243,
     -0.00923628898872106},
    {"ddl-dv1/sigmoid", 804, 2.41284327926012, -1.52327284952478, 33.3050406204531, 0.0397281107147482,
     0.0364382568756496},
    {"ddl-tc/sigmoid", 1031, 2.38184668750246, 0.918916732915791, 2.45865085843053, 0.191864750100613,
     9.58796998010815e-05},
    {"ddl-cc/sigmoid", 968, 2.63752805143157, -6.22924456538408, 15.9090995435029, 0.249691147594176,
     -0.0168000887156996},
    {"wo-cc/sigmoid", 968, 2.63286065801245, 0.979798104793356, 10.0375123771392, 0.162502121611855,
     -0.00660186670174005},
    {"ddl-dv1/biased", 804, 2.412787670095, -6.79727827066209, 43.4610031491531, -0.0262464520696347,
     0.00918501817593862},
    {"ddl-tc/biased", 1031, 2.8286394893817, 5.98282474383025, 20.2284616315843, -0.136735659461019,
     -0.00384916505792733},
    {"ddl-cc/biased", 968, 2.66024817772951, 2.99078478444524, 16.219736237223, 0.182731343308755,
     0.130494551723428},
    {"wo-cc/biased", 968, 2.54349389600719, 1.70961549559566, 5.27512567084104, -0.0183133560119046,
     -0.0181785107361176},
    {"ddl-dv1/linear", 800, 2.47041111834017, -0.613689051996368, 11.9368664975884, -0.0776971993954914,
     -0.00372138763623184},
    {"ddl-tc/linear", 1019, 2.67778622387663, 5.33403588423542, 9.08840490049033, 0.172170201412015,
     -0.00544861647790057},
    {"ddl-cc/linear", 956, 2.72841548348887, -5.00328862241428, 34.0076981997505, 0.0457917095922615,
     0.115154303115116},
    {"wo-cc/linear", 956, 2.68267212078203, 2.59610659477612, 8.95145589604538, -0.200177201348501,
     0.0308111150553598},
    {"ddl-dv1/constant", 776, 2.43806202021769, 0.927294765597558, 17.0162419228856, -0.0640077759436193,
     -0.0199062562487304},
    {"ddl-tc/constant", 947, 2.41228843864136, -24.5134368951773, 100.7523190409, -0.13767565910502,
     0.215420405913391},
    {"ddl-cc/constant", 884, 2.76493839088356, -1.5661247400556, 11.5904356736485, 0.0289905177930289,
     -0.0944857123676579},
    {"wo-cc/constant", 884, 2.78948260161534, -0.53959855359961, 14.4184180412834, 0.00778011565563194,
     -0.367810490593395},
    {"wo-dv1/sigmoid", 804, 2.39527308337698, -0.432076817878295, 13.7355475221786, 0.288819933703082,
     -0.0175198926231517},
    {"wo-tc/sigmoid", 1031, 2.42479852365269, 2.11392601032907, 3.56950497433247, 0.112409871134116,
     -0.000614064576136469},
    {"ddl-cc-noec/sigmoid", 914, 2.35405407459066, 0.0269494463053226, 6.94811485673373, -0.084622229248301,
     -0.00129937644201866},
    {"ddl-tc-noec/sigmoid", 977, 2.47436031749328, -2.95235573347865, 12.335137425129, -0.107220631108115,
     -0.0679991225836506},
    {"ddl-cc/sigmoid/two_layer", 1084, 2.86090303276366, -5.8008009169623, 15.84792765377, -0.262928122419031,
     -0.000392287676568279},
    {"ddl-cc/sigmoid/per_sublayer", 1004, 2.67354806893441, 0.860005035821069, 16.8478104820421,
     -0.485898964376637, 0.00370753225444991},
    {"ddl-tc/sigmoid/per_sublayer", 1109, 2.70377835218291, -1.35881298754722, 19.9261805046132,
     0.0967401743264973, -0.00534060683765202},
    {"ddl-cc/sigmoid/eps_width", 968, 2.77837826334014, -1.59856931636927, 10.491521729164, 0.182935790916032,
     -0.0294220242257454},
    {"ddl-cc/sigmoid/eps", 968, 2.66526027014953, -4.91569622028142, 13.6129758265172, 0.201041004167385,
     0.0148065360285163},
    {"ddl-cc/sigmoid/scale", 968, 2.43916199981657, -1.06122451257608, 3.37069755967701, 0.0534077770810195,
     -0.0039874122447574},
};

// Distance of (loss, gradient) from the golden numbers in units of what rounding allows. A perturbation of
// every number by eps moves the loss by |g||p| eps at most, and the gradient by second derivatives of order
// |g|(1 + |g|).
double golden_distance(const Golden& golden, double loss, const Real& g, const Real& p, double wte_7,
                       double c_q_5) {
  double slope = 0;
  for (std::size_t i = 0; i < g.size(); ++i) slope += std::cos(0.61 * static_cast<double>(i)) * g[i];
  const double loss_tolerance = rounding_tolerance(golden.loss + golden.norm * norm(p), kModelRoundings);
  const double slope_tolerance = rounding_tolerance((1 + golden.norm) * golden.norm, kModelRoundings);
  return std::max(
      {std::abs(loss - golden.loss) / loss_tolerance, std::abs(slope - golden.slope) / slope_tolerance,
       std::abs(norm(g) - golden.norm) / slope_tolerance, std::abs(wte_7 - golden.wte_7) / slope_tolerance,
       std::abs(c_q_5 - golden.c_q_5) / slope_tolerance});
}

TEST_P(Tiny, AgreesWithAnIndependentDerivation) {
  const auto golden = std::find_if(std::begin(kGolden), std::end(kGolden),
                                   [&](const Golden& g) { return GetParam() == g.name; });
  ASSERT_NE(golden, std::end(kGolden)) << "no golden numbers for " << GetParam();
  const double value = loss(config, parameters, tokens, targets, B, T);
  const Parameters<double> g = loss_gradient(config, parameters, tokens, targets, B, T);
  const Real p = flatten(parameters), flat = flatten(g);
  ASSERT_EQ(static_cast<Index>(flat.size()), golden->count);
  const double wte_7 = g.at("transformer.wte.weight")[7], c_q_5 = g.at("transformer.h.1.attn.c_q.weight")[5];
  EXPECT_LE(golden_distance(*golden, value, flat, p, wte_7, c_q_5), 1);
  EXPECT_GT(golden_distance(*golden, value * (1 + 1e-9), flat, p, wte_7, c_q_5), 1);
  Real wrong = flat;
  wrong[wrong.size() / 2] += 1e-6 * (1 + golden->norm);
  EXPECT_GT(golden_distance(*golden, value, wrong, p, wte_7, c_q_5), 1);
  const Parameters<double> by_tape = loss_gradient_by_tape(config, parameters, tokens, targets, B, T);
  EXPECT_LE(golden_distance(*golden, value, flatten(by_tape), p, by_tape.at("transformer.wte.weight")[7],
                            by_tape.at("transformer.h.1.attn.c_q.weight")[5]),
            1);

  // The other number types give the same loss, each to its own rounding.
  const double magnitude = value + norm(p) * norm(flat);
  EXPECT_NEAR(loss(config, convert_parameters<Complex>(parameters), tokens, targets, B, T).real(), value,
              rounding_tolerance(magnitude, kModelRoundings));
  EXPECT_NEAR(loss(config, convert_parameters<float>(parameters), tokens, targets, B, T), value,
              rounding_tolerance(magnitude, kModelRoundings, 0x1p-23));
}

TEST(Golden,
     OtherRulesMissTheNumbers) {  // the numbers tell delta from write-only and every option from its absence
  for (const Golden& a : kGolden)
    for (const Golden& b : kGolden) {
      if (a.name == b.name) continue;
      EXPECT_GT(std::abs(a.loss - b.loss), 1e-6) << a.name << " and " << b.name;
    }
}

// gradients

TEST_P(Tiny, ComplexStepAgreesWithFiniteDifferencesForEveryParameter) {
  const Parameters<double> truth = loss_gradient(config, parameters, tokens, targets, B, T);
  const auto evaluate = [&] { return loss(config, parameters, tokens, targets, B, T); };
  Index rejected = 0, considered = 0;
  for (auto& [name, values] : parameters)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Slope slope = central_difference(evaluate, values[i], kModelRoundings);
      const double g = truth.at(name)[i];
      EXPECT_NEAR(slope.value, g, slope.tolerance) << name << "[" << i << "]";
      if (std::abs(g) < 1e-3) continue;
      ++considered;
      rejected += std::abs(slope.value - 1.01 * g) > slope.tolerance;
    }
  for (const auto& [name, g] : truth) EXPECT_GT(largest(g), 1e-9) << name << " has no effect";
  EXPECT_GT(considered, 100);
  EXPECT_GT(rejected, considered * 9 / 10) << "the check cannot fail";
}

// structure

TEST_P(Tiny, LaterTokensNeverChangeEarlierLogits) {
  const Index V = config.vocab;
  const Real before = logits(config, parameters, tokens, B, T);
  for (Index t = 0; t < T; ++t) {
    std::vector<std::int32_t> changed = tokens;
    changed[t] = narrow<std::int32_t>((tokens[t] + 1) % V);  // in the first sequence
    const Real after = logits(config, parameters, changed, B, T);
    Index first = N;
    for (Index n = N - 1; n >= 0; --n)
      if (!std::equal(before.begin() + n * V, before.begin() + (n + 1) * V, after.begin() + n * V)) first = n;
    EXPECT_EQ(first, t);  // bit for bit: nothing before t moves, t itself does
    EXPECT_TRUE(std::equal(before.begin() + T * V, before.end(), after.begin() + T * V))
        << "the other sequence moved";
  }
}

TEST_P(Tiny, SequencesOfABatchAreIndependent) {
  const Index V = config.vocab;
  std::vector<std::int32_t> swapped(tokens.begin() + T, tokens.end());
  swapped.insert(swapped.end(), tokens.begin(), tokens.begin() + T);
  const Real z = logits(config, parameters, tokens, B, T), w = logits(config, parameters, swapped, B, T);
  EXPECT_TRUE(std::equal(z.begin(), z.begin() + T * V, w.begin() + T * V));
  EXPECT_TRUE(std::equal(z.begin() + T * V, z.end(), w.begin()));
  EXPECT_FALSE(std::equal(z.begin(), z.begin() + T * V, w.begin()));
  const Real alone =
      logits(config, parameters, std::vector<std::int32_t>(tokens.begin(), tokens.begin() + T), 1, T);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), z.begin()));
}

TEST_P(Tiny, TraceHoldsThePapersLaws) {
  Trace<double> trace;
  const Real z = logits(config, parameters, tokens, B, T, &trace);
  EXPECT_EQ(z, logits(config, parameters, tokens, B, T));
  ASSERT_EQ(static_cast<Index>(trace.sublayers.size()), 2 * config.layers);
  EXPECT_EQ(trace.sublayers[1].name, "transformer.h.0.mlp");
  if (config.write == Write::additive) return;
  const Index C = config.width, D = config.channels;
  const Real* before = &trace.first_state_NDC;
  for (const SublayerTrace<double>& s : trace.sublayers) {
    EXPECT_EQ(s.readout_ND, readout(*before, s.k_NC, N, D, C));
    const Real after = readout(s.state_NDC, s.k_NC, N, D, C);
    double worst_law = 0, worst_other = 0;
    for (Index n = 0; n < N; ++n) {
      EXPECT_GT(s.beta_N[n], 0);
      EXPECT_LT(s.beta_N[n], 2);
      double square = 0;  // |k|^2, a little below 1 because of the guard
      for (Index c = 0; c < C; ++c) square += s.k_NC[n * C + c] * s.k_NC[n * C + c];
      for (Index d = 0; d < D; ++d) {
        const Index i = n * D + d;
        EXPECT_EQ(s.discrepancy_ND[i], s.v_ND[i] - s.readout_ND[i]);
        // delta: v - k^T X' = (1 - beta |k|^2)(v - k^T X); write-only: k^T X' = k^T X + beta |k|^2 v
        const double delta = s.v_ND[i] - after[i] - (1 - s.beta_N[n] * square) * s.discrepancy_ND[i];
        const double write = after[i] - s.readout_ND[i] - s.beta_N[n] * square * s.v_ND[i];
        const bool is_delta = config.write == Write::delta;
        worst_law = std::max(worst_law, std::abs(is_delta ? delta : write));
        worst_other = std::max(worst_other, std::abs(is_delta ? write : delta));
      }
    }
    const double magnitude = largest(*before) + largest(s.state_NDC) + largest(s.v_ND);
    EXPECT_LE(worst_law, rounding_tolerance(magnitude * static_cast<double>(C), 4 * C)) << s.name;
    EXPECT_GT(worst_other, 1e-3) << s.name;
    before = &s.state_NDC;
  }
}

TEST(Model, CompressorThatAveragesSeesTheEmbeddingFirst) {
  for (const char* variant : {"ddl-cc", "ddl-tc", "ddl-cc-noec", "wo-tc"}) {
    const Config config = tiny_config(variant);
    Parameters<double> parameters = formula_parameters(config);
    const Index C = config.width, D = config.channels;
    if (config.expand == Expand::conv)
      parameters["input_embed.conv.weight"] = identity_embedding_conv<double>(D, C, config.embed_kernel);
    Real& weight = parameters["transformer.h.0.compress.weight"];
    if (config.read == Read::channel) {
      weight = Real(D * C, 1.0 / static_cast<double>(D));
    } else {
      weight = identity_embedding_conv<double>(D, C, config.compress_kernel);
      parameters["transformer.h.0.compress.read"] = Real(D, 1.0 / static_cast<double>(D));
    }
    Trace<double> trace;
    logits(config, parameters, tiny_tokens(), B, T, &trace);
    const Real x = embedding(parameters["transformer.wte.weight"], tiny_tokens(), N, config.vocab, C);
    EXPECT_EQ(trace.first_state_NDC, repeat_channels(x, N, D, C)) << variant;
    EXPECT_LE(distance(trace.sublayers[0].x_in_NC, x), rounding_tolerance(1, 2 * D)) << variant;
  }
}

// the value branch before the first step

// Drawn as a run draws it: embedding N(0, 0.02), matrices N(0, 0.5/sqrt(C)), biases 0 (value: 0, or 2 if
// `biased`; gate: logit(1/2) = 0), norms 1, compressors an average, EC the identity.
Parameters<double> drawn_parameters(const Config& config) {
  Parameters<double> parameters;
  const double deviation = 0.5 / std::sqrt(static_cast<double>(config.width));
  const Index C = config.width, D = config.channels;
  for (const auto& [name, count] : parameter_counts(config)) {
    Real& p = parameters[name] = normals(count, name, name == "transformer.wte.weight" ? 0.02 : deviation);
    const bool compressor = name.find("compress") != std::string::npos || name.starts_with("readout");
    if (name.ends_with("rms.weight") || name.find("ln_") != std::string::npos) p.assign(count, 1.0);
    if (name.ends_with(".bias"))
      p.assign(count, name.find("v_proj") != std::string::npos && config.value == Value::biased ? 2.0 : 0.0);
    if (name == "input_embed.conv.weight") p = identity_embedding_conv<double>(D, C, config.embed_kernel);
    if (compressor && config.read == Read::token)
      p = identity_embedding_conv<double>(D, C, config.compress_kernel);
    if ((compressor && config.read == Read::channel) || name.ends_with(".read"))
      p.assign(count, 1.0 / static_cast<double>(D));
  }
  return parameters;
}

TEST(StepZero, ValueBranches) {
  for (const char* variant : {"ddl-dv1", "ddl-cc", "ddl-tc", "wo-cc"})
    for (const Value value : {Value::sigmoid, Value::biased, Value::linear, Value::constant}) {
      Config config;
      config.layers = 2, config.heads = 2, config.head_size = 16, config.width = 64, config.mlp = 64,
      config.vocab = 64, config.channels = 4;
      config = with_variant(config, variant);
      config.value = value;
      const Parameters<double> parameters = drawn_parameters(config);
      const Index tokens_in = 128;
      std::vector<std::int32_t> tokens;
      for (Index n = 0; n < tokens_in; ++n) tokens.push_back(narrow<std::int32_t>(n % config.vocab));
      Trace<double> trace;
      logits(config, parameters, tokens, 2, tokens_in / 2, &trace);
      for (const SublayerTrace<double>& s : trace.sublayers) {
        double mean = 0, square = 0, input_square = 0;
        for (const double v : s.v_ND) mean += v / static_cast<double>(s.v_ND.size());
        for (const double v : s.v_ND) square += (v - mean) * (v - mean) / static_cast<double>(s.v_ND.size());
        const Real& input = value == Value::sigmoid ? s.x_in_NC : s.c_NC;
        for (const double x : input) input_square += x * x / static_cast<double>(input.size());
        const double centre = value == Value::linear ? 0 : 2, deviation = std::sqrt(square);
        // z = W x with W ~ N(0, 0.25/C) has deviation 0.5 rms(x); 4 sigmoid(z) = 2 + z + O(z^3).
        const double expected = value == Value::constant ? 0 : 0.5 * std::sqrt(input_square);
        // Tokens share W, so the D means are D draws of deviation `expected`: a statistical bound, four of
        // them wide.
        EXPECT_NEAR(mean, centre, 4 * expected + 1e-12) << variant << " " << s.name;
        EXPECT_LE(deviation, 2 * expected + 1e-12) << variant << " " << s.name;
        const double lowest = *std::min_element(s.v_ND.begin(), s.v_ND.end());
        const double highest = *std::max_element(s.v_ND.begin(), s.v_ND.end());
        if (value == Value::sigmoid) {
          EXPECT_GT(lowest, 0.5) << variant << " " << s.name;  // a steady positive sign
        }
        if (value == Value::linear) {  // both signs, which is why it learns late
          EXPECT_LT(lowest, 0) << variant << " " << s.name;
          EXPECT_GT(highest, 0) << variant << " " << s.name;
        }
        // The gate's logit has deviation 0.5 rms(c) = 0.5 around logit(1/2) = 0.
        for (const double beta : s.beta_N)
          EXPECT_LT(std::abs(logit(beta / 2)), 5 * 0.5) << variant << " " << s.name;
      }
      if (value == Value::sigmoid) {  // first sublayer: x_in is the embedding, so v = 2 +- 0.01
        for (const double v : trace.sublayers[0].v_ND) EXPECT_NEAR(v, 2, 5 * 0.5 * 0.02);
      }
    }
}

}  // namespace
}  // namespace ddl::ref::whole_model
