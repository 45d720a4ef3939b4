// safetensors: what is written is read back; files that lie are refused with one clear message.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

std::string refusal(const std::string& bytes) {
  return message_of<UserError>([&] {
    parse_safetensors({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "some.safetensors");
  });
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::vector<float> a = {1, -2.5f, 3e-38f, 4, 5, 6};
  const std::vector<std::uint16_t> b = {0x3f80, 0xc000}, h = {0x3c00, 0x0001};  // bf16 1, -2; f16 1, 2^-24
  const std::vector<TensorToWrite> tensors = {{"a", "F32", {2, 3}, a.data()},
                                              {"b", "BF16", {2}, b.data()},
                                              {"h", "F16", {2}, h.data()},
                                              {"none", "F32", {0, 4}, a.data()},
                                              {"one", "F32", {}, a.data() + 3}};
  write_safetensors(path, tensors, {{"format", "pt"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<float> out(6);
  file.read("a", std::vector<Index>{2, 3}, out.data());
  EXPECT_EQ(out, a);
  file.read("b", std::vector<Index>{2}, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  file.read("h", std::vector<Index>{2}, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0x1p-24f);
  file.read("one", std::vector<Index>{}, out.data());
  EXPECT_EQ(out[0], 4.0f);
}

// Every f16 value against its definition.
TEST(Safetensors, HalfPrecision) {
  const TestFolder folder;
  std::vector<std::uint16_t> halves;
  std::vector<float> expected;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    if (exponent == 31) continue;  // not finite
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    halves.push_back(static_cast<std::uint16_t>(bits));
    expected.push_back(static_cast<float>(bits >> 15 ? -magnitude : magnitude));
  }
  const std::vector<Index> shape = {std::ssize(halves)};
  write_safetensors(folder / "h", std::vector<TensorToWrite>{{"h", "F16", shape, halves.data()}}, {});
  std::vector<float> out(halves.size());
  SafetensorsFile(folder / "h").read("h", shape, out.data());
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
}

TEST(Safetensors, RefusesFilesThatLie) {
  const std::string good = "{" + tensor("a", "F32", "[2]", "[0,8]") + "}";
  const std::string whole = file_with(good, 8);
  for (std::size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_TRUE(contains(refusal(whole.substr(0, cut)), "some.safetensors")) << cut;
  EXPECT_TRUE(contains(refusal(whole + "x"), "8 bytes, the file has 9"));
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string says;
  };
  const std::string huge = "18446744073709551615";
  const std::vector<Case> cases = {
      {"{" + tensor("a", "F31", "[2]", "[0,8]") + "}", 8, "unknown dtype 'F31'"},
      {"{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8, "needs 12 bytes, data_offsets give 8"},
      {"{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8, "shape"},
      {"{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8, "shape"},
      {"{" + tensor("a", "F32", "[" + huge + "]", "[0,8]") + "}", 8, "more than the file's 8 bytes"},
      {"{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", 8, "more than the file's"},
      {"{" + tensor("a", "F64", "[2,2305843009213693953]", "[0,16]") + "}", 16, "more than the file's"},
      {"{" + tensor("a", "F32", "[2]", "[0,16]") + "}", 8, "outside the 8 bytes"},
      {"{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8, "outside the 8 bytes"},
      {"{" + tensor("a", "F32", "[2]", "[0]") + "}", 8, "data_offsets"},
      {"{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12,
       "'b' begins at byte 4 of the data, expected 8 (it overlaps"},
      {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[8,12]") + "}", 12,
       "a hole"},
      {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("a", "F32", "[1]", "[4,8]") + "}", 8,
       "a hole"},
      {"{\"a\":3}", 0, "'a': expected an object"},
      {"[1]", 0, "does not begin with"},
      {"{\"__metadata__\":{\"x\":1}}", 0, "'x' is not a string"},
      {"{\"a\":", 0, "JSON"}};
  for (const Case& c : cases) {
    const std::string message = refusal(file_with(c.header, c.data_bytes));
    EXPECT_TRUE(contains(message, c.says)) << c.header << "\n" << message;
  }
  std::string lying = whole;
  lying[7] = '\x7f';  // a header of 2^62 bytes
  EXPECT_TRUE(contains(refusal(lying), "its header claims"));
}

TEST(Safetensors, RefusesTensorsThatAreNotAsExpected) {
  const TestFolder folder;
  const float nan[2] = {0, std::numeric_limits<float>::quiet_NaN()};
  const std::int64_t integers[2] = {1, 2};
  write_safetensors(folder / "x",
                    std::vector<TensorToWrite>{{"nan", "F32", {2}, nan}, {"i", "I64", {2}, integers}}, {});
  const SafetensorsFile file(folder / "x");
  const auto refused = [&](const char* name, std::vector<Index> shape) {
    float out[8];
    return message_of<UserError>([&] { file.read(name, shape, out); });
  };
  EXPECT_TRUE(contains(refused("absent", {2}), "'absent' is missing, expected F32 [2]"));
  EXPECT_TRUE(contains(refused("nan", {1, 2}), "'nan' is F32 [2], expected F32 [1, 2]"));
  EXPECT_TRUE(contains(refused("nan", {2}), "'nan' holds nan at element 1"));
  EXPECT_TRUE(contains(refused("i", {2}), "'i' is I64 [2], expected F32 [2]"));
}

}  // namespace
}  // namespace ddl
