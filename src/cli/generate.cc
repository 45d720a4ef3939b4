// ./ddl generate: text from a trained model.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/engine_options.h"
#include "cli/line_editor.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "core/record.h"
#include "data/tokenizer.h"
#include "infer/generation.h"
#include "infer/load.h"
#include "infer/sampler.h"
#include "infer/text_stream.h"
#include "io/file.h"
#include "model/engine.h"
#include "model/trainable.h"
#include "train/series_stats.h"

namespace ddl {
namespace {

struct GenerateCommand {
  std::string run, prompt, prompt_file, input;
  LoadOptions load;
  std::string device;
  bool has_prompt = false;
  Index num = 1;
  bool json = false;
  GenerateOptions options;

  void execute() {
    check();
    const Exec ex = default_exec();
    const LoadedModel loaded = load_model(run, load, ex);
    if (const std::string note = slow_weights_note(loaded.weights); !json && !note.empty())
      fmt::print(stderr, "{}\n", note);
    const auto decoder = make_decoder(loaded.weights, {.slots = std::min<Index>(num, kSideBySide)}, ex);
    const auto once = [&](const std::string& text) {
      try {
        answer(*decoder, *loaded.tokenizer, text, ex);
      } catch (const BadWeights& error) {
        throw UserError("{}: {}", loaded.folder, error.what());
      }
    };
    if (!prompt_file.empty())
      once(read_file(prompt_file));
    else if (has_prompt)
      once(prompt);
    else if (input == "-" || isatty(STDIN_FILENO) == 0)
      once(read_standard_input());
    else
      converse(loaded, once, ex);
  }

 private:
  static constexpr Index kSideBySide = 16;
  std::string last_text_;  // prompt and continuation

  void check() const {
    options.sampling.check();
    if (num < 1) throw UserError("--num: expected 1 or more, found {}", num);
    if (options.max_new_tokens < 0)
      throw UserError("--max-new-tokens: expected 0 or more, found {}", options.max_new_tokens);
    if (!input.empty() && input != "-")
      throw UserError(
          "'{}': a prompt goes behind --prompt (or into a file, --prompt-file; - is standard input)",
          to_valid_utf8(input));
    if (has_prompt + !prompt_file.empty() + !input.empty() > 1)
      throw UserError("more than one prompt: give --prompt, --prompt-file or -");
  }

