// GGUF files: bytes as the format's description has them, numbers back as they went in, and files that lie.
#include "io/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/rng.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::vector<float> normal_numbers(Index count) {
  std::vector<float> numbers;
  const Random random(3, "gguf");
  for (Index i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
  return numbers;
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// A file written out by hand, from the description of the format.
class ByHand {
 public:
  template <class T>
  ByHand& number(T value) {
    text += std::string(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ByHand& string(const std::string& value) {
    number<std::uint64_t>(value.size());
    text += value;
    return *this;
  }
  std::string text;
};

TEST(Gguf, HasTheBytesOfTheDescription) {
  const TestFolder folder;
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  write_gguf(folder / "a.gguf",
             {{"general.architecture", std::string("x")},
              {"n", std::uint32_t{7}},
              {"list", std::vector<std::string>{"a"}}},
             {{"w", GgufType::kF32, {2, 3}, numbers.data()}});
  ByHand expected;
  expected.text = "GGUF";
  expected.number<std::uint32_t>(3).number<std::uint64_t>(1).number<std::uint64_t>(3);
  expected.string("general.architecture").number<std::uint32_t>(8).string("x");
  expected.string("n").number<std::uint32_t>(4).number<std::uint32_t>(7);
  expected.string("list").number<std::uint32_t>(9).number<std::uint32_t>(8).number<std::uint64_t>(1).string(
      "a");
  // The fastest dimension comes first: a row has three numbers.
  expected.string("w").number<std::uint32_t>(2).number<std::uint64_t>(3).number<std::uint64_t>(2);
  expected.number<std::uint32_t>(0).number<std::uint64_t>(0);
  expected.text.resize((expected.text.size() + 31) / 32 * 32, '\0');
  for (const float x : numbers) expected.number(x);
  expected.text.resize((expected.text.size() + 31) / 32 * 32, '\0');
  EXPECT_EQ(contents_of(folder / "a.gguf"), expected.text);
}

TEST(Gguf, NumbersComeBack) {
  const TestFolder folder;
  const std::vector<float> matrix = normal_numbers(3 * 64), vector = normal_numbers(5);
  for (const GgufType type : {GgufType::kF32, GgufType::kF16, GgufType::kBf16, GgufType::kQ8}) {
    const std::string path = folder / (gguf_type_name(type) + ".gguf");
    write_gguf(path, {{"f", 0.5f}, {"b", true}, {"i", std::vector<std::int32_t>{-1, 2}}},
               {{"matrix", type, {3, 64}, matrix.data()}, {"vector", GgufType::kF32, {5}, vector.data()}});
    const GgufFile file(path);
    EXPECT_EQ(file.keys(), parse_json(R"({"f":0.5,"b":true,"i":[-1,2]})"));
    std::vector<float> back(matrix.size()), back_vector(vector.size());
    file.read("matrix", std::vector<Index>{3, 64}, back.data());
    file.read("vector", std::vector<Index>{5}, back_vector.data());
    EXPECT_EQ(back_vector, vector);
    for (std::size_t b = 0; b < matrix.size(); b += 32) {
      float largest = 0;
      for (std::size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(matrix[i]));
      for (std::size_t i = b; i < b + 32; ++i) {
        // Half a unit of the last place; of Q8_0 half a step, and the rounding of the scale to half precision.
        const float bound = type == GgufType::kF32    ? 0
                            : type == GgufType::kF16  ? std::abs(matrix[i]) * 0x1p-11f
                            : type == GgufType::kBf16 ? std::abs(matrix[i]) * 0x1p-8f
                                                      : largest / 127 * (0.5f + 127 * 0x1p-11f);
        EXPECT_LE(std::abs(back[i] - matrix[i]), bound * 1.001f) << gguf_type_name(type) << " " << i;
      }
    }
  }
}

// Every half-precision number is itself; between two of them the nearer one, and of equally near ones the even one.
TEST(Gguf, HalfPrecision) {
  std::vector<std::byte> bytes(2);
  const auto value = [&](std::uint16_t bits) {
    float x = 0;
    std::memcpy(bytes.data(), &bits, 2);
    gguf_decode(GgufType::kF16, bytes, &x);
    return x;
  };
  const auto nearest = [&](float x) {
    gguf_encode(GgufType::kF16, {&x, 1}, bytes);
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data(), 2);
    return bits;
  };
  EXPECT_EQ(value(0x3c00), 1.0f);
  EXPECT_EQ(value(0x0001), 0x1p-24f);
  EXPECT_EQ(value(0x7bff), 65504.0f);
  EXPECT_EQ(value(0xfc00), -std::numeric_limits<float>::infinity());
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    ASSERT_EQ(nearest(value(static_cast<std::uint16_t>(bits))), bits);
    ASSERT_EQ(nearest(-value(static_cast<std::uint16_t>(bits))), bits | 0x8000u);
    if (bits == 0x7bff) continue;
    const float low = value(static_cast<std::uint16_t>(bits)),
                high = value(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    ASSERT_EQ(nearest(middle), bits + (bits & 1)) << bits;
    ASSERT_EQ(nearest(std::nextafter(middle, low)), bits);
    ASSERT_EQ(nearest(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(nearest(65519.0f), 0x7bff);
  EXPECT_EQ(nearest(65520.0f), 0x7c00);
  EXPECT_EQ(nearest(1e30f), 0x7c00);
}

TEST(Gguf, ABlockOfZerosIsZero) {
  const std::vector<float> zeros(32, 0.0f);
  std::vector<std::byte> bytes;
  gguf_encode(GgufType::kQ8, zeros, bytes);
  ASSERT_EQ(bytes.size(), 34u);
  std::vector<float> back(32, 1.0f);
  gguf_decode(GgufType::kQ8, bytes, back.data());
  EXPECT_EQ(back, zeros);
}

class GgufDamaged : public ::testing::Test {
 protected:
  GgufDamaged() {
    const std::vector<float> numbers = normal_numbers(64);
    write_gguf(
        folder_ / "a.gguf", {{"key", std::string("value")}, {"list", std::vector<std::string>{"a", "b"}}},
        {{"one", GgufType::kQ8, {1, 32}, numbers.data()}, {"two", GgufType::kF32, {4, 8}, numbers.data()}});
    good_ = contents_of(folder_ / "a.gguf");
  }
  std::string message(const std::string& bytes) {
    return message_of<UserError>([&] { parse_gguf(as_bytes(bytes), "a.gguf"); });
  }
  template <class T>
  std::string with(std::size_t at, T value) const {
    std::string bytes = good_;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  }
  std::size_t behind(const std::string& name) const { return good_.find(name) + name.size(); }

  TestFolder folder_;
  std::string good_;
};

// Where the data begins, and where a tensor may begin in it, is the file's to say.
TEST(Gguf, TheAlignmentIsTheFiles) {
  const auto file = [](std::uint32_t alignment, std::uint64_t begin) {
    ByHand f;
    f.text = "GGUF";
    f.number<std::uint32_t>(3).number<std::uint64_t>(1).number<std::uint64_t>(1);
    f.string("general.alignment").number<std::uint32_t>(4).number(alignment);
    f.string("w").number<std::uint32_t>(1).number<std::uint64_t>(2).number<std::uint32_t>(0).number(begin);
    f.text.resize((f.text.size() + alignment - 1) / alignment * alignment + begin, '\0');
    f.number(1.5f).number(-2.5f);
    return f.text;
  };
  const TestFolder folder;
  for (const std::uint32_t alignment : {8u, 32u, 256u}) {
    for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{alignment}}) {
      std::vector<float> back(2);
      GgufFile(folder.write("a.gguf", file(alignment, begin))).read("w", std::vector<Index>{2}, back.data());
      EXPECT_EQ(back, (std::vector<float>{1.5f, -2.5f})) << alignment << " " << begin;
    }
    const std::string between = file(alignment, 4);
    const std::string message = message_of<UserError>([&] { parse_gguf(as_bytes(between), "a.gguf"); });
    EXPECT_NE(message.find("tensor 'w'"), message.npos) << message;
  }
}

TEST_F(GgufDamaged, AKeyThatIsThereTwice) {
  ByHand f;
  f.text = "GGUF";
  f.number<std::uint32_t>(3).number<std::uint64_t>(0).number<std::uint64_t>(2);
  for (const std::uint32_t value : {1u, 2u}) f.string("n").number<std::uint32_t>(4).number(value);
  EXPECT_EQ(message(f.text), "a.gguf: key 'n' is there twice");
}

TEST_F(GgufDamaged, EveryTruncationIsOneError) {
  for (std::size_t size = 0; size < good_.size(); ++size) {
    const std::string cut = good_.substr(0, size);
    try {
      parse_gguf(as_bytes(cut), "a.gguf");
      ADD_FAILURE() << size << " of " << good_.size() << " bytes were accepted";
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("a.gguf: ")) << error.what();
    }
  }
}

TEST_F(GgufDamaged, HeadersThatLie) {
  const auto says = [&](const std::string& bytes, const std::string& words) {
    const std::string found = message(bytes);
    EXPECT_NE(found.find(words), found.npos) << found << "\nlacks " << words;
  };
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  says("GGML" + good_.substr(4), "begins with \"GGUF\"");
  says(with<std::uint32_t>(4, 2), "version 2");
  says(with(8, kHuge), "dimensions");  // padding, taken for tensors
  says(with(16, kHuge), "needs");
  says(with(24, kHuge), "a key's name needs");
  says(with<std::uint32_t>(behind("key"), 99), "type 99");
  says(with<std::uint64_t>(behind("list") + 8, kHuge), "array 'list' needs");
  says(with<std::uint32_t>(behind("list") + 4, 9), "type 9");  // an array of arrays
  says(with<std::uint32_t>(behind("two"), 5), "'two' has 5 dimensions");
  says(with<std::uint64_t>(behind("two") + 4, kHuge), "more than the file can hold");
  says(with<std::uint64_t>(behind("two") + 4, 0), "dimension 0");
  says(with<std::uint32_t>(behind("two") + 20, 2),
       "is of type 2; this program reads F32, F16, BF16 and Q8_0");
  says(with<std::uint64_t>(behind("two") + 24, 1 << 20), "truncated or damaged");
  says(with<std::uint64_t>(behind("two") + 24, 0), "overlap");
  says(with<std::uint64_t>(behind("one") + 4, 8), "no whole blocks");
  std::string twice = good_;
  twice.replace(twice.find("two"), 3, "one");
  says(twice, "'one' is there twice");
}

TEST_F(GgufDamaged, TensorsThatAreNotWhatIsExpected) {
  const GgufFile file(folder_ / "a.gguf");
  std::vector<float> out(32);
  const auto error = [&](const char* name, std::vector<Index> shape) {
    return message_of<UserError>([&] { file.read(name, shape, out.data()); });
  };
  EXPECT_NE(error("three", {1}).find("tensor 'three' is missing"), std::string::npos);
  EXPECT_NE(error("two", {8, 4}).find("F32 [4, 8], expected F32 [8, 4]"), std::string::npos);
  std::string bytes = good_;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  folder_.write("nan.gguf", bytes);
  EXPECT_NE(message_of<UserError>([&] {
              GgufFile(folder_ / "nan.gguf").read("two", std::vector<Index>{4, 8}, out.data());
            }).find("not finite (at 31)"),
            std::string::npos);
}

}  // namespace
}  // namespace ddl
