#include "audit/audit_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "audit/collector.h"
#include "audit/interventions.h"
#include "audit/token_classes.h"
#include "core/error.h"
#include "data/progress_line.h"
#include "infer/load.h"
#include "io/file.h"
#include "model/probe.h"
#include "model/stored_model.h"
#include "train/run_config.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr Index kGateBins = 20;

// Six digits: more would be noise, and a page of them.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}
Json rounded(const std::vector<double>& values, double divisor = 1) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value / divisor));
  return list;
}
// Root mean squares from sums of squares.
Json roots(const std::vector<double>& squares, double count) {
  Json list = Json::array();
  for (const double value : squares) list.push_back(rounded(std::sqrt(value / count)));
  return list;
}

// A matrix with the names of its rows and columns. cell(i, j) gives Json, null where there is nothing.
template <class Cell>
Json matrix(const Names& rows, const Names& columns, const Cell& cell) {
  Json values = Json::array();
  for (Index i = 0; i < std::ssize(rows); ++i) {
    Json row = Json::array();
    for (Index j = 0; j < std::ssize(columns); ++j) row.push_back(cell(i, j));
    values.push_back(std::move(row));
  }
  return {{"rows", rows}, {"columns", columns}, {"values", std::move(values)}};
}

// Of `wanted` batches spread over `batches`, the first among them: is this one?
bool is_sampled(Index batch, Index batches, Index wanted) {
  wanted = std::clamp<Index>(wanted, 1, batches);
  return batch == 0 || batch * wanted / batches != (batch - 1) * wanted / batches;
}

class Audit {
 public:
  Audit(const Weights& weights, const Tokenizer* tokenizer, const AuditText& text, const AuditSizes& sizes,
        std::FILE* progress, const Exec& ex)
      : config_(weights.config()),
        tokenizer_(tokenizer),
        text_(text),
        sizes_(sizes),
        ex_(ex),
        S_(config_.sublayers()),
        shape_{std::clamp<Index>(sizes.batch_tokens / text.context, 1, text.windows()), text.context},
        batches_(ceil_div(text.windows(), shape_.B)),
        probe_(make_probe(weights, shape_, ex)),
        collector_(*probe_),
        parameters_(weights.table().parameter_count()),
        progress_(progress) {
    for (Index s = 0; s < S_; ++s)
      sublayer_names_.push_back(fmt::format("{} {}", s / 2, s % 2 == 0 ? "attention" : "mlp"));
    depth_names_ = {"embedding"};
    for (const std::string& name : sublayer_names_) depth_names_.push_back("after " + name);
  }

  Json run() {
    watch();
    intervene();
    sums_.emplace(collector_.sums());
    Json json{{"format", kAuditFormat}, {"version", kAuditVersion}};
    json["model"] = model();
    json["text"] = {{"source", text_.source},
                    {"kind", text_.kind},
                    {"windows", text_.windows()},
                    {"context", text_.context}};
    json["tokens"] = text_.tokens();
    json["loss"] = mean_loss();
    json["sublayers"] = sublayers();
    json["depths"] = depth_names_;
    json["norms"] = norms();
    json["rank"] = rank();
    json["lens"] = lens();
    json["alignment"] = alignment();
    if (collector_.channels() > 0) json["readouts"] = readouts();
    json["survival"] = collector_.erases() ? survival() : Json(nullptr);
    json["gates"] = gates();
    json["series"] = series();
    json["interventions"] = Json::array();
    for (const Json& effect : effects_) json["interventions"].push_back(effect);
    json["intervention_tokens"] = intervention_tokens_;
    json["intervention_matrix"] = intervention_matrix();
    return json;
  }

 private:
  double tokens() const { return static_cast<double>(collector_.tokens()); }
  double plane_values() const { return tokens() * static_cast<double>(collector_.channels()); }

  struct BatchOfText {
    std::vector<std::int32_t> token_N, target_N;
    Index rows = 0, first_token = 0;
  };
  // The last batch may have fewer windows: the rest of its rows repeats the first and does not count.
  BatchOfText batch_of_text(Index batch) const {
    const Index first = batch * shape_.B, N = shape_.N();
    BatchOfText b;
    b.rows = std::min(shape_.B, text_.windows() - first);
    b.first_token = first * shape_.T;
    for (Index n = 0; n < N; ++n) {
      const Index from = n < b.rows * shape_.T ? b.first_token + n : b.first_token + n % shape_.T;
      b.token_N.push_back(text_.input_N[from]);
      b.target_N.push_back(text_.target_N[from]);
    }
    return b;
  }

