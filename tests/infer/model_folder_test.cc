// Models in folders: out and in through the functions behind `ddl export`, `ddl import` and every command
// that loads one; and folders that are damaged, which must give one error that names the file and the tensor.
#include "infer/model_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <limits>
#include <set>

#include "infer/load.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/oracle_model.h"
#include "model/reference_layout.h"
#include "test_folder.h"

namespace ddl {
namespace {

constexpr Index kExchangeVocab = 264;  // 256 bytes, end of text, padding

ModelConfig config_for(const std::string& residual) {
  ModelConfig m = model_config({.residual = residual, .compressor = "block"});
  m.vocab = kExchangeVocab, m.mlp = 0;
  return m;
}

// A folder as a run's checkpoint is, without the optimizer. Returns its tensors' table.
ParamTable write_model(const std::string& folder, const ModelConfig& config) {
  const Weights weights = scrambled_weights(config);
  make_folders(folder);
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  write_safetensors(folder + "/model.safetensors", tensors, {});
  write_file_atomic(folder + "/config.json", to_text(model_config_json(config)));
  load_tokenizer("bytes")->save(folder);
  return weights.table();
}

// After every token of a text, as `generate` would see them.
std::vector<float> logits(const std::string& folder) {
  const LoadedModel loaded = load_model(folder, {}, Exec{});
  const auto decoder = make_decoder(loaded.weights, {.slots = 1}, Exec{});
  const auto x = tokens(13, 1, kExchangeVocab);
  std::vector<float> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

TEST(Exchange, ExportThenImportGivesTheSameLogitsForEveryRule) {
  std::set<std::string> released;
  for (const std::string& rule : rule_names()) {
    const TestFolder folder;
    write_model(folder / "model", config_for(rule));
    const std::vector<float> before = logits(folder / "model");
    ASSERT_EQ(before.size(), static_cast<std::size_t>(13 * kExchangeVocab));
    EXPECT_EQ(export_model(folder / "model", Layout::kOwn, folder / "own", Exec{}).config.residual(), rule);
    EXPECT_EQ(logits(folder / "own"), before) << rule;
    if (!why_not_in_reference(config_for(rule)).empty()) {
      EXPECT_TRUE(contains(message_of<UserError>([&] {
                             export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
                           }),
                           "cannot express"));
      EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "nothing is written";
      continue;
    }
    released.insert(rule);
    export_model(folder / "model", Layout::kReference, folder / "released", Exec{});
    EXPECT_EQ(logits(folder / "released"), before) << rule << ", read as it is";
    const WrittenModel back = import_model(folder / "released", "", folder / "back", Exec{});
    EXPECT_TRUE(back.has_tokenizer);
    EXPECT_EQ(back.config.residual(), rule);
    EXPECT_EQ(logits(folder / "back"), before) << rule;
    EXPECT_EQ(contents_of(folder / "back/tokenizer.json"), contents_of(folder / "model/tokenizer.json"));
    for (const char* file : {"generation_config.json", "tokenizer_config.json"})
      EXPECT_TRUE(std::filesystem::exists(folder / "back" + std::string("/") + file)) << file;
  }
  EXPECT_EQ(released,
            (std::set<std::string>{"baseline", "ddl-dv1", "ddl-tc-noec", "ddl-cc-noec", "ddl-tc", "ddl-cc"}));
}

TEST(Exchange, AnswersOddRequests) {
  const TestFolder folder;
  write_model(folder / "model", config_for("ddl-tc"));
  const auto error = [](auto body) { return message_of<UserError>(body); };
  EXPECT_TRUE(contains(error([&] { import_model(folder / "model", "", folder / "x", Exec{}); }),
                       "already in this program's layout"));
  EXPECT_TRUE(contains(error([&] { export_model(folder / "none", Layout::kOwn, folder / "x", Exec{}); }),
                       "no such folder"));
  EXPECT_TRUE(contains(error([&] { export_model(folder / "model", Layout::kOwn, folder / "model", Exec{}); }),
                       "not empty"));
  folder.write("file", "");
  EXPECT_TRUE(contains(error([&] { export_model(folder / "model", Layout::kOwn, folder / "file", Exec{}); }),
                       "is a file"));
  // Without a tokenizer weights still move; text needs one.
  std::filesystem::remove(folder / "model/tokenizer.json");
  EXPECT_FALSE(export_model(folder / "model", Layout::kReference, folder / "bare", Exec{}).has_tokenizer);
  EXPECT_TRUE(contains(error([&] { load_model(folder / "bare", {}, Exec{}); }), "--tokenizer"));
  EXPECT_EQ(load_model(folder / "bare", {.tokenizer = "bytes"}, Exec{}).tokenizer->vocab_size(), 257);
  EXPECT_FALSE(load_model(folder / "bare", {.missing_tokenizer = LoadOptions::kAccept}, Exec{}).tokenizer);
}

// Killed in the middle of the weights, by a file that may not grow: there is no folder, and the next one is
// not disturbed.
TEST(Exchange, OneThatWasKilledDoesNotBlockTheNext) {
  const TestFolder folder;
  write_model(folder / "model", config_for("ddl-cc"));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{1000, 1000}, no_core{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &limit), ::setrlimit(RLIMIT_CORE, &no_core);
    export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  export_model(folder / "model", Layout::kReference, folder / "out", Exec{});
  EXPECT_EQ(logits(folder / "out"), logits(folder / "model"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.partial"));
}

// --- damaged folders

class Damaged : public ::testing::Test {
 protected:
  Damaged() : table_(write_model(folder_ / "model", config_for("ddl-cc"))) {}

  std::string weights() const { return folder_ / "model/model.safetensors"; }
  std::string message() {
    return message_of<UserError>([&] { load_model(folder_ / "model", {}, Exec{}); });
  }
  // Writes the weights again with a header that was changed.
  template <class Change>
  void change_header(Change change) {
    const std::string bytes = contents_of(weights());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    Json header = parse_json(std::string_view(bytes).substr(8, length));
    change(header);
    const std::string text = to_line(header), data = bytes.substr(8 + length);
    length = text.size();
    folder_.write("model/model.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
  }
  void expect_names(const std::string& found, std::initializer_list<const char*> parts) {
    EXPECT_TRUE(contains(found, "model.safetensors")) << found;
    for (const char* part : parts) EXPECT_TRUE(contains(found, part)) << found << "\nlacks " << part;
  }

  TestFolder folder_;
  ParamTable table_;
};

TEST_F(Damaged, NotANumber) {
  std::string bytes = contents_of(weights());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  folder_.write("model/model.safetensors", bytes);
  expect_names(message(), {table_.list().back().name.c_str(), "nan", "expected finite numbers"});
}

TEST_F(Damaged, Truncated) {
  std::string bytes = contents_of(weights());
  for (const std::size_t size : {bytes.size() - 1, bytes.size() / 2, std::size_t{20}, std::size_t{3}}) {
    folder_.write("model/model.safetensors", bytes.substr(0, size));
    expect_names(message(), {"not a valid safetensors file"});
  }
}

TEST_F(Damaged, HeadersThatLie) {
  const std::string good = contents_of(weights());
  const auto again = [&] { folder_.write("model/model.safetensors", good); };
  change_header([](Json& h) { h["ln_f.weight"]["data_offsets"][0] = 0; });
  expect_names(message(), {"ln_f.weight"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["shape"] = {Index{1} << 60, Index{1} << 60}; });
  expect_names(message(), {"ln_f.weight", "needs more than the file's"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["dtype"] = "F7"; });
  expect_names(message(), {"ln_f.weight", "unknown dtype 'F7'"});
  again();
  change_header([](Json& h) { h["ln_f.weight"]["shape"] = {2, 4}; });
  expect_names(message(), {"ln_f.weight", "F32 [2, 4]", "expected F32 [8]"});
  again();
  change_header([](Json& h) {  // the same bytes under another name
    h["other"] = h["ln_f.weight"];
    h.erase("ln_f.weight");
  });
  expect_names(message(), {"ln_f.weight", "missing", "expected F32 [8]"});
  again();
  const std::string deep(100000, '[');
  folder_.write("model/model.safetensors", std::string("\xff\xff\0\0\0\0\0\0{\"a\":", 13) + deep);
  expect_names(message(), {"not a JSON object"});
}

// A small file whose configuration asks for gigabytes: refused before anything is allocated.
TEST_F(Damaged, AConfigurationLargerThanItsWeights) {
  ModelConfig config = config_for("ddl-cc");
  config.width = 4096, config.layers = 24;
  folder_.write("model/config.json", to_text(model_config_json(config)));
  const std::string found = message();
  expect_names(found, {"transformer.wte.weight", "F32 [264, 8]", "expected F32 [264, 4096]"});
}

TEST_F(Damaged, Configurations) {
  const auto with = [&](const std::string& text) {
    folder_.write("model/config.json", text);
    return message();
  };
  EXPECT_TRUE(contains(with(""), "config.json: not a JSON object"));
  EXPECT_TRUE(contains(with("{\"ddl\":{\"layers\":" + std::string(100000, '[')), "not a JSON object"));
  EXPECT_TRUE(contains(with(std::string(1 << 20, ' ')), "too large for a model's configuration"));
  EXPECT_TRUE(contains(with("{}"), "expected \"ddl\""));
  EXPECT_TRUE(contains(with(R"({"ddl":{"layers":-1}})"), "model.layers is -1"));
  EXPECT_TRUE(contains(with(R"({"ddl":{"layer":1}})"), "did you mean 'model.layers'"));
  EXPECT_TRUE(contains(with(R"({"ddl":{"heads":3}})"), "config.json: model.heads is 3"));
  Json json = model_config_json(config_for("ddl-cc"));
  json["vocab_size"] = 5;
  EXPECT_TRUE(contains(with(to_line(json)), "vocab_size is 5"));
}

}  // namespace
}  // namespace ddl
