// Preparing a dataset: what goes in comes out, once, shuffled, the same whatever the threads; and nothing
// that looks whole is left by a run that failed.
#include "data/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "core/sanitizer.h"
#include "data/dataset.h"
#include "io/sha256.h"
#include "pair_tokenizer.h"
#include "test_folder.h"

namespace ddl {
namespace {

const Exec kExec{.threads = 2};

std::string rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{{\"text\":\"document {} has {} words\"}}\n", i, i * i % 97);
  return text;
}

PrepareOptions options_for(const std::string& input, const std::string& out) {
  PrepareOptions options;
  options.inputs = {input};
  options.out = out;
  options.val_fraction = 0.1;
  return options;
}

// The texts of a split, in order.
std::vector<std::string> documents(const TokenStream& stream) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(stream.tokens()));
  stream.read(0, stream.tokens(), tokens.data());
  std::vector<std::string> texts;
  if (!tokens.empty() && tokens[0] != PairTokenizer::kEndOfText) {
    ADD_FAILURE() << "the first document does not begin with the end of text";
    return texts;
  }
  for (const TokenId token : tokens) {
    if (token == PairTokenizer::kEndOfText)
      texts.emplace_back();
    else
      texts.back() += PairTokenizer().decode({&token, 1});
  }
  return texts;
}

// Names and hashes: contents would flood a failure message.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().filename()] = sha256_file(entry.path());
  return files;
}

TEST(Prepare, EveryDocumentOnceShuffledWithAValidationSplit) {
  const TestFolder folder;
  const std::string input = folder.write("in.jsonl", rows(1000));
  const Json manifest = prepare_dataset(options_for(input, folder / "set"), PairTokenizer(), kExec);
  const Dataset dataset = Dataset::open(folder / "set", kExec);
  dataset.verify_hashes(kExec);
  EXPECT_EQ(dataset.vocab_size(), 257 + 676);
  EXPECT_EQ(dataset.end_of_text(), PairTokenizer::kEndOfText);
  EXPECT_EQ(dataset.form(), "ddl");
  EXPECT_EQ(manifest, dataset.manifest());

  const auto train = documents(dataset.train()), val = documents(dataset.val());
  std::multiset<std::string> found(train.begin(), train.end());
  found.insert(val.begin(), val.end());
  std::multiset<std::string> expected;
  for (int i = 0; i < 1000; ++i) expected.insert(fmt::format("document {} has {} words", i, i * i % 97));
  EXPECT_EQ(found, expected);
  EXPECT_NE(train.front(), "document 0 has 0 words");
  EXPECT_EQ(manifest["train"]["documents"], train.size());
  EXPECT_EQ(manifest["val"]["documents"], val.size());
  const double share = static_cast<double>(dataset.val().tokens()) /
                       static_cast<double>(dataset.val().tokens() + dataset.train().tokens());
  EXPECT_NEAR(share, 0.1, 0.002);
  // Shuffled: document numbers of the split are not in order more than half of the time.
  int rising = 0;
  for (std::size_t i = 1; i < train.size(); ++i)
    rising += std::stoi(train[i].substr(9)) > std::stoi(train[i - 1].substr(9));
  EXPECT_NEAR(rising / static_cast<double>(train.size()), 0.5, 0.1);
}

TEST(Prepare, BytesDoNotDependOnThreadsAndDoOnTheSeed) {
  const TestFolder folder;
  std::string text = rows(3000);
  std::string novel;  // a document of several pieces
  for (int i = 0; novel.size() < 1'500'000; ++i) novel += fmt::format("line {}\\nof the book", i);
  text += fmt::format("{{\"text\":\"{}\"}}\n", novel);
  const std::string input = folder.write("in.jsonl", text);
  std::map<std::string, std::string> first;
  for (const int threads : {1, 2, 3, 8}) {
    PrepareOptions options = options_for(input, folder / fmt::format("t{}", threads));
    options.name = "x";
    options.shard_tokens = 200'000;
    prepare_dataset(options, PairTokenizer(), Exec{.threads = threads});
    const auto files = files_of(options.out);
    EXPECT_GT(files.size(), 5u);
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << threads << " threads";
  }
  PrepareOptions options = options_for(input, folder / "other");
  options.name = "x";
  options.seed = 1;
  options.shard_tokens = 200'000;
  prepare_dataset(options, PairTokenizer(), kExec);
  const auto other = files_of(options.out);
  EXPECT_NE(other.at("x_val_000001.bin"), first.at("x_val_000001.bin"));
}