  void watch() {
    ProgressLine line("audit", ProgressLine::Unit::kTokens, static_cast<std::uint64_t>(text_.tokens()),
                      progress_);
    for (Index i = 0; i < batches_; ++i) {
      const BatchOfText batch = batch_of_text(i);
      const Collector::Wanted wanted{.lens = is_sampled(i, batches_, sizes_.lens_tokens / shape_.N()),
                                     .rank = i == (batches_ - 1) / 2};
      collector_.add({batch.token_N.data(), batch.target_N.data()}, batch.rows, wanted, ex_);
      line.update(static_cast<std::uint64_t>(collector_.tokens()));
    }
  }

  void intervene() {
    std::vector<BatchOfText> texts;
    for (Index i = 0; i < batches_; ++i)
      if (is_sampled(i, batches_, sizes_.intervention_tokens / shape_.N())) texts.push_back(batch_of_text(i));
    std::vector<InterventionBatch> batches;
    for (const BatchOfText& b : texts) {
      batches.push_back(
          {{b.token_N.data(), b.target_N.data()}, b.rows, collector_.losses().data() + b.first_token});
      intervention_tokens_ += b.rows * shape_.T;
    }
    const std::vector<Change> changes = possible_changes(*probe_, collector_);
    ProgressLine line("interventions", ProgressLine::Unit::kSteps,
                      static_cast<std::uint64_t>(S_ * std::ssize(changes)), progress_);
    std::uint64_t done = 0;
    for (const Change& change : changes) {
      change_names_.push_back(change.name);
      for (Index s = 0; s < S_; ++s) {
        const Effect effect = effect_of(change.at_S[s], *probe_, batches, ex_);
        effects_.push_back({{"sublayer", s},
                            {"name", sublayer_names_[s]},
                            {"change", change.name},
                            {"loss_change", rounded(effect.loss_change)},
                            {"se", rounded(effect.error)}});
        line.update(++done);
      }
    }
  }

  Json model() const {
    return {{"residual", config_.residual()},    {"layers", config_.layers},    {"width", config_.width},
            {"channels", collector_.channels()}, {"vocabulary", config_.vocab}, {"context", config_.context},
            {"parameters", parameters_},         {"numbers", config_.numbers()}};
  }

  double mean_loss() const {
    double sum = 0;
    for (const float loss : collector_.losses()) sum += static_cast<double>(loss);
    return sum / tokens();
  }

  Json sublayers() const {
    Json list = Json::array();
    for (Index s = 0; s < S_; ++s)
      list.push_back({{"sublayer", s},
                      {"name", sublayer_names_[s]},
                      {"layer", s / 2},
                      {"kind", s % 2 == 0 ? "attention" : "mlp"}});
    return list;
  }

  Json norms() const {
    Json json{{"output", roots(sums_->output_square_S, tokens())},
              {"input", roots(sums_->input_square_S1, tokens())}};
    if (collector_.channels() == 0) return json;
    json["state"] = roots(sums_->state_square_S1, tokens());
    json["turn"] = rounded(sums_->turn_cosine_S, tokens());
    if (collector_.channels() > 1) json["plane_cosine"] = rounded(sums_->plane_cosine_S1, tokens());
    return json;
  }

  Json rank() const {
    Json json{{"tokens", collector_.rank_tokens()}};
    const auto add = [&](const char* name, const std::vector<DirectionSpread>& spreads) {
      Json ranks = Json::array(), shares = Json::array();
      for (const DirectionSpread& s : spreads)
        ranks.push_back(rounded(s.effective_rank)), shares.push_back(rounded(s.mean_share));
      json[name] = std::move(ranks);
      json[std::string(name) + "_mean_share"] = std::move(shares);
    };
    add("input", collector_.input_spread());
    if (collector_.channels() > 0) add("state", collector_.state_spread());
    return json;
  }

  Json lens() const {
    if (!collector_.has_lens()) return nullptr;
    const double n = static_cast<double>(collector_.lens_tokens());
    return {{"tokens", collector_.lens_tokens()},
            {"loss", rounded(sums_->lens_loss_S1, n)},
            {"accuracy", rounded(sums_->lens_correct_S1, n)},
            {"own_log_probability", rounded(sums_->lens_own_S1, n)}};
  }

  Json alignment() const {
    const double n = tokens();
    Json by_distance = Json::array();
    for (Index distance = 1; distance < S_; ++distance) {
      double sum = 0, squares = 0;
      for (Index s = 0; s + distance < S_; ++s)
        sum += sums_->cosine_SS[s * S_ + s + distance],
            squares += sums_->cosine_square_SS[s * S_ + s + distance];
      const double pairs = static_cast<double>(S_ - distance);
      by_distance.push_back({{"distance", distance},
                             {"cosine", rounded(sum / n / pairs)},
                             {"rms", rounded(std::sqrt(squares / n / pairs))}});
    }
    return {{"random_rms", rounded(1 / std::sqrt(static_cast<double>(config_.width)))},
            {"cosine", matrix(sublayer_names_, sublayer_names_,
                              [&](Index l, Index m) { return rounded(sums_->cosine_SS[l * S_ + m] / n); })},
            {"rms", matrix(sublayer_names_, sublayer_names_,
                           [&](Index l, Index m) {
                             return rounded(std::sqrt(sums_->cosine_square_SS[l * S_ + m] / n));
                           })},
            {"by_distance", std::move(by_distance)}};
  }

