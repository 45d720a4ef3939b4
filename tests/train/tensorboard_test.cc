// Event files: checksums and frames as published, events decoded by a reader of this file's own, and a run that writes them.
#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "small_run.h"

namespace ddl {
namespace {

TEST(Tensorboard, Crc32cIsThePublishedOne) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// A message as a list of fields, without knowing what they mean.
struct Field {
  int number = 0;
  std::uint64_t value = 0;  // of a number, its bits
  std::string bytes = {};   // of a text or a message
  double as_double() const { return std::bit_cast<double>(value); }
  float as_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
};
std::vector<Field> fields(const std::string& message) {
  std::vector<Field> list;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  const auto fixed = [&](std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, message.substr(at, size).data(), size);
    at += size;
    return value;
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    Field field{.number = static_cast<int>(key >> 3)};
    if ((key & 7) == 0) field.value = varint();
    if ((key & 7) == 1) field.value = fixed(8);
    if ((key & 7) == 5) field.value = fixed(4);
    if ((key & 7) == 2) {
      const std::uint64_t size = varint();
      field.bytes = message.substr(at, size);
      at += size;
    }
    list.push_back(field);
  }
  EXPECT_EQ(at, message.size());
  return list;
}
Field only(const std::string& message, int number) {
  for (const Field& field : fields(message))
    if (field.number == number) return field;
  ADD_FAILURE() << "no field " << number;
  return {};
}

std::vector<std::string> events_of(const std::string& path) {
  const std::string file = contents_of(path);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + at, 8);
    events.push_back(file.substr(at + 12, size));
    EXPECT_EQ(file.substr(at, size + 16), event_frame(events.back()));
    at += size + 16;
  }
  return events;
}

// By tag, what was written at a step.
std::map<std::string, std::string> values_of(const std::string& event) {
  std::map<std::string, std::string> values;
  for (const Field& value : fields(only(event, 5).bytes)) values[only(value.bytes, 1).bytes] = value.bytes;
  return values;
}

TEST(Tensorboard, AFrameIsLengthChecksumEventChecksum) {
  const std::string frame = event_frame("abc");
  ASSERT_EQ(frame.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(frame.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(frame.substr(12, 3), "abc");
  const auto masked = [](std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; };
  std::uint32_t found = 0;
  std::memcpy(&found, frame.data() + 15, 4);
  EXPECT_EQ(found, masked(crc32c("abc")));
  std::memcpy(&found, frame.data() + 8, 4);
  EXPECT_EQ(found, masked(crc32c(frame.substr(0, 8))));
}

TEST(Tensorboard, ScalarsAndHistograms) {
  const TestFolder folder;
  TensorboardWriter writer(folder / "board", 5);
  writer.write(parse_json(R"({"v":1,"event":"start","step":4,"parameters":7})"));
  writer.write(parse_json(R"({"v":1,"event":"step","step":5,"loss":2.5,"grad_norm":null,"lr":0.125})"));
  writer.write(parse_json(
      R"({"v":1,"event":"gates","step":5,"sublayers":[{"sublayer":0,"kind":"attention","discrepancy_before":3.0,"series":
      {"gate":{"mean":0.5,"deviation":0.25,"range":[0,2],"histogram":[0.25,0.75]},"target":{"mean":1.5,"deviation":1}}}]})"));
  const std::vector<std::string> events = events_of(writer.path());
  ASSERT_EQ(events.size(), 4u) << "version, start of the session, a step, gates";
  EXPECT_EQ(only(events[0], 3).bytes, "brain.Event:2");
  EXPECT_EQ(only(events[1], 2).value, 5u) << "later steps of earlier files do not count";
  EXPECT_EQ(only(only(events[1], 7).bytes, 1).value, 1u);
  const auto step = values_of(events[2]);
  EXPECT_EQ(only(events[2], 2).value, 5u);
  ASSERT_EQ(step.size(), 2u) << "what is not a number is left out";
  EXPECT_EQ(only(step.at("train/loss"), 2).as_float(), 2.5f);
  EXPECT_EQ(only(step.at("train/lr"), 2).as_float(), 0.125f);
  const auto gates = values_of(events[3]);
  EXPECT_EQ(gates.size(), 4u);
  EXPECT_EQ(only(gates.at("gate mean/00 attention"), 2).as_float(), 0.5f);
  EXPECT_EQ(only(gates.at("target mean/00 attention"), 2).as_float(), 1.5f);
  EXPECT_EQ(only(gates.at("discrepancy_before/00 attention"), 2).as_float(), 3.0f);
  const std::string histogram = only(gates.at("gate/00 attention"), 5).bytes;
  EXPECT_EQ(only(histogram, 1).as_double(), 0);
  EXPECT_EQ(only(histogram, 2).as_double(), 2);
  EXPECT_EQ(only(histogram, 4).as_double(), 0.5);
  EXPECT_EQ(only(histogram, 5).as_double(), 0.5 * 0.5 + 0.25 * 0.25);
  const auto doubles = [](const std::string& bytes) {
    std::vector<double> list(bytes.size() / 8);
    std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  };
  EXPECT_EQ(doubles(only(histogram, 6).bytes), (std::vector<double>{1, 2}));
  EXPECT_EQ(doubles(only(histogram, 7).bytes), (std::vector<double>{0.25, 0.75}));
}

TEST(Tensorboard, ARunWritesWhatItRecords) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=4", "log.tensorboard=true"}));
  run(resume_request(out, {"train.steps=6"}));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(out + "/tensorboard"))
    files.push_back(entry.path().string());
  ASSERT_EQ(files.size(), 2u) << "one for each session";
  std::sort(files.begin(), files.end());
  std::map<std::uint64_t, float> losses;
  for (const std::string& file : files)
    for (const std::string& event : events_of(file))
      for (const Field& field : fields(event))
        if (field.number == 5)
          if (const auto values = values_of(event); values.contains("train/loss"))
            losses[only(event, 2).value] = only(values.at("train/loss"), 2).as_float();
  ASSERT_EQ(losses.size(), 6u);
  for (const Json& record : records(out, "step"))
    EXPECT_EQ(losses[record["step"].get<std::uint64_t>()], static_cast<float>(record["loss"].get<double>()));
  run(small_request(data, folder / "without", {"train.steps=1"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "without/tensorboard"));
}

}  // namespace
}  // namespace ddl