// A study's records are continued elsewhere with data made there.
TEST(Prepare, TheFingerprintDoesNotDependOnPaths) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "elsewhere");
  const auto fingerprint = [&](const std::string& input, const std::string& out) {
    prepare_dataset(options_for(input, folder / out), PairTokenizer(), kExec);
    return Dataset::open(folder / out, kExec).fingerprint();
  };
  const std::string first = fingerprint(folder.write("in.jsonl", rows(100)), "a");
  EXPECT_EQ(fingerprint(folder.write("elsewhere/text.jsonl", rows(100)), "b"), first);
  EXPECT_NE(fingerprint(folder.write("other.jsonl", rows(101)), "c"), first);
}

TEST(Prepare, ShardsAreFullButForTheLast) {
  const TestFolder folder;
  PrepareOptions options = options_for(folder.write("in.jsonl", rows(500)), folder / "my_train_set");
  options.shard_tokens = 1000;
  const Json manifest = prepare_dataset(options, PairTokenizer(), kExec);
  const auto& shards = manifest["train"]["shards"];
  ASSERT_GT(shards.size(), 3u);
  for (std::size_t i = 0; i + 1 < shards.size(); ++i) EXPECT_EQ(shards[i]["tokens"], 1000);
  EXPECT_EQ(shards[0]["file"], "my-train-set_train_000001.bin");
  // Without its manifest the folder is still what other programs expect.
  std::filesystem::remove(folder / "my_train_set/dataset.json");
  const Dataset plain = Dataset::open(folder / "my_train_set", kExec);
  EXPECT_EQ(plain.form(), "llm.c");
  EXPECT_EQ(plain.train().tokens(), manifest["train"]["tokens"].get<Index>());
  EXPECT_EQ(plain.val().tokens(), manifest["val"]["tokens"].get<Index>());
}

// Long enough for many pieces.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += fmt::format("line {}\n", i);
  return text;
}

TEST(Prepare, PiecesOfLongDocumentsComeBackInOrder) {
  const TestFolder folder;
  std::vector<std::string> texts = {long_text() + "of the first", long_text() + "of the second"};
  PrepareOptions options = options_for(folder.write("1.txt", texts[0]), folder / "set");
  options.inputs.push_back(folder.write("2.txt", texts[1]));
  options.val_fraction = 0;
  prepare_dataset(options, PairTokenizer(), kExec);
  auto found = documents(Dataset::open(folder / "set", kExec).train());
  std::sort(found.begin(), found.end());
  EXPECT_TRUE(found == texts);  // not EXPECT_EQ: megabytes of message
}

// Batches of 16 MB are in memory one at a time: their text, and its tokens in 32 bits (here one per byte). Long
// documents come to another place in every batch, where buffers that are kept would gather 50 MB per batch.
#ifndef DDL_ADDRESS_SANITIZER  // which keeps freed memory
TEST(Prepare, MemoryDoesNotFollowTheInput) {
  const TestFolder folder;
  constexpr int kBatches = 8, kLong = 40, kShort = 60'000;
  constexpr std::size_t kLongBytes = 256 * 1024, kShortBytes = 100;
  {
    FileWriter file(folder / "in.jsonl");
    const std::string long_row = "{\"text\":\"" + std::string(kLongBytes, 'A') + "\"}\n";
    const std::string short_row = "{\"text\":\"" + std::string(kShortBytes, 'B') + "\"}\n";
    for (int batch = 0; batch < kBatches; ++batch)
      for (int i = 0; i < kShort; ++i) file.write(i / kLong == batch ? long_row : short_row);
    file.flush();
  }
  const auto peak_mb = [] {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
  };
  const long before = peak_mb();
  prepare_dataset(options_for(folder / "in.jsonl", folder / "set"), PairTokenizer(), kExec);
  EXPECT_LT(peak_mb() - before, 256);
}
#endif

TEST(Prepare, ASingleTextHasAValidationSplitToo) {
  const TestFolder folder;
  const std::string text = long_text();
  prepare_dataset(options_for(folder.write("in.txt", text), folder / "set"), PairTokenizer(), kExec);
  const Dataset dataset = Dataset::open(folder / "set", kExec);
  const auto train = documents(dataset.train()), val = documents(dataset.val());
  ASSERT_EQ(train.size(), 1u);
  ASSERT_EQ(val.size(), 1u);
  EXPECT_TRUE(train[0] + val[0] == text);
  EXPECT_NEAR(static_cast<double>(val[0].size()), 0.1 * static_cast<double>(text.size()),
              0.02 * static_cast<double>(text.size()));
}

