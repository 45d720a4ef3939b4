// ./ddl generate: text from a trained model.
#include "infer/generate.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
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

void add_generate_command(CLI::App& app) {
  auto c = std::make_shared<GenerateCommand>();
  CLI::App* generate = app.add_subcommand("generate", "Text from a trained model");
  generate->add_option("run", c->run, "A run, a checkpoint, or a folder with config.json and weights")
      ->required();
  generate->add_option("dash", c->dash, "- reads the prompt from standard input")
      ->check(CLI::IsMember({"-"}));
  CLI::Option* prompt = generate->add_option("--prompt", c->prompt, "The text to continue");
  generate->add_option("--prompt-file", c->prompt_file, "A file with the text to continue")->excludes(prompt);
  generate->add_option("--max-new-tokens", c->options.max_new_tokens, "At most this many tokens")
      ->capture_default_str();
  SamplerOptions& s = c->options.sampling;
  generate->add_option("--temperature", s.temperature, "0: always the most likely token")
      ->capture_default_str();
  generate->add_option("--top-k", s.top_k, "Only the k most likely tokens; 0: all")->capture_default_str();
  generate->add_option("--top-p", s.top_p, "Only the most likely tokens that hold this share")
      ->capture_default_str();
  generate->add_option("--min-p", s.min_p, "Only tokens this likely, relative to the most likely")
      ->capture_default_str();
  generate
      ->add_option("--repetition-penalty", s.repetition_penalty,
                   "Above 1: tokens seen before are less likely")
      ->capture_default_str();
  generate->add_option("--seed", s.seed, "The same seed gives the same text")->capture_default_str();
  generate->add_option("--stop", c->options.stop, "End before this string (may be repeated)")
      ->allow_extra_args(false);
  generate->add_option("--num", c->num, "How many texts")->capture_default_str();
  generate->add_flag("--slide", c->options.slide, "Go on past the context with its last half");
  generate->add_option("--precision", c->precision, "auto, f32 or bf16 (default: as trained)")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
  generate->add_flag("--json", c->json, "One JSON record per text");
  generate->callback([c, prompt] {
    c->has_prompt = prompt->count() > 0;
    c->execute();
  });
}

}  // namespace ddl
