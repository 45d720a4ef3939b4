// Loads a trained model and continues a text:   generate runs/stories "Once upon a time"
#include <ddl/ddl.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: generate MODEL PROMPT\n", stderr);
    return 2;
  }
  try {
    const ddl::Model model(argv[1]);  // a run, a checkpoint or a folder
    const auto show = [](std::string_view piece) { std::fwrite(piece.data(), 1, piece.size(), stdout); };
    show(argv[2]);
    model.generate(argv[2], {.max_new_tokens = 100, .temperature = 0.8, .seed = 7}, show);
    std::puts("");
  } catch (const ddl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
