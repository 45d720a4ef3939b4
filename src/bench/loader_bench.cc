#include "bench/loader_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/exec.h"
#include "core/json.h"
#include "core/record.h"
#include "core/rng.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr Index kVocab = 50257;
constexpr double kTarget = 50;  // times what training consumes

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A folder with one shard of random tokens, removed at the end.
class TemporaryDataset {
 public:
  explicit TemporaryDataset(Index tokens)
      : folder_((std::filesystem::temp_directory_path() / fmt::format("ddl_loader_bench_{}", ::getpid()))
                    .string()) {
    make_folders(folder_);
    ShardWriter writer(folder_ + "/bench_train_000001.bin", 2);
    const Random random(1, "loader bench");
    std::vector<TokenId> chunk;
    for (Index begin = 0; begin < tokens; begin += std::ssize(chunk)) {
      chunk.resize(static_cast<std::size_t>(std::min<Index>(1 << 20, tokens - begin)));
      for (std::size_t i = 0; i < chunk.size(); ++i)
        chunk[i] = static_cast<TokenId>(random.below(static_cast<std::uint64_t>(begin) + i, kVocab));
      writer.write(chunk);
    }
    writer.finish();
  }
  ~TemporaryDataset() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TemporaryDataset(const TemporaryDataset&) = delete;
  TemporaryDataset& operator=(const TemporaryDataset&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace

void run_loader_bench(const LoaderBenchOptions& options) {
  std::optional<TemporaryDataset> temporary;
  if (options.data.empty()) temporary.emplace(options.tokens);
  const auto open_start = std::chrono::steady_clock::now();
  const Exec ex = default_exec();
  const Dataset dataset = Dataset::open(temporary ? temporary->folder() : options.data, ex);
  if (temporary) dataset.check_vocab(kVocab, ex);  // opening a prepared dataset does this
  const double open_seconds = seconds_since(open_start);

  const bool known = options.consumed_tokens_per_s > 0;
  if (!options.json)
    std::printf(
        "loader: %td tokens, %td rows x %td, one thread; opened and checked in %.3f s\n%-8s %16s %14s%s\n",
        dataset.train().tokens(), options.rows, options.context, open_seconds, "order", "tokens/s",
        "us per batch", known ? "  x what training consumes" : "");
  for (const WindowOrder order : {WindowOrder::kEpoch, WindowOrder::kRandom}) {
    LoaderOptions loader_options;
    loader_options.rows = options.rows;
    loader_options.context = options.context;
    loader_options.order = order;
    const Loader loader(dataset.train(), dataset.end_of_text(), loader_options);
    Batch batch;
    std::uint64_t check = 0;  // keeps the work from being left out, and tells one result from another
    Index step = 0;
    const auto start = std::chrono::steady_clock::now();
    double elapsed = 0;
    do {
      for (int i = 0; i < 16; ++i) {
        loader.load(step++, batch);
        check = check * 31 + static_cast<std::uint64_t>(batch.inputs_BT.front() + batch.targets_BT.back());
      }
      elapsed = seconds_since(start);
    } while (elapsed < options.seconds);
    const double rate = static_cast<double>(step * options.rows * options.context) / elapsed;
    Json record = make_record("bench_loader");
    record["order"] = name_of(order);
    record["rows"] = options.rows;
    record["context"] = options.context;
    record["dataset_tokens"] = dataset.train().tokens();
    record["open_seconds"] = open_seconds;
    record["steps"] = step;
    record["tokens_per_s"] = rate;
    record["batch_us"] = 1e6 * elapsed / static_cast<double>(step);
    record["check"] = check;
    if (known) record["times_consumed"] = rate / options.consumed_tokens_per_s;
    record["target_times_consumed"] = kTarget;
    if (options.json) {
      std::printf("%s\n", to_line(record).c_str());
    } else {
      std::printf("%-8s %16.3e %14.2f", name_of(order).c_str(), rate, record["batch_us"].get<double>());
      if (known) std::printf("  %.0f", record["times_consumed"].get<double>());
      std::printf("\n");
    }
  }
  if (!options.json)
    std::printf("target: %.0f times what training consumes%s\n", kTarget,
                known ? "" : "; compare with --consumed TOKENS_PER_SECOND");
}

}  // namespace ddl
