// ./ddl generate: text from a trained model.
#include "infer/generate.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "cli/commands.h"
#include "core/record.h"
#include "infer/load.h"
#include "io/file.h"

namespace ddl {
namespace {

struct GenerateCommand {
  std::string run, prompt, prompt_file, dash, precision;
  bool has_prompt = false;
  Index num = 1;
  bool json = false;
  GenerateOptions options;

  void execute() {
    options.sampling.check();
    if (num < 1) throw UserError("--num: expected 1 or more, found {}", num);
    if (options.max_new_tokens < 0)
      throw UserError("--max-new-tokens: expected 0 or more, found {}", options.max_new_tokens);
    const Exec ex = default_exec();
    const LoadedModel loaded = load_model(run, precision, ex);
    const auto decoder = make_decoder(*loaded.model, {.slots = std::min<Index>(num, kSideBySide)}, ex);
    const auto once = [&](const std::string& text) { answer(*decoder, *loaded.tokenizer, text, ex); };
    if (!prompt_file.empty())
      once(read_file(prompt_file));
    else if (has_prompt)
      once(prompt);
    else if (dash == "-" || isatty(STDIN_FILENO) == 0)
      once(std::string(std::istreambuf_iterator<char>(std::cin), {}));
    else
      converse(loaded, once);
  }

 private:
  static constexpr Index kSideBySide = 16;

  template <class Once>
  void converse(const LoadedModel& loaded, const Once& once) {
    std::fprintf(stderr, "%s: %s, %s. A line is a prompt; an empty line or Ctrl-D ends.\n",
                 loaded.folder.c_str(), loaded.model->config().residual.c_str(),
                 loaded.tokenizer->name().c_str());
    for (std::string line; std::fprintf(stderr, "> "), std::getline(std::cin, line) && !line.empty();) {
      once(line);
      ++options.sampling.seed;  // the same prompt again: another text
    }
  }

  void answer(Decoder& decoder, const Tokenizer& tokenizer, const std::string& text, const Exec& ex) {
    const bool streams = num == 1 && !json;
    const auto show = [&](Index, std::string_view piece) {
      if (!streams) return;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
    const auto notice = [](const std::string& sentence) {
      std::fprintf(stderr, "\nddl: %s\n", sentence.c_str());
    };
    if (streams) show(0, text);
    const auto texts = generate(decoder, tokenizer, text, num, options, {show, notice}, ex);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Generation& g = texts[i];
      if (json) {
        Json record = make_record("generation");
        record["index"] = i;
        record["prompt"] = text;
        record["text"] = g.text;
        record["ended"] = g.ended;
        record["prompt_tokens"] = g.prompt_tokens;
        record["new_tokens"] = g.new_tokens;
        record["seed"] = options.sampling.seed;
        std::puts(to_line(record).c_str());
      } else if (streams) {
        std::puts("");
      } else {
        fmt::print("--- {} of {}\n{}{}\n", i + 1, texts.size(), text, g.text);
      }
    }
    std::fflush(stdout);
  }
};

}  // namespace

void add_generate_command(Command app) {
  auto c = std::make_shared<GenerateCommand>();
  Command generate = app.add_command("generate", "Text from a trained model");
  generate.add_option("run", c->run, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  generate.add_option("dash", c->dash, "- reads the prompt from standard input").one_of({"-"});
  const Option prompt = generate.add_option("--prompt", c->prompt, "The text to continue");
  generate.add_option("--prompt-file", c->prompt_file, "A file with the text to continue").excludes(prompt);
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
  generate.add_option("--seed", s.seed, "The same seed gives the same text").show_default();
  generate.add_option("--stop", c->options.stop, "End before this string (may be repeated)").one_value_each();
  generate.add_option("--num", c->num, "How many texts").show_default();
  generate.add_flag("--slide", c->options.slide, "Go on past the context with its last half");
  generate.add_option("--precision", c->precision, "auto, f32 or bf16 (default: as trained)")
      .one_of({"auto", "f32", "bf16"});
  generate.add_flag("--json", c->json, "One JSON record per text");
  generate.on_run([c, prompt] {
    c->has_prompt = prompt.given();
    c->execute();
  });
}

}  // namespace ddl