  Json readouts() const {
    Json json{{"readout", roots(sums_->readout_square_S, plane_values())},
              {"random", roots(sums_->null_square_S, plane_values())}};
    if (collector_.has_targets()) {
      json["target"] = roots(sums_->target_square_S, plane_values());
      json["error_before"] = roots(sums_->error_before_S, plane_values());
      json["error_after"] = roots(sums_->error_after_S, plane_values());
      json["error_end"] = roots(sums_->error_end_S, plane_values());
    }
    Json kept = Json::array();
    for (Index s = 0; s < S_; ++s)
      kept.push_back(rounded(sums_->change_kept_S[s] / sums_->change_square_S[s]));
    json["kept"] = std::move(kept);
    return json;
  }

  Json survival() const {
    const double n = tokens();
    const double end_square = sums_->state_square_S1[S_] * static_cast<double>(collector_.channels());
    Names rows = {"embedding"};
    rows.insert(rows.end(), sublayer_names_.begin(), sublayer_names_.end());
    Json shares = Json::array();
    for (Index i = 0; i <= S_; ++i)
      shares.push_back(rounded(sums_->surviving_square_S1[i == 0 ? S_ : i - 1] / end_square));
    Json left = Json::array();
    left.push_back(rounded(sums_->start_left_S[S_ - 1] / n));
    for (Index m = 0; m < S_; ++m) left.push_back(rounded(sums_->left_SS[m * S_ + S_ - 1] / n));
    return {{"matrix", matrix(rows, sublayer_names_,
                              [&](Index i, Index j) {
                                if (i == 0) return rounded(sums_->start_left_S[j] / n);
                                return j < i - 1 ? Json(nullptr)
                                                 : rounded(sums_->left_SS[(i - 1) * S_ + j] / n);
                              })},
            {"left", std::move(left)},
            {"share_of_end", std::move(shares)},
            {"decomposition_error", rounded(std::sqrt(sums_->rebuilt_error[0] / sums_->rebuilt_square[0]))}};
  }

  // Mean and standard deviation of one component.
  std::pair<double, double> moments(const SeriesRecord& record, Index i) const {
    const double mean = record.sum[i] / tokens();
    return {mean, std::sqrt(std::max(0.0, record.square[i] / tokens() - mean * mean))};
  }

  Json gates() const {
    const std::vector<TokenClass> classes =
        token_classes(text_.input_N, text_.context, collector_.losses(), tokenizer_);
    Json all = Json::object();
    for (const SeriesRecord& first : collector_.series()[0]) {
      if (!first.is_gate()) continue;
      Json gate{{"low", first.low}, {"high", first.high}};
      Json mean = Json::array(), sd = Json::array();
      for (Index s = 0; s < S_; ++s) {
        const auto [m, deviation] = moments(*collector_.find(s, first.name), 0);
        mean.push_back(rounded(m)), sd.push_back(rounded(deviation));
      }
      gate["mean"] = std::move(mean), gate["sd"] = std::move(sd);
      gate["histogram"] = histogram(first);
      gate["classes"] = Json::array();
      for (const TokenClass& c : classes) gate["classes"].push_back(by_class(first.name, c));
      all[first.name] = std::move(gate);
    }
    return all;
  }

  // Shares of tokens; columns are the bins' lower ends.
  Json histogram(const SeriesRecord& first) const {
    const double low = static_cast<double>(first.low),
                 width = static_cast<double>(first.high - first.low) / kGateBins;
    Names bins;
    for (Index i = 0; i < kGateBins; ++i)
      bins.push_back(fmt::format("{:.3g}", low + static_cast<double>(i) * width));
    std::vector<double> share_SB(static_cast<std::size_t>(S_ * kGateBins), 0.0);
    for (Index s = 0; s < S_; ++s)
      for (const float value : collector_.find(s, first.name)->values_N) {
        const auto bin = static_cast<Index>((static_cast<double>(value) - low) / width);
        share_SB[s * kGateBins + std::clamp<Index>(bin, 0, kGateBins - 1)] += 1 / tokens();
      }
    return matrix(sublayer_names_, bins,
                  [&](Index s, Index i) { return rounded(share_SB[s * kGateBins + i]); });
  }

