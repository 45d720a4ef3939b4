// ./ddl score: every token of a text with its log-probability, its rank and what else was likely.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/record.h"
#include "core/shell_word.h"
#include "data/tokenizer.h"
#include "eval/score_text.h"
#include "infer/load.h"
#include "infer/text_stream.h"
#include "io/file.h"

namespace ddl {
namespace {

// Whole numbers, separated by anything that is not a digit: "1 2 3", "[1, 2, 3]", one per line.
std::vector<std::int32_t> parse_token_ids(const std::string& text, const std::string& source) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      std::int64_t id = 0;
      for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
        id = id * 10 + (text[i] - '0');
        if (id > INT32_MAX)
          throw UserError("{}: token {} has a number that is too large", source, ids.size() + 1);
      }
      ids.push_back(static_cast<std::int32_t>(id));
    } else if (std::string_view(" \t\r\n,[]").find(c) != std::string_view::npos) {
      ++i;
    } else {
      throw UserError("{}: expected token numbers (\"1 2 3\" or [1, 2, 3]), found '{}' after {} of them",
                      source, to_valid_utf8(text.substr(i, 1)), ids.size());
    }
  }
  return ids;
}

struct ScoreCommand {
  std::string run, text, tokens, input;
  LoadOptions load;
  std::string device;
  ScoreTextOptions options;
  bool json = false;

  void execute() {
    if (!input.empty() && input != "-")
      throw UserError("'{}': a file goes behind --text or --tokens (- is standard input)",
                      to_valid_utf8(input));
    if (!text.empty() + !tokens.empty() + !input.empty() != 1)
      throw UserError("name what to score: --text FILE, --tokens FILE, or - for text on standard input");
    const Exec ex = default_exec();
    if (!tokens.empty()) load.missing_tokenizer = LoadOptions::kAccept;
    const LoadedModel loaded = load_model(run, load, ex);
    if (const std::string note = slow_weights_note(loaded.weights); !json && !note.empty())
      fmt::print(stderr, "{}\n", note);
    tokenizer_ = loaded.tokenizer.get();
    const std::string source = !tokens.empty() ? tokens : text.empty() ? "-" : text;
    std::error_code error;
    if (!text.empty() && text != "-" && !std::filesystem::exists(text, error))
      throw UserError(
          "--text: there is no file '{}'; a text itself goes to standard input: printf %s TEXT | ./ddl score "
          "{} -",
          to_valid_utf8(text.substr(0, 80)), shell_word(run));
    const std::string contents = source == "-" ? read_standard_input() : read_file(source);
    std::vector<std::int32_t> ids;
    if (!tokens.empty()) {
      ids = parse_token_ids(contents, source);
    } else {
      std::vector<TokenId> encoded{tokenizer_->end_of_text()};  // as a document begins in training
      tokenizer_->encode(contents, encoded);
      ids.assign(encoded.begin(), encoded.end());
    }
    check_ids(ids, loaded.weights.config().vocab, source);
    if (!json) fmt::print("{:>8} {:>7} {:<20} {:>9} {:>6}\n", "position", "token", "text", "log p", "rank");
    double sum = 0;
    Index count = 0, first = 0;
    score_text(
        loaded.weights, ids, options,
        [&](const ScoredToken& token) {
          sum += token.log_probability;
          ++count;
          first += token.rank == 1;
          json ? print_record(token) : print_line(token);
        },
        ex);
    print_summary(loaded, sum, count, first, tokens.empty() ? contents.size() : 0);
  }

