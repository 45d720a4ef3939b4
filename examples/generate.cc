// Loads a trained model and continues a text:   generate runs/stories "Once upon a time"
#include <ddl/generate.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: generate MODEL PROMPT\n", stderr);
    return 2;
  }
  try {
    const ddl::Exec ex = ddl::default_exec();                          // a thread per core
    const ddl::LoadedModel loaded = ddl::load_model(argv[1], "", ex);  // a run, a checkpoint or a folder
    const auto decoder = ddl::make_decoder(*loaded.model, {.slots = 1}, ex);

    ddl::GenerateOptions options;
    options.max_new_tokens = 100;
    options.sampling.temperature = 0.8;
    options.sampling.seed = 7;

    const auto show = [](ddl::Index, std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
    };
    show(0, argv[2]);
    ddl::generate(*decoder, *loaded.tokenizer, argv[2], 1, options, {.text = show}, ex);
    std::puts("");
  } catch (const ddl::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
