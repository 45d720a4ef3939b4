// The numbers of an audit against plain sums over the oracle's trace, and its form for every rule.
#include "audit/audit_model.h"

#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "audit/token_classes.h"
#include "audit/vectors.h"
#include "model/probe.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

TEST(AuditVectors, DotTakesEveryElement) {
  for (Index C = 0; C < 40; ++C) {
    std::vector<float> a, b;
    double expected = 0;
    for (Index c = 0; c < C; ++c) {
      a.push_back(static_cast<float>(c + 1)), b.push_back(static_cast<float>(2 * c - 5));
      expected += static_cast<double>((c + 1) * (2 * c - 5));
    }
    EXPECT_EQ(dot(a.data(), b.data(), C), expected) << C;
  }
}

TEST(AuditVectors, SpreadCountsDirections) {
  // Plus and minus along three axes, around a mean far away: three directions, and a large common part.
  const auto rows = [](std::vector<float> lengths, float mean) {
    std::vector<float> all;
    for (std::size_t axis = 0; axis < lengths.size(); ++axis)
      for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> row(20, 0.0f);
        row[axis] = sign * lengths[axis], row[19] += mean;
        all.insert(all.end(), row.begin(), row.end());
      }
    return all;
  };
  auto three = rows({2, 2, 2}, 6);
  const DirectionSpread equal = spread(three, 20, Exec{});
  EXPECT_NEAR(equal.effective_rank, 3, 1e-6);
  EXPECT_NEAR(equal.mean_share, 36.0 / 40.0, 1e-6);
  auto uneven = rows({2, 1}, 0);  // eigenvalues 2 and 1/2: (2.5)^2 / 4.25
  EXPECT_NEAR(spread(uneven, 20, Exec{.threads = 2}).effective_rank, 6.25 / 4.25, 1e-6);
}

class Words final : public Tokenizer {  // token i is kTexts[i]
 public:
  void encode(std::string_view, std::vector<TokenId>&) const override {}
  std::string decode(std::span<const TokenId> ids) const override {
    static const std::vector<std::string> kTexts = {"", " the", "re", ",", " ", "x9", "\n\n", " \xc3\xa9t"};
    return kTexts[ids[0]];
  }
  Index vocab_size() const override { return 8; }
  TokenId end_of_text() const override { return 0; }
  std::string name() const override { return "words"; }
  void save(const std::string&) const override {}
};

