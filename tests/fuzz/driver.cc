// Runs a fuzz target without a fuzzing engine: every seed file, then mutations of them from a fixed random
// stream, for a number of runs. With clang, build the target with -fsanitize=fuzzer instead and this file is
// not needed.
//   target SEED_FOLDER [RUNS]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void mutate(std::string& input, const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto at = [&](std::size_t size) { return size == 0 ? 0 : random() % size; };
  switch (random() % 6) {
    case 0:
      if (!input.empty()) input[at(input.size())] = static_cast<char>(random());
      break;
    case 1:
      if (!input.empty()) input[at(input.size())] ^= static_cast<char>(1u << random() % 8);
      break;
    case 2:
      input.erase(at(input.size()), 1 + random() % 16);
      break;
    case 3:
      input.insert(at(input.size()), 1 + random() % 4, static_cast<char>(random()));
      break;
    case 4:
      input.resize(at(input.size() + 1));
      break;
    default: {
      const std::string& other = seeds[random() % seeds.size()];
      const std::size_t from = at(other.size());
      input.insert(at(input.size()), other.substr(from, 1 + random() % 64));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER [RUNS]\n", argv[0]);
    return 2;
  }
  const long runs = argc > 2 ? std::atol(argv[2]) : 20000;
  std::vector<std::string> seeds{""};
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (seeds.size() < 2) {
    std::fprintf(stderr, "%s: no seeds\n", argv[1]);
    return 2;
  }
  const auto run = [](const std::string& input) {
    // A copy of the exact size, so that a sanitizer sees a read beyond the end.
    const std::vector<std::uint8_t> bytes(input.begin(), input.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  };
  for (const std::string& seed : seeds) run(seed);
  std::mt19937 random(1);
  for (long i = 0; i < runs; ++i) {
    std::string input = seeds[random() % seeds.size()];
    for (auto edits = 1 + random() % 8; edits > 0; --edits) mutate(input, seeds, random);
    run(input);
  }
  std::printf("%ld runs, %zu seeds\n", runs, seeds.size());
  return 0;
}
