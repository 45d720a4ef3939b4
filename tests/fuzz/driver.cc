// Runs a fuzz target without libFuzzer, so that every compiler and every CI run covers it briefly:
//   fuzz_x [RUNS]          that many mutations of its seeds, the same ones each time (default 2000)
//   fuzz_x FILE...         these inputs
#include "fuzz/driver.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "core/rng.h"

namespace {

const std::string* current = nullptr;

// Leaves the input that crashed as a file, then dies of the same signal.
extern "C" void save_input(int signal_number) {
  if (std::FILE* file = current ? std::fopen("fuzz-crash-input", "w") : nullptr) {
    std::fwrite(current->data(), 1, current->size(), file);
    std::fclose(file);
    std::fputs("the input is in ./fuzz-crash-input\n", stderr);
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void run(const std::string& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// Cuts, copies, overwrites with odd bytes and numbers. `draw` numbers the random choices.
std::string mutated(std::string text, const ddl::Random& random, std::uint64_t& draw) {
  static constexpr std::string_view kPieces[] = {"\"",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 "-1",
                                                 "4294967296",
                                                 "1e999",
                                                 "null",
                                                 "\\u0000",
                                                 "\xff",
                                                 "\xf4\x90\x80\x80",
                                                 " ",
                                                 "\n",
                                                 "==",
                                                 "0"};
  for (std::uint64_t n = 1 + random.below(draw++, 4); n > 0; --n) {
    const std::size_t at = random.below(draw++, text.size() + 1);
    const std::size_t length = std::min<std::size_t>(random.below(draw++, 12), text.size() - at);
    switch (random.below(draw++, 5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1: {
        const std::size_t from = random.below(draw++, text.size() + 1);
        text.insert(at, text.substr(from, 1 + random.below(draw++, 40)));
        break;
      }
      case 2:
        text.replace(at, length, kPieces[random.below(draw++, std::size(kPieces))]);
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random.bits(draw++));
        break;
      default:
        if (random.below(draw++, 8) == 0) text.resize(at);
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "2000";
  if (!std::all_of(first.begin(), first.end(), [](unsigned char c) { return std::isdigit(c); })) {
    for (int i = 1; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    return 0;
  }
  std::signal(SIGABRT, save_input);
  std::signal(SIGSEGV, save_input);
  const ddl::Random random(1, "fuzz");
  std::uint64_t draw = 0;
  const std::vector<std::string> seeds = fuzz_seeds();
  for (const std::string& seed : seeds) run(seed);
  const long runs = std::atol(first.c_str());
  for (long i = 0; i < runs; ++i)
    run(mutated(seeds[static_cast<std::size_t>(i) % seeds.size()], random, draw));
  std::printf("%ld mutations of %zu seeds\n", runs, seeds.size());
  return 0;
}