TEST(TokenClasses, AreWhatTheySay) {
  const std::vector<std::int32_t> text = {0, 1, 2, 3, 1, 2, 4, 5, /* second window */ 2, 2, 6, 5, 7, 2, 3, 1};
  std::vector<float> loss;
  for (int n = 0; n < 16; ++n) loss.push_back(static_cast<float>((n * 5) % 16));
  const auto classes = token_classes(text, 8, loss, std::make_unique<Words>().get());
  const auto of = [&](const std::string& name) {
    for (const TokenClass& c : classes)
      if (c.name == name) return std::vector<int>(c.group_N.begin(), c.group_N.end());
    return std::vector<int>{};
  };
  // Counts: 0, 4, 6, 7 once, 3 and 5 twice, 1 thrice, 2 five times. Middles in that order: 0 1 2 3, 5 7, 9, 13 of 16.
  EXPECT_EQ(of("frequency"), (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 0, 1, 0, 2, 0, 1}));
  EXPECT_EQ(of("position"), (std::vector<int>{0, 0, 1, 1, 2, 2, 2, 2, 0, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(of("word"), (std::vector<int>{2, 0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0}));
  EXPECT_EQ(of("repeated"), (std::vector<int>{0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}));
  const std::vector<int> thirds = of("loss");
  for (int n = 0; n < 16; ++n) EXPECT_EQ(thirds[n], 3 * ((n * 5) % 16) / 16) << n;
  EXPECT_EQ(token_classes(text, 8, loss, nullptr).size(), classes.size() - 1)
      << "no words without a tokenizer";
}

// Sums over the oracle's trace, token by token, for a rule of the paper.
struct TraceNumbers {
  std::vector<double> output, input, readout, random, target, before, after, end, kept, turn, gate;
  std::vector<double> state, planes;  // of S + 1
  std::vector<double> cosine, left;   // of S x S

  TraceNumbers(const ModelConfig& config, const ref::Parameters<double>& parameters, Index windows) {
    const ref::Shape shape = oracle_shape(config);
    const auto rule = make_oracle<double>(config);
    const AuditText text = audit_text(windows);
    ref::Trace<double> trace;
    ref::Model<double>(shape, *rule, parameters).logits(text.input_N, windows, kAuditContext, &trace);
    const Index S = config.sublayers(), C = config.width, N = text.tokens();
    const Index D = div_exact(std::ssize(trace.first_state_NDC), N * C);
    const auto X = [&](Index s, Index n, Index d) {
      return (s == 0 ? trace.first_state_NDC : trace.sublayers[s - 1].state_NDC).data() + (n * D + d) * C;
    };
    const auto product = [&](const double* a, const double* b) {
      double sum = 0;
      for (Index c = 0; c < C; ++c) sum += a[c] * b[c];
      return sum;
    };
    const double values = static_cast<double>(N * D);
    const auto mean_root = [&](auto term) {  // over tokens and planes
      double sum = 0;
      for (Index n = 0; n < N; ++n)
        for (Index d = 0; d < D; ++d) sum += term(n, d);
      return std::sqrt(sum / values);
    };
    for (Index s = 0; s <= S; ++s) {
      state.push_back(mean_root([&](Index n, Index d) { return product(X(s, n, d), X(s, n, d)); }));
      double sum = 0;
      for (Index n = 0; n < N; ++n)
        for (Index d = 0; d < D; ++d)
          for (Index e = 0; e < d; ++e)
            sum += product(X(s, n, d), X(s, n, e)) /
                   std::sqrt(product(X(s, n, d), X(s, n, d)) * product(X(s, n, e), X(s, n, e)));
      planes.push_back(sum / static_cast<double>(N * D * (D - 1) / 2));
    }
    for (Index s = 0; s < S; ++s) {
      const auto& t = trace.sublayers[s];
      const auto k = [&](Index n) { return t.k_NC.data() + n * C; };
      const auto v = [&](Index n, Index d) { return t.v_ND[n * D + d]; };
      const auto along = [&](Index depth, Index n, Index d) { return product(k(n), X(depth, n, d)); };
      const auto of_token = [&](const ref::Vec<double>& x_NC) {
        double sum = 0;
        for (Index n = 0; n < N; ++n) sum += product(x_NC.data() + n * C, x_NC.data() + n * C);
        return std::sqrt(sum / static_cast<double>(N));
      };
      const auto error = [&](Index depth) {
        return mean_root([&](Index n, Index d) { return std::pow(along(depth, n, d) - v(n, d), 2); });
      };
      output.push_back(of_token(t.h_NC)), input.push_back(of_token(t.x_in_NC));
      readout.push_back(mean_root([&](Index n, Index d) { return std::pow(along(s, n, d), 2); }));
      random.push_back(state[s] / std::sqrt(static_cast<double>(C)));
      target.push_back(mean_root([&](Index n, Index d) { return v(n, d) * v(n, d); }));
      before.push_back(error(s)), after.push_back(error(s + 1)), end.push_back(error(S));
      double up = 0, down = 0, turned = 0, gates = 0;
      for (Index n = 0; n < N; ++n) {
        double dot = 0, a = 0, b = 0;
        for (Index d = 0; d < D; ++d) {
          const double change = along(s + 1, n, d) - along(s, n, d);
          up += change * (along(S, n, d) - along(s, n, d)), down += change * change;
          dot += product(X(s, n, d), X(s + 1, n, d));
          a += product(X(s, n, d), X(s, n, d)), b += product(X(s + 1, n, d), X(s + 1, n, d));
        }
        turned += dot / std::sqrt(a * b), gates += t.beta_N[n];
      }
      kept.push_back(up / down), turn.push_back(turned / static_cast<double>(N));
      gate.push_back(gates / static_cast<double>(N));
    }
    for (Index l = 0; l < S; ++l)
      for (Index m = 0; m < S; ++m) {
        double sum = 0, lengths = 0;
        for (Index n = 0; n < N; ++n) {
          const auto k = [&](Index s) { return trace.sublayers[s].k_NC.data() + n * C; };
          sum += product(k(l), k(m)) / std::sqrt(product(k(l), k(l)) * product(k(m), k(m)));
          std::vector<double> u(k(l), k(l) + C);
          for (Index j = l + 1; j <= m; ++j) {
            const double r = product(k(j), u.data());
            for (Index c = 0; c < C; ++c) u[c] -= trace.sublayers[j].beta_N[n] * r * k(j)[c];
          }
          lengths += std::sqrt(product(u.data(), u.data()) / product(k(l), k(l)));
        }
        cosine.push_back(sum / static_cast<double>(N));
        left.push_back(m < l ? 0 : lengths / static_cast<double>(N));
      }
  }
};

std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  for (const Json& value : list) out.push_back(value.get<double>());
  return out;
}

// 14 windows in batches of four: the last has two.
TEST(Audit, NumbersAreThoseOfTheTrace) {
  const ModelConfig config = model_config({.residual = "ddl-cc"});
  const auto parameters = oracle_parameters(scrambled_weights(config));
  const TraceNumbers truth(config, parameters, 14), moved(config, nudged(parameters), 14);
  const Json audit = tiny_audit("ddl-cc", 14, 16, 2);
  const Index S = config.sublayers();
  // Six digits are printed, which is coarser than f32.
  const auto check = [&](const Json& actual, std::vector<double> TraceNumbers::*member, const char* name) {
    const std::vector<double>&expected = truth.*member, found = numbers(actual);
    ASSERT_GE(found.size(), expected.size()) << name;
    const double tolerance = 1e-5 * amplification(expected, moved.*member);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], tolerance * std::max(rms(expected), std::abs(expected[i])))
          << name << " " << i;
  };
  using N = TraceNumbers;
  check(audit["norms"]["output"], &N::output, "output");
  check(audit["norms"]["input"], &N::input, "input");
  check(audit["norms"]["state"], &N::state, "state");
  check(audit["norms"]["turn"], &N::turn, "turn");
  check(audit["norms"]["plane_cosine"], &N::planes, "planes");
  check(audit["readouts"]["readout"], &N::readout, "readout");
  check(audit["readouts"]["random"], &N::random, "random");
  check(audit["readouts"]["target"], &N::target, "target");
  check(audit["readouts"]["error_before"], &N::before, "before");
  check(audit["readouts"]["error_after"], &N::after, "after");
  check(audit["readouts"]["error_end"], &N::end, "end");
  check(audit["readouts"]["kept"], &N::kept, "kept");
  check(audit["gates"]["gate"]["mean"], &N::gate, "gate");
  Json cosine = Json::array(), left = Json::array();
  for (Index l = 0; l < S; ++l)
    for (Index m = 0; m < S; ++m) {
      cosine.push_back(audit["alignment"]["cosine"]["values"][l][m]);
      const Json& cell = audit["survival"]["matrix"]["values"][l + 1][m];  // after the embedding's row
      EXPECT_EQ(cell.is_null(), m < l);
      left.push_back(m < l ? Json(0.0) : cell);
    }
  check(cosine, &N::cosine, "cosine");
  check(left, &N::left, "left");
}