 private:
  void check_ids(const std::vector<std::int32_t>& ids, Index vocab, const std::string& source) const {
    if (ids.size() < 2)
      throw UserError("{}: {}", source,
                      tokens.empty()
                          ? "expected text, found none"
                          : fmt::format("expected two token numbers or more (the first is read and "
                                        "not scored), found {}",
                                        ids.size()));
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] >= vocab)
        throw UserError("{}: number {} is {}, and the model's vocabulary has {} tokens", source, i + 1,
                        ids[i], vocab);
  }

  const Tokenizer* tokenizer_ = nullptr;  // null where tokens were given and the model has none

  std::string text_of(std::int32_t token) const {
    const TokenId id = static_cast<TokenId>(token);
    return tokenizer_ ? tokenizer_->decode({&id, 1}) : "";
  }

  void print_line(const ScoredToken& token) const {
    fmt::print("{:>8} {:>7} {:<20} {:>9.4f} {:>6}", token.position, token.token,
               to_line(Json(text_of(token.token))), token.log_probability, token.rank);
    for (const LikelyToken& best : token.best)
      fmt::print("  {} {:.3f}", to_line(Json(text_of(best.token))), best.log_probability);
    for (const GateValues& gates : token.gates) {
      fmt::print("  {}", gates.name);
      for (const float gate : gates.value_S) fmt::print(" {:.2f}", gate);
    }
    fmt::print("\n");
  }

  void print_record(const ScoredToken& token) const {
    Json record = make_record("token");
    record["position"] = token.position;
    record["token"] = token.token;
    if (tokenizer_) record["text"] = text_of(token.token);
    record["log_probability"] = token.log_probability;
    record["rank"] = token.rank;
    if (options.best > 0) {
      record["best"] = Json::array();
      for (const LikelyToken& best : token.best) {
        Json each{{"token", best.token}, {"log_probability", best.log_probability}};
        if (tokenizer_) each["text"] = text_of(best.token);
        record["best"].push_back(std::move(each));
      }
    }
    for (const GateValues& gates : token.gates) record["gates"][gates.name] = gates.value_S;
    std::puts(to_line(record).c_str());
  }

  // `bytes` of text; 0 where tokens were given.
  void print_summary(const LoadedModel& loaded, double sum, Index count, Index first,
                     std::size_t bytes) const {
    const double loss = -sum / static_cast<double>(count);
    const double bits_per_byte = bytes > 0 ? -sum / std::log(2.0) / static_cast<double>(bytes) : 0;
    if (json) {
      Json record = make_record("score");
      record["model"] = loaded.folder;
      record["residual"] = loaded.weights.config().residual();
      record["tokens"] = count;
      record["log_likelihood"] = sum;
      record["loss"] = loss;
      record["perplexity"] = std::exp(loss);
      record["most_likely"] = static_cast<double>(first) / static_cast<double>(count);
      if (bytes > 0) record["bits_per_byte"] = bits_per_byte;
      std::puts(to_line(record).c_str());
      return;
    }
    fmt::print(
        "{} tokens: log-likelihood {:.4f}, loss {:.4f}, perplexity {:.2f}, {:.1f}% were the most likely one",
        count, sum, loss, std::exp(loss), 100.0 * static_cast<double>(first) / static_cast<double>(count));
    if (bytes > 0) fmt::print(", {:.4f} bits per byte", bits_per_byte);
    fmt::print("\n");
  }
};

}  // namespace

void add_score_command(Command app) {
  auto c = std::make_shared<ScoreCommand>();
  Command score =
      app.add_command("score", "Every token of a text: log-probability, rank, what else was likely, gates");
  score.add_option("run", c->run, "A run, a checkpoint, or a folder with config.json and weights").required();
  score.add_option("input", c->input, "- reads a text from standard input");
  score.add_option("--text", c->text, "A text file, scored as a document's beginning");
  score.add_option("--tokens", c->tokens, "A file of token numbers; the first is read and not scored");
  score.add_option("--top", c->options.best, "Show the K most likely tokens of every position")
      .range(0, 1000);
  score.add_flag("--gates", c->options.gates, "Show what the rule's gates were, sublayer by sublayer");
  score.add_flag("--json", c->json, "One JSON record per token, and one for all");
  score.add_option("--tokenizer", c->load.tokenizer, "A tokenizer, where the model's folder has none");
  score.add_option("--precision", c->load.precision, "auto, f32 or bf16 (default: as trained)")
      .one_of({"auto", "f32", "bf16"});
  add_engine_options(score, c->load.engine, c->device);
  score.on_run([c] {
    use_engine_options(c->load.engine, c->device);
    c->execute();
  });
}

}  // namespace ddl
