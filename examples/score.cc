// How likely a model finds a text, token by token:   score runs/stories "Tom had a red ball."
#include <ddl/ddl.h>

#include <cmath>
#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: score MODEL TEXT\n", stderr);
    return 2;
  }
  try {
    const ddl::Model model(argv[1]);
    double sum = 0;
    const auto scores = model.score(argv[2]);
    for (const ddl::TokenScore& s : scores) {
      std::printf("%8.3f %s %s\n", s.log_probability, s.most_likely ? "*" : " ",
                  model.decode({s.token}).c_str());
      sum += s.log_probability;
    }
    if (!scores.empty())
      std::printf("%8.3f   mean of %zu tokens, perplexity %.2f\n", sum / static_cast<double>(scores.size()),
                  scores.size(), std::exp(-sum / static_cast<double>(scores.size())));
  } catch (const ddl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