TEST(Audit, SaysTheSameForAnyBatchAndThreads) {
  const Json one = tiny_audit("ddl-cc", 12, 48), two = tiny_audit("ddl-cc", 12, 48, 2);
  EXPECT_EQ(to_line(one), to_line(two));
  const Json small = tiny_audit("ddl-cc", 12, 8);
  EXPECT_NEAR(one["loss"].get<double>(), small["loss"].get<double>(), 1e-6);
  for (const char* part : {"norms", "readouts", "alignment", "lens"})
    for (const auto& [key, values] : one[part].items())
      if (values.is_array() && values[0].is_number()) {
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_NEAR(values[i].get<double>(), small[part][key][i].get<double>(),
                      2e-5 * std::abs(values[i].get<double>()) + 1e-9)
              << part << " " << key << " " << i;
      }
}

class AuditOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Audit, AuditOf, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(AuditOf, HasItsFormAndAScreen) {
  const Json audit = tiny_audit(GetParam(), 6, 8);
  const std::size_t S = 4;
  EXPECT_EQ(audit["format"], "ddl-audit");
  EXPECT_EQ(audit["version"], 1);
  EXPECT_EQ(audit["tokens"], 24);
  EXPECT_EQ(audit["sublayers"].size(), S);
  EXPECT_EQ(audit["depths"].size(), S + 1);
  EXPECT_EQ(audit["norms"]["output"].size(), S);
  EXPECT_EQ(audit["norms"]["input"].size(), S + 1);
  EXPECT_EQ(audit["rank"]["input"].size(), S + 1);
  ASSERT_EQ(audit["lens"]["loss"].size(), S + 1);
  EXPECT_NEAR(audit["lens"]["loss"][S].get<double>(), audit["loss"].get<double>(), 1e-5)
      << "all tokens have gone through the lens, and at the end it is the head";
  const Json& changes = audit["intervention_matrix"];
  ASSERT_GE(changes["columns"].size(), 2u);
  EXPECT_EQ(audit["interventions"].size(), S * changes["columns"].size());
  EXPECT_EQ(audit["intervention_tokens"], 24);
  for (const Json& effect : audit["interventions"]) {
    EXPECT_TRUE(effect["loss_change"].is_number() && effect["se"].is_number()) << to_line(effect);
    EXPECT_NE(effect["loss_change"].get<double>(), 0) << to_line(effect);
  }
  for (const auto& [name, gate] : audit["gates"].items()) {
    for (const Json& row : gate["histogram"]["values"]) {
      double sum = 0;
      for (const Json& share : row) sum += share.get<double>();
      EXPECT_NEAR(sum, 1, 1e-4) << name;
    }
    EXPECT_EQ(gate["classes"].size(), 4u) << "frequency, position, repeated, loss";
  }
  const std::string screen = audit_screen({{"a model", {audit}}});
  EXPECT_NE(screen.find("1 mlp"), std::string::npos) << screen;
  EXPECT_LT(std::count(screen.begin(), screen.end(), '\n'), 30) << screen;
}