  Json by_class(const std::string& gate, const TokenClass& c) const {
    const Index G = std::ssize(c.groups);
    std::vector<double> sum_SG(static_cast<std::size_t>(S_ * G), 0.0);
    std::vector<Index> count_G(static_cast<std::size_t>(G), 0);
    for (const std::uint8_t group : c.group_N) ++count_G[group];
    for (Index s = 0; s < S_; ++s) {
      const std::vector<float>& values_N = collector_.find(s, gate)->values_N;
      for (std::size_t n = 0; n < values_N.size(); ++n)
        sum_SG[s * G + c.group_N[n]] += static_cast<double>(values_N[n]);
    }
    return {{"class", c.name},
            {"tokens", count_G},
            {"mean", matrix(sublayer_names_, c.groups, [&](Index s, Index g) {
               return count_G[g] == 0 ? Json(nullptr)
                                      : rounded(sum_SG[s * G + g] / static_cast<double>(count_G[g]));
             })}};
  }

  Json series() const {
    Json all = Json::object();
    for (const SeriesRecord& first : collector_.series()[0]) {
      Json mean = Json::array(), sd = Json::array();
      for (Index s = 0; s < S_; ++s) {
        const SeriesRecord& record = *collector_.find(s, first.name);
        Json means = Json::array(), deviations = Json::array();
        for (Index i = 0; i < record.per_token; ++i) {
          const auto [m, deviation] = moments(record, i);
          means.push_back(rounded(m)), deviations.push_back(rounded(deviation));
        }
        mean.push_back(std::move(means)), sd.push_back(std::move(deviations));
      }
      all[first.name] = {{"mean", std::move(mean)}, {"sd", std::move(sd)}};
    }
    return all;
  }

  Json intervention_matrix() const {
    const auto cell = [&](const char* key) {
      return [this, key](Index s, Index c) { return effects_[c * S_ + s].at(key); };
    };
    Json json = matrix(sublayer_names_, change_names_, cell("loss_change"));
    json["se"] = matrix(sublayer_names_, change_names_, cell("se"))["values"];
    return json;
  }

  const ModelConfig& config_;
  const Tokenizer* tokenizer_;
  const AuditText& text_;
  const AuditSizes& sizes_;
  const Exec& ex_;
  const Index S_;
  const BatchShape shape_;
  const Index batches_;
  const std::unique_ptr<Probe> probe_;
  Collector collector_;
  const Index parameters_;
  std::FILE* progress_;
  Names sublayer_names_, depth_names_, change_names_;
  std::vector<Json> effects_;  // change by change, sublayer by sublayer
  Index intervention_tokens_ = 0;
  std::optional<AuditSums> sums_;
};

// The folder of the data that a run was trained on; "" where nothing says so. `folder` is its checkpoint.
std::string trained_on(const std::string& path, const std::string& folder) {
  for (const std::string& run : {path, (fs::path(folder) / ".." / "..").lexically_normal().string()}) {
    const std::string config = run + "/config.toml";
    if (fs::exists(config)) return load_run_config({"", read_file(config), "", {}}).train.data_folder;
  }
  return "";
}

}  // namespace

Json audit_weights(const Weights& weights, const Tokenizer* tokenizer, const AuditText& text,
                   const AuditSizes& sizes, std::FILE* progress, const Exec& ex) {
  DDL_CHECK(text.windows() > 0, "a text without a window");
  return Audit(weights, tokenizer, text, sizes, progress, ex).run();
}

Json audit_model(const AuditRequest& request, const Exec& ex) {
  const StoredModel stored(request.model);
  const auto tokenizer = load_model_tokenizer(stored, request.tokenizer);
  std::string data = request.data;
  if (data.empty() && request.text.empty()) {
    data = trained_on(request.model, stored.folder());
    if (data.empty())
      throw UserError(
          "{}: nothing says what it was trained on; name what to audit it on: --data DIR or --text FILE",
          request.model);
    if (!fs::is_directory(data))
      throw UserError(
          "{}: the data it was trained on ({}) is not there; name what to audit it on: --data DIR or "
          "--text FILE",
          request.model, data);
  }
  if (!request.text.empty() && !tokenizer)
    throw UserError("{}: there is no tokenizer.json; name a tokenizer (--tokenizer)", stored.folder());
  const AuditText text = request.text.empty()
                             ? text_of_dataset(data, stored, request.tokens, ex)
                             : text_of_files(request.text, stored, *tokenizer, request.tokens);
  ModelConfig config = stored.config();
  config.engine = "native";  // the one that can be watched
  Weights weights(config);
  stored.load(weights, ex);
  Json json = audit_weights(weights, tokenizer.get(), text, {}, request.progress, ex);
  json["model"]["folder"] = stored.folder();
  return json;
}

}  // namespace ddl
