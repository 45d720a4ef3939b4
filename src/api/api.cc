// The public header on top of the layers below.
#include <ddl/ddl.h>

#include <exception>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/signal_stack.h"
#include "infer/generation.h"
#include "infer/load.h"
#include "model/engine.h"
#include "model/next_token.h"
#include "train/run.h"

namespace ddl {
namespace {

Exec exec_for(int threads) {
  Exec ex = default_exec();
  if (threads > 0) ex.threads = threads;
  return ex;
}

// Users of the library see one type of error, and their signal handlers (with SA_ONSTACK) do no harm to what is computed.
template <class F>
auto as_api_error(const F& body) {
  const SignalStack signal_stack;
  try {
    return body();
  } catch (const UserError& error) {
    throw Error(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(error.path1().string() + ": " + error.code().message());
  }
}

}  // namespace

struct Model::Inside {
  Exec ex;
  LoadedModel loaded;
  std::unique_ptr<Decoder> decoder;

  Inside(const std::string& path, const LoadSettings& s)
      : ex(exec_for(s.threads)),
        loaded(load_model(
            path,
            {.precision = s.precision, .engine = s.engine, .weights = s.weights, .tokenizer = s.tokenizer},
            ex)),
        decoder(make_decoder(loaded.weights, {}, ex)) {}
};

Model::Model(const std::string& path, const LoadSettings& settings)
    : inside_(as_api_error([&] { return std::make_unique<Inside>(path, settings); })) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

std::string Model::residual() const { return inside_->loaded.weights.config().residual(); }
std::int64_t Model::parameters() const { return inside_->loaded.weights.table().parameter_count(); }
std::int64_t Model::vocabulary() const { return inside_->loaded.weights.config().vocab; }
std::int64_t Model::context() const { return inside_->loaded.weights.config().context; }

std::vector<std::int32_t> Model::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  inside_->loaded.tokenizer->encode(text, ids);
  return {ids.begin(), ids.end()};
}

std::string Model::decode(const std::vector<std::int32_t>& tokens) const {
  return as_api_error([&] {
    const Index known = inside_->loaded.tokenizer->vocab_size();
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= known)
        throw UserError("token {} is not in the tokenizer's vocabulary of {}", token, known);
    return inside_->loaded.tokenizer->decode(std::vector<TokenId>(tokens.begin(), tokens.end()));
  });
}

GeneratedText Model::generate(std::string_view prompt, const GenerateSettings& s,
                              const std::function<void(std::string_view)>& on_text) const {
  GenerateOptions options;
  options.max_new_tokens = s.max_new_tokens;
  options.sampling.temperature = s.temperature;
  options.sampling.top_k = s.top_k;
  options.sampling.top_p = s.top_p;
  options.sampling.min_p = s.min_p;
  options.sampling.repetition_penalty = s.repetition_penalty;
  options.sampling.seed = s.seed;
  options.stop = s.stop;
  const auto text = [&](Index, std::string_view piece) {
    if (on_text) on_text(piece);
  };
  return as_api_error([&] {
    Generation g = ddl::generate(*inside_->decoder, *inside_->loaded.tokenizer, prompt, 1, options,
                                 {.text = text}, inside_->ex)
                       .front();
    return GeneratedText{std::move(g.text), std::move(g.ended), g.prompt_tokens, g.new_tokens};
  });
}

std::vector<TokenScore> Model::score(std::string_view text) const { return score_tokens(encode(text)); }

// log p(token_i | end of text, token_0, ..., token_{i-1})
std::vector<TokenScore> Model::score_tokens(const std::vector<std::int32_t>& tokens) const {
  if (tokens.empty()) return {};
  std::vector<std::int32_t> read{static_cast<std::int32_t>(inside_->loaded.tokenizer->end_of_text())};
  read.insert(read.end(), tokens.begin(), tokens.end() - 1);
  std::vector<TokenScore> scores(tokens.size());
  return as_api_error([&] {
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= vocabulary())
        throw UserError("token {} is not in the model's vocabulary of {}", token, vocabulary());
    Decoder& decoder = *inside_->decoder;
    decoder.reset(0);
    const Decoder::Append append{0, read};
    decoder.append_visiting(
        {&append, 1},
        [&](Index, Index i, std::span<const float> logits) {
          const NextToken next = next_token(logits);
          scores[i] = {tokens[i], next.log_probability(tokens[i]), logits[tokens[i]] == next.largest};
        },
        inside_->ex);
    return scores;
  });
}

TrainedRun train_model(const TrainSettings& s, const std::function<void(std::string_view)>& on_record) {
  RunRequest request;
  request.config_file = s.config, request.preset = s.preset, request.data = s.data, request.out = s.out;
  request.sets = s.set, request.resume = s.resume;
  request.style = Console::Style::kSilent;
  if (on_record) request.on_record = [&](const Json& record) { on_record(to_line(record)); };
  return as_api_error([&] {
    const StopSignals signals;
    const RunOutcome outcome = run_training(request, signals, exec_for(s.threads));
    return TrainedRun{outcome.folder, outcome.step, outcome.signal == 0};
  });
}

std::string version() { return DDL_VERSION; }

}  // namespace ddl