TEST(Audit, InterventionsFitTheRule) {
  const auto changes = [](const char* rule) {
    return tiny_audit(rule, 2, 8)["intervention_matrix"]["columns"].get<std::vector<std::string>>();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(changes("ddl-cc"), (Names{"no erase", "gate = 0", "gate = 1", "gate = mean", "target = mean"}));
  EXPECT_EQ(changes("wo-cc"), (Names{"gate = 0", "gate = 1", "gate = mean", "target = mean"}));
  EXPECT_EQ(changes("ddl-ew-cc"),
            (Names{"erase gate = 0", "erase gate = 1", "erase gate = mean", "write gate = 0",
                   "write gate = 1", "write gate = mean", "target = mean"}));
  for (const char* rule : {"baseline", "highway", "hc", "attnres", "norm-write", "ihc", "decay-x0"})
    EXPECT_EQ(changes(rule), (Names{"output = 0", "output = mean"})) << rule;
}

// ddl-ew-cc with other names.
FusedSpec renamed_series(ModelConfig config) {
  config.use_residual("ddl-ew-cc");
  FusedSpec spec = dynamic_cast<FusedRule<float>&>(*make_rule<float>(config)).spec();
  for (SeriesSpec& series : spec.series) series.name = "my " + series.name;
  return spec;
}

TEST(Audit, KnowsSeriesByTheirRoles) {
  register_rule(
      fused_rule("renamed", "", OptionSetPtr(DeltaOptions(Expand::kConv, Read::kChannel)), renamed_series));
  const Json known = tiny_audit("ddl-ew-cc", 2, 8), renamed = tiny_audit("renamed", 2, 8);
  for (const char* part : {"readouts", "survival", "alignment"})
    EXPECT_EQ(renamed[part], known[part]) << part;
  const Json &expected = known["intervention_matrix"], &changes = renamed["intervention_matrix"];
  EXPECT_EQ(changes["values"], expected["values"]);
  ASSERT_EQ(changes["columns"].size(), expected["columns"].size());
  for (std::size_t i = 0; i < expected["columns"].size(); ++i)
    EXPECT_EQ(changes["columns"][i], "my " + expected["columns"][i].get<std::string>());
}

// The mean change over windows and its standard error, from two losses by hand.
TEST(Audit, StandardErrorsAreOverWindows) {
  const ModelConfig config = model_config({.residual = "baseline"});
  const Weights weights = scrambled_weights(config);
  const AuditText text = audit_text(3);
  const auto probe = make_probe(weights, {3, kAuditContext}, Exec{});
  std::vector<float> before(12), after(12);
  const BatchView batch{text.input_N.data(), text.target_N.data()};
  probe->loss(batch, {.loss_N = before.data()}, Exec{});
  const Replacement change{1, kOutputSeries, std::vector<float>(8, 0.0f)};
  probe->replace(&change);
  probe->loss(batch, {.loss_N = after.data()}, Exec{});
  std::vector<double> windows(3, 0.0);
  for (std::size_t n = 0; n < 12; ++n) windows[n / 4] += (double{after[n]} - double{before[n]}) / 4;
  const double mean = (windows[0] + windows[1] + windows[2]) / 3;
  double squares = 0;
  for (const double w : windows) squares += (w - mean) * (w - mean);
  const Json audit = tiny_audit("baseline", 3, 12);
  const Json& values = audit["intervention_matrix"];
  EXPECT_NEAR(values["values"][1][0].get<double>(), mean, 1e-5 * std::abs(mean) + 1e-7);
  EXPECT_NEAR(values["se"][1][0].get<double>(), std::sqrt(squares / 2 / 3), 1e-5);
}

}  // namespace
}  // namespace ddl