TEST(Prepare, AValidationInputOfItsOwn) {
  const TestFolder folder;
  PrepareOptions options = options_for(folder.write("in.jsonl", rows(50)), folder / "set");
  options.val_inputs = {folder.write("val.txt", "held out")};
  prepare_dataset(options, PairTokenizer(), kExec);
  const Dataset dataset = Dataset::open(folder / "set", kExec);
  EXPECT_EQ(documents(dataset.train()).size(), 50u);
  EXPECT_EQ(documents(dataset.val()), std::vector<std::string>{"held out"});
}

TEST(Prepare, WideTokensWhereTheVocabularyNeedsThem) {
  const TestFolder folder;
  PairTokenizer tokenizer;
  tokenizer.vocab_size_ = 65537;
  PrepareOptions options = options_for(folder.write("in.jsonl", rows(50)), folder / "set");
  options.val_fraction = 0;
  prepare_dataset(options, tokenizer, kExec);
  const Dataset dataset = Dataset::open(folder / "set", kExec);
  EXPECT_EQ(dataset.train().shards()[0].token_bytes(), 4);
  EXPECT_EQ(documents(dataset.train()).size(), 50u);
  EXPECT_EQ(dataset.val().tokens(), 0);
}

TEST(Prepare, AnswersArriveAtTheirTokens) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) {
    const std::string body = fmt::format("k{} is? {} end", i, i % 2 ? "yes" : "nope");
    const auto begin = body.find(i % 2 ? "yes" : "nope");
    text += fmt::format("{{\"text\":\"{}\",\"answers\":[[{},{}]]}}\n", body, begin, begin + (i % 2 ? 3 : 4));
  }
  text += "{\"text\":\"no question here\"}\n";
  PrepareOptions options = options_for(folder.write("in.jsonl", text), folder / "set");
  options.shard_tokens = 700;
  prepare_dataset(options, PairTokenizer(), kExec);
  const Dataset dataset = Dataset::open(folder / "set", kExec);
  ASSERT_TRUE(dataset.has_answers());
  dataset.verify_hashes(kExec);
  Index answers_seen = 0;
  for (const TokenStream* stream : {&dataset.train(), &dataset.val()}) {
    const Index n = stream->tokens();
    std::vector<TokenId> tokens(static_cast<std::size_t>(n));
    std::vector<std::uint8_t> marks(tokens.size());
    stream->read(0, n, tokens.data());
    stream->read_answers(0, n, marks.data());
    std::string answer;
    for (Index i = 0; i <= n; ++i) {
      if (i < n && marks[i] == 2) {
        ASSERT_FALSE(answer.empty());
      }
      if (i == n || marks[i] != 2) {
        EXPECT_TRUE(answer.empty() || answer == "yes" || answer == "nope") << answer;
        answer.clear();
      }
      if (i < n && marks[i] > 0) answer += PairTokenizer().decode({&tokens[i], 1});
      answers_seen += i < n && marks[i] == 1;
    }
  }
  EXPECT_EQ(answers_seen, 300);
}

TEST(Prepare, RefusesToOverwriteAndReplacesWhenTold) {
  const TestFolder folder;
  const std::string input = folder.write("in.jsonl", rows(20));
  PrepareOptions options = options_for(input, folder / "set");
  prepare_dataset(options, PairTokenizer(), kExec);
  const auto before = files_of(folder / "set");
  options.seed = 5;
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { prepare_dataset(options, PairTokenizer(), kExec); }), "--force"));
  EXPECT_EQ(files_of(folder / "set"), before);
  options.force = true;
  prepare_dataset(options, PairTokenizer(), kExec);
  EXPECT_NE(files_of(folder / "set"), before);
  EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
  // Never a folder that is not a dataset, whatever it is told.
  folder.write("home/letter.txt", "dear");
  options.out = folder / "home";
  EXPECT_TRUE(contains(message_of<UserError>([&] { prepare_dataset(options, PairTokenizer(), kExec); }),
                       "other things"));
  EXPECT_EQ(contents_of(folder / "home/letter.txt"), "dear");
  std::filesystem::create_directory(folder / "empty");
  options.out = folder / "empty/";
  prepare_dataset(options, PairTokenizer(), kExec);
  Dataset::open(folder / "empty", kExec);
}