  template <class Once>
  void converse(const LoadedModel& loaded, const Once& once, const Exec& ex) {
    fmt::print(stderr,
               "{}: {}, {}. A line is a prompt; an empty line or Ctrl-D ends; /help lists commands.\n",
               loaded.folder, loaded.weights.config().residual(), loaded.tokenizer->name());
    LineEditor editor;
    Conversation conversation(
        options, once, [&] { return gates_of(loaded, last_text_, ex); },
        [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    for (;;) {
      const std::optional<std::string> line = editor.read("> ");
      if (!line) fmt::print(stderr, "\n");  // so that the shell's prompt is on a line of its own
      if (!line || !conversation.take(*line)) return;
    }
  }

  // What the rule's gates, or whatever steers its writes, did to the tokens of the text.
  static std::string gates_of(const LoadedModel& loaded, const std::string& text, const Exec& ex) {
    const ModelConfig& config = loaded.weights.config();
    std::vector<TokenId> ids{loaded.tokenizer->end_of_text()};
    loaded.tokenizer->encode(text, ids);
    std::vector<std::int32_t> tokens(ids.begin(), ids.end());
    if (std::ssize(tokens) > config.context + 1) tokens.resize(static_cast<std::size_t>(config.context + 1));
    if (tokens.size() < 2) return "no text to look at";
    const BatchShape shape{1, std::ssize(tokens) - 1};
    const auto model = make_trainable(config, shape, {}, 1, ex);
    std::ranges::copy(to_format(loaded.weights, WeightFormat::kF32, ex).values(),
                      model->weights().values().begin());
    model->upload(ex);
    model->loss_and_grad({tokens.data(), tokens.data() + 1}, 1, ex);
    const Json sublayers = series_statistics(*model, ex);
    if (sublayers.is_null())
      return fmt::format("{} has no gates, nor anything else that depends on the token", config.residual());
    return series_table(sublayers);
  }

  // One text streams; of several, each is printed as soon as it and those before it are complete.
  void answer(Decoder& decoder, const Tokenizer& tokenizer, const std::string& text, const Exec& ex) {
    const bool streams = num == 1 && !json;
    const std::string shown_prompt = to_valid_utf8(text);
    std::map<Index, Generation> waiting;
    Index next = 0;
    bool prompt_shown = false;  // with the first piece: a prompt that is refused is not
    const auto show = [&](Index, std::string_view piece) {
      if (!streams) return;
      if (!std::exchange(prompt_shown, true)) fmt::print("{}", shown_prompt);
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
    const auto notice = [&](const std::string& sentence) {
      fmt::print(stderr, "{}ddl: {}\n", streams ? "\n" : "", sentence);
    };
    const auto finished = [&](Index index, const Generation& generation) {
      last_text_ = text + generation.text;
      if (streams) return;
      waiting[index] = generation;
      for (; waiting.contains(next); waiting.erase(next++)) print(next, shown_prompt, waiting[next]);
      std::fflush(stdout);
    };
    generate(decoder, tokenizer, text, num, options, {show, notice, finished}, ex);
    show(0, "\n");
    std::fflush(stdout);
  }

  void print(Index index, const std::string& shown_prompt, const Generation& g) const {
    if (!json) {
      fmt::print("--- {} of {}\n{}{}\n", index + 1, num, shown_prompt, g.text);
      return;
    }
    Json record = make_record("generation");
    record["index"] = index;
    record["prompt"] = shown_prompt;
    record["text"] = g.text;
    record["ended"] = g.ended;
    record["prompt_tokens"] = g.prompt_tokens;
    record["new_tokens"] = g.new_tokens;
    record["seed"] = options.sampling.seed;
    std::puts(to_line(record).c_str());
  }
};

}  // namespace

void add_generate_command(Command app) {
  auto c = std::make_shared<GenerateCommand>();
  Command generate = app.add_command("generate", "Text from a trained model");
  generate.add_option("run", c->run, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  generate.add_option("input", c->input, "- reads the prompt from standard input");
  const Option prompt = generate.add_option("--prompt", c->prompt, "The text to continue");
  generate.add_option("--prompt-file", c->prompt_file, "A file with the text to continue");
  generate.add_option("--max-new-tokens", c->options.max_new_tokens, "At most this many tokens")
      .show_default();
  SamplerOptions& s = c->options.sampling;
  generate.add_option("--temperature", s.temperature, "0: always the most likely token").show_default();
  generate.add_option("--top-k", s.top_k, "Only the k most likely tokens; 0: all").show_default();
  generate.add_option("--top-p", s.top_p, "Only the most likely tokens that hold this share").show_default();
  generate.add_option("--min-p", s.min_p, "Only tokens this likely, relative to the most likely")
      .show_default();
  generate
      .add_option("--repetition-penalty", s.repetition_penalty, "Above 1: tokens seen before are less likely")
      .show_default();
  generate.add_option("--seed", s.seed, "The same seed gives the same text").non_negative().show_default();
  generate.add_option("--stop", c->options.stop, "End before this string (may be repeated)").one_value_each();
  generate.add_option("--num", c->num, "How many texts").show_default();
  generate.add_flag("--slide", c->options.slide, "Continue past the context with its last half");
  c->load.weights = "auto";
  generate
      .add_option("--weights", c->load.weights,
                  "f32, bf16, q8 or q4: small weights are fast (auto: as stored, or bf16)")
      .one_of({"auto", "f32", "bf16", "q8", "q4"})
      .show_default();
  generate.add_option("--precision", c->load.precision, "auto, f32 or bf16 (default: as trained)")
      .one_of({"auto", "f32", "bf16"});
  add_engine_options(generate, c->load.engine, c->device);
  generate.add_option("--tokenizer", c->load.tokenizer, "A tokenizer, where the model's folder has none");
  generate.add_flag("--json", c->json, "One JSON record per text");
  generate.on_run([c, prompt] {
    c->has_prompt = prompt.given();
    use_engine_options(c->load.engine, c->device);
    c->execute();
  });
}

}  // namespace ddl
