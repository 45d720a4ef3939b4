// Models whose folders hold small weights: written by `ddl quantize`, loaded by every command, and damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "infer/load.h"
#include "infer/model_folder.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/oracle_model.h"
#include "model/packed_folder.h"
#include "test_folder.h"

namespace ddl::small_weights_test {
namespace {

constexpr Index kVocab = 264;

ModelConfig config_for(const std::string& residual) {
  ModelConfig m = model_config({.residual = residual});
  m.vocab = kVocab, m.width = 40, m.mlp = 0, m.context = 32;
  return m;
}

void write_model(const std::string& folder, const ModelConfig& config) {
  const Weights weights(config, 3, Exec{});
  make_folders(folder);
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  write_safetensors(folder + "/model.safetensors", tensors, {});
  write_file_atomic(folder + "/config.json", to_text(model_config_json(config)));
  load_tokenizer("bytes")->save(folder);
}

std::vector<float> logits(const std::string& folder, const LoadOptions& options) {
  const LoadedModel loaded = load_model(folder, options, Exec{});
  const auto decoder = make_decoder(loaded.weights, {}, Exec{});
  const auto x = tokens(13, 1, kVocab);
  std::vector<float> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]), size += double{a[i]} * a[i];
  return std::sqrt(squares / size);
}

TEST(SmallWeights, AFolderGivesTheLogitsOfQuantisingAtLoading) {
  for (const char* rule : {"baseline", "ddl-cc", "ddl-tc", "mhc"}) {
    const TestFolder folder;
    write_model(folder / "model", config_for(rule));
    const auto exact = logits(folder / "model", {});
    double before = 0;
    for (const char* format : {"bf16", "q8", "q4"}) {
      quantize_model(folder / "model", parse_weight_format(format), folder / format, Exec{});
      const auto small = logits(folder / "model", {.weights = format});
      EXPECT_EQ(logits(folder / format, {}), small) << rule << " " << format;
      EXPECT_EQ(logits(folder / format, {.weights = "auto"}), small) << "auto keeps what is stored";
      const double error = distance(exact, small);
      EXPECT_GT(error, before) << rule << ": fewer bits, larger errors";
      EXPECT_LT(error, 0.3) << rule << " " << format;
      before = error;
      // The reference engine sees the same weights: what is left is the rounding of activations.
      EXPECT_LT(distance(logits(folder / format, {.engine = "reference"}), small), 1e-3) << rule;
      // And f32 can hold what a small format stands for.
      EXPECT_LT(distance(logits(folder / format, {.weights = "f32"}), small), 1e-3) << rule;
    }
    EXPECT_EQ(logits(folder / "model", {.weights = "auto"}), logits(folder / "bf16", {})) << "auto is bf16";
    EXPECT_EQ(logits(folder / "model", {.precision = "f32", .weights = "auto"}), exact);
    EXPECT_LT(std::filesystem::file_size(folder / "q4/model.safetensors"),
              std::filesystem::file_size(folder / "q8/model.safetensors"));
  }
}

TEST(SmallWeights, WhatIsAskedForTwiceIsRefused) {
  const TestFolder folder;
  write_model(folder / "model", config_for("ddl-cc"));
  quantize_model(folder / "model", WeightFormat::kQ8, folder / "q8", Exec{});
  const auto error = [&](auto body) { return message_of<UserError>(body); };
  EXPECT_TRUE(contains(error([&] { load_model(folder / "model", {.precision = "f16"}, Exec{}); }),
                       "precision 'f16': expected auto, f32 or bf16"));
  EXPECT_TRUE(
      contains(error([&] { load_model(folder / "model", {.precision = "bf16", .weights = "q8"}, Exec{}); }),
               "leave one out"));
  // What is stored counts like what is asked for; f32 weights may be multiplied in bf16 again.
  for (const char* weights : {"", "auto", "q8"}) {
    const std::string refused =
        error([&] { load_model(folder / "q8", {.precision = "bf16", .weights = weights}, Exec{}); });
    EXPECT_TRUE(contains(refused, "stored as q8")) << weights << ": " << refused;
    EXPECT_EQ(load_model(folder / "q8", {.precision = "f32", .weights = weights}, Exec{}).weights.format(),
              WeightFormat::kQ8);
  }
  const LoadedModel wide = load_model(folder / "q8", {.precision = "bf16", .weights = "f32"}, Exec{});
  EXPECT_EQ(wide.weights.config().precision, Precision::kBf16);
  ASSERT_NE(wide.weights.copy(), nullptr);
  const LoadedModel plain = load_model(folder / "q8", {.precision = "f32", .weights = "f32"}, Exec{});
  EXPECT_TRUE(std::ranges::equal(wide.weights.values(), plain.weights.values()));
  EXPECT_EQ(wide.weights.copy()[100], to_bf16(plain.weights.values()[100]));
  EXPECT_TRUE(contains(error([&] { load_model(folder / "model", {.weights = "q5"}, Exec{}); }),
                       "there are f32, bf16, q8, q4"));
  EXPECT_TRUE(
      contains(error([&] { quantize_model(folder / "q8", WeightFormat::kQ4, folder / "again", Exec{}); }),
               "q8 already"));
  EXPECT_FALSE(std::filesystem::exists(folder / "again"));
  // An export is f32 again, and holds what the codes stand for.
  export_model(folder / "q8", Layout::kOwn, folder / "own", Exec{});
  EXPECT_EQ(logits(folder / "own", {}), logits(folder / "q8", {.weights = "f32"}));
}