TEST(Prepare, ForceRemovesADatasetOnly) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "{\"text\":\"is it? yes\",\"answers\":[[7,10]]}\n";
  PrepareOptions options = options_for(folder.write("in.jsonl", text), folder / "set");
  prepare_dataset(options, PairTokenizer(), kExec);
  options.force = true;
  prepare_dataset(options, PairTokenizer(), kExec);  // its own files, answers among them
  for (const char* name : {"run.json", "checkpoints/step_1/weights", "set_train_000099.bin"}) {
    const std::string other = folder.write(std::string("set/") + name, "mine");
    const std::string why = message_of<UserError>([&] { prepare_dataset(options, PairTokenizer(), kExec); });
    EXPECT_TRUE(contains(why, (folder / "set/") + std::string(name).substr(0, 3)) &&
                contains(why, "move it away"))
        << why;
    EXPECT_EQ(contents_of(other), "mine");
    EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
    std::filesystem::remove_all(folder / "set/" + std::string(name).substr(0, std::string(name).find('/')));
  }
  prepare_dataset(options, PairTokenizer(), kExec);
  folder.write("set/dataset.json", "{");
  EXPECT_TRUE(contains(message_of<UserError>([&] { prepare_dataset(options, PairTokenizer(), kExec); }),
                       "dataset.json: expected a JSON object"));
}

TEST(Prepare, AnErrorLeavesNothing) {
  const TestFolder folder;
  const auto fails = [&](PrepareOptions options) {
    const std::string why = message_of<UserError>([&] { prepare_dataset(options, PairTokenizer(), kExec); });
    EXPECT_FALSE(std::filesystem::exists(folder / "set"));
    EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
    return why;
  };
  const std::string bad = folder.write("bad.jsonl", fmt::format("{}{{\"text\":\n{}", rows(100), rows(5)));
  EXPECT_TRUE(contains(fails(options_for(bad, folder / "set")), "bad.jsonl:101:"));
  EXPECT_TRUE(contains(fails(options_for(folder.write("blank.txt", " \n"), folder / "set")), "no text"));
  EXPECT_TRUE(contains(fails(options_for(folder / "absent", folder / "set")), "absent"));
  PrepareOptions options = options_for(bad, folder / "set");
  options.val_fraction = 1;
  EXPECT_TRUE(contains(fails(options), "--val-fraction"));
  options.val_fraction = 0;
  options.shard_tokens = 0;
  EXPECT_TRUE(contains(fails(options), "--shard-tokens"));
  options.shard_tokens = 1000;
  options.corpus.skip_bad = 1;
  const Json manifest = prepare_dataset(options, PairTokenizer(), kExec);
  EXPECT_EQ(manifest["bad_rows_left_out"], 1);
  EXPECT_EQ(manifest["documents"], 105);
}

// Runs `body` in a child; its exit status.
template <class F>
int in_child(F&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Prepare, ADiskThatFillsUpLeavesNothing) {
  const TestFolder folder;
  const std::string input = folder.write("in.jsonl", rows(20000));
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{150'000, 150'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      prepare_dataset(options_for(input, folder / "set"), PairTokenizer(), Exec{.threads = 1});
      return 1;
    } catch (const UserError& error) {
      return contains(error.what(), folder / "set.partial") ? 0 : 2;  // the error names a file
    }
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "set"));
  EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
}

// A kill at many moments: there is a whole dataset or none, and the next run is not disturbed.
TEST(Prepare, AKilledRunNeverLooksWhole) {
  const TestFolder folder;
  const std::string input = folder.write("in.jsonl", rows(20000));
  PrepareOptions options = options_for(input, folder / "set");
  options.shard_tokens = 20'000;
  prepare_dataset(options, PairTokenizer(), Exec{.threads = 1});
  const auto whole = files_of(folder / "set");
  int killed_half_way = 0;
  for (int i = 0; i < 40; ++i) {
    std::filesystem::remove_all(folder / "set");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        prepare_dataset(options, PairTokenizer(), Exec{.threads = 1});
      } catch (...) {
      }
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i * i / 8));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (std::filesystem::exists(folder / "set")) {
      ASSERT_EQ(files_of(folder / "set"), whole);
    } else {
      ++killed_half_way;
      for (const char* name : {"set.partial", "set.partial/new"})
        if (std::filesystem::exists(folder / name)) {
          const std::string why = message_of<UserError>([&] { Dataset::open(folder / name, kExec); });
          EXPECT_TRUE(contains(why, "interrupted") || contains(why, "no dataset here")) << why;
        }
    }
  }
  EXPECT_GT(killed_half_way, 3) << "the test killed nothing";
  std::filesystem::remove_all(folder / "set");
  prepare_dataset(options, PairTokenizer(), Exec{.threads = 1});
  EXPECT_EQ(files_of(folder / "set"), whole);
  EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
}

}  // namespace
}  // namespace ddl
