#include "bench/tokenizer_bench.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "core/index.h"
#include "core/record.h"
#include "core/rng.h"
#include "data/bpe_train.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

constexpr std::size_t kGeneratedBytes = std::size_t{20} << 20;
constexpr std::size_t kEncodedBytes = std::size_t{8} << 20;
constexpr Index kTrainedVocab = 8192;
constexpr double kEncodeTarget = 10;       // MB/s on one core
constexpr double kTrainTarget = 20. / 20;  // seconds per MB: 20 MB in 20 s

double seconds_of(FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Made-up words out of syllables, drawn by Zipf's law as words of a language are, in sentences.
std::string generated_text(std::size_t bytes) {
  constexpr Index kWords = 60000;
  const Random random(1, "tokenizer bench");
  std::vector<std::string> words;
  std::uint64_t draw = 0;
  for (Index w = 0; w < kWords; ++w) {
    const std::uint64_t syllables = 1 + random.below(draw++, w < 200 ? 2 : 4);
    std::string word;
    for (std::uint64_t s = 0; s < syllables; ++s) {
      word += "tnshrdlcmwfgypbvk"[random.below(draw++, 17)];
      word += "eaoiu"[random.below(draw++, 5)];
      if (random.below(draw++, 3) == 0) word += "nrstld"[random.below(draw++, 6)];
    }
    words.push_back(word);
  }
  std::string text;
  bool sentence_start = true;
  while (text.size() < bytes) {
    // rank = kWords^u has density 1 / rank
    const double rank = std::pow(static_cast<double>(kWords), random.uniform(draw++)) - 1;
    std::string word = words[static_cast<std::size_t>(rank)];
    if (sentence_start) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    text += word;
    const std::uint64_t end = random.below(draw++, 60);
    sentence_start = end < 4;
    text += end == 0 ? ".\n" : end < 4 ? ". " : end < 8 ? ", " : end == 8 ? "'s " : " ";
  }
  return text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError("{}: cannot be read", path);
  std::string text;
  if (path.ends_with(".jsonl")) {
    std::string line;
    for (Index number = 1; std::getline(file, line); ++number) {
      const auto row = parse_json(line);
      if (!row.is_object() || !row.contains("text") || !row["text"].is_string())
        throw UserError("{}:{}: expected a JSON object with a string \"text\"", path, number);
      text += row["text"].get_ref<const std::string&>() + "\n";
    }
  } else {
    std::ostringstream all;
    all << file.rdbuf();
    text = std::move(all).str();
  }
  if (text.empty()) throw UserError("{}: expected text, found none", path);
  return text;
}

}  // namespace

void run_tokenizer_bench(const TokenizerBenchOptions& options) {
  const Exec exec = default_exec();
  const std::string text = options.text.empty() ? generated_text(kGeneratedBytes) : read_text(options.text);
  const std::string source = options.text.empty() ? "generated" : options.text;

  std::unique_ptr<Tokenizer> trained;
  const double train_s = seconds_of([&] {
    WordCounter words(exec);
    words.add(text);
    trained = std::make_unique<BpeTokenizer>(train_bpe(words, kTrainedVocab));
  });
  Json train_record = make_record("bench_tokenizer_train");
  train_record["text"] = source;
  train_record["mb"] = static_cast<double>(text.size()) / 1e6;
  train_record["vocab_size"] = trained->vocab_size();
  train_record["threads"] = exec.threads;
  train_record["seconds"] = train_s;
  train_record["target_seconds"] = kTrainTarget * static_cast<double>(text.size()) / 1e6;

  const auto loaded = options.tokenizer.empty() ? std::move(trained) : load_tokenizer(options.tokenizer);
  const std::string_view sample = std::string_view(text).substr(0, kEncodedBytes);
  const double sample_mb = static_cast<double>(sample.size()) / 1e6;
  std::vector<TokenId> ids;
  std::string back;
  const double encode_mb_s = sample_mb / time_it([&] {
                                           ids.clear();
                                           loaded->encode(sample, ids);
                                         }).median_s;
  const double decode_mb_s = sample_mb / time_it([&] { back = loaded->decode(ids); }).median_s;
  std::string buffer;
  DDL_CHECK(back == loaded->normalized(sample, buffer), "decode(encode(x)) != x for {} with {}", source,
            loaded->name());
  Json encode_record = make_record("bench_tokenizer_encode");
  encode_record["text"] = source;
  encode_record["tokenizer"] = options.tokenizer.empty() ? "trained" : options.tokenizer;
  encode_record["name"] = loaded->name();
  encode_record["mb"] = sample_mb;
  encode_record["bytes_per_token"] = static_cast<double>(sample.size()) / static_cast<double>(ids.size());
  encode_record["encode_mb_per_s_core"] = encode_mb_s;
  encode_record["target_encode_mb_per_s_core"] = kEncodeTarget;
  encode_record["decode_mb_per_s_core"] = decode_mb_s;

  if (options.json) {
    fmt::print("{}\n{}\n", to_line(train_record), to_line(encode_record));
    return;
  }
  fmt::print("tokenizer on {} text\n", source);
  fmt::print("  train   {:8.2f} s       target {:.1f} s; {} tokens from {:.1f} MB, {} threads\n", train_s,
             train_record["target_seconds"].get<double>(), train_record["vocab_size"].get<Index>(),
             train_record["mb"].get<double>(), exec.threads);
  fmt::print("  encode  {:8.1f} MB/s    target {:.0f} MB/s; one core, {} ({:.2f} bytes per token)\n",
             encode_mb_s, kEncodeTarget, loaded->name(), encode_record["bytes_per_token"].get<double>());
  fmt::print("  decode  {:8.1f} MB/s    one core\n", decode_mb_s);
}

}  // namespace ddl