class DamagedSmallWeights : public testing::TestWithParam<const char*> {
 protected:
  DamagedSmallWeights() {
    write_model(folder_ / "model", config_for("ddl-cc"));
    quantize_model(folder_ / "model", parse_weight_format(GetParam()), folder_ / "small", Exec{});
  }
  std::string file() const { return folder_ / "small/model.safetensors"; }
  std::string message() {
    return message_of<UserError>([&] { load_model(folder_ / "small", {}, Exec{}); });
  }
  TestFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(SmallWeights, DamagedSmallWeights, testing::Values("bf16", "q8", "q4"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(DamagedSmallWeights, ANumberThatIsNotFiniteIsRefusedByName) {
  const SafetensorsFile stored(file());
  const std::string name =
      std::string("transformer.h.1.mlp.c_proj.weight") + (std::string(GetParam()) == "bf16" ? "" : ".scales");
  const TensorInfo* tensor = stored.find(name);
  ASSERT_NE(tensor, nullptr);
  const std::string good = contents_of(file());
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof header);
  for (const std::uint16_t bits : {0x7fc0, 0x7f80, 0xff80}) {  // nan, inf, -inf
    std::string bytes = good;
    std::memcpy(bytes.data() + 8 + header + tensor->begin + tensor->byte_count - 2, &bits, 2);
    folder_.write("small/model.safetensors", bytes);
    const std::string found = message();
    EXPECT_TRUE(contains(found, name)) << found;
    EXPECT_TRUE(contains(found, "expected finite numbers")) << found;
  }
}

TEST_P(DamagedSmallWeights, AnyBytesAreRefusedOrLoaded) {
  const std::string good = contents_of(file());
  const Random random(5, GetParam());
  for (std::uint64_t i = 0; i < 60; ++i) {
    std::string bytes = good;
    // Half of the damage hits the header, which is a small part of the file.
    const std::uint64_t within = i % 2 ? std::min<std::uint64_t>(bytes.size(), 3000) : bytes.size();
    bytes[random.below(3 * i, within)] = static_cast<char>(random.bits(3 * i + 1));
    if (i % 7 == 0) bytes.resize(random.below(3 * i + 2, bytes.size()));
    folder_.write("small/model.safetensors", bytes);
    try {
      logits(folder_ / "small", {});
    } catch (const UserError&) {
    }
  }
}

TEST_P(DamagedSmallWeights, TheFormatIsTheConfigurations) {
  const std::string path = folder_ / "small/config.json", good = contents_of(path);
  const auto with = [&](const Json& value) {
    Json json = parse_json(good);
    if (value.is_null())
      json.erase("ddl_weights");
    else
      json["ddl_weights"] = value;
    folder_.write("small/config.json", to_text(json));
    return message_of<UserError>([&] { load_model(folder_ / "small", {}, Exec{}); });
  };
  EXPECT_TRUE(contains(with("q3"), "config.json: ddl_weights: no weight format 'q3'"));
  EXPECT_TRUE(contains(with(7), "ddl_weights"));
  const bool is_bf16 = std::string(GetParam()) == "bf16";
  EXPECT_TRUE(contains(with(is_bf16 ? "q8" : "bf16"), "transformer.wte.weight"));
  if (!is_bf16) {  // which can be read as f32
    EXPECT_TRUE(contains(with(nullptr), "transformer.wte.weight"));
  }
}

}  // namespace
}  // namespace ddl::small_weights_test
