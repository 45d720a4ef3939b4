#include "train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace ddl {
namespace {

// Protocol buffers: a field is its number and kind as one varint, then its value.
class Message {
 public:
  Message& number(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& number(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  Message& whole(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& numbers(int field, const std::vector<double>& values) {  // packed
    key(field, 2);
    varint(values.size() * 8);
    for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int kind) { varint(static_cast<std::uint64_t>(field << 3 | kind)); }
  void varint(std::uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 255);
  }
  std::string bytes_;
};

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Summary.Value: 1 tag, 2 a number, 5 a histogram.
Message scalar(const std::string& tag, double value) {
  return Message().text(1, tag).number(2, static_cast<float>(value));
}

double number_of(const Json& json, const char* key, double otherwise) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : otherwise;
}

// HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum of squares, 6 upper ends of the bins, 7 what is in them.
// The record has the share of each bin, so this histogram is of one token on average.
Message histogram(const std::string& tag, const Json& series) {
  const double low = series["range"][0].get<double>(), high = series["range"][1].get<double>();
  const auto shares = series["histogram"].get<std::vector<double>>();
  const double mean = number_of(series, "mean", 0), deviation = number_of(series, "deviation", 0);
  std::vector<double> ends;
  for (std::size_t i = 1; i <= shares.size(); ++i)
    ends.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(shares.size()));
  Message proto;
  proto.number(1, low).number(2, high).number(3, 1.0).number(4, mean).number(
      5, mean * mean + deviation * deviation);
  proto.numbers(6, ends).numbers(7, shares);
  return Message().text(1, tag).message(5, proto);
}

bool is_histogram(const Json& series) {
  return series.is_object() && series.contains("range") && series["range"].size() == 2 &&
         series.contains("histogram") && series["histogram"].is_array() && !series["histogram"].empty();
}

// Summary: 1 its values.
Message summary_of(const Json& record, const std::string& event) {
  Message summary;
  if (event == "step" || event == "validation") {
    const std::string prefix = event == "step" ? "train/" : "validation/";
    for (const auto& [key, value] : record.items())
      if (key != "v" && key != "step" && value.is_number() && std::isfinite(value.get<double>()))
        summary.message(1, scalar(prefix + key, value.get<double>()));
    return summary;
  }
  for (const Json& sublayer : record["sublayers"]) {
    const std::string name = fmt::format("{:02} {}", sublayer["sublayer"].get<std::int64_t>(),
                                         sublayer["kind"].get<std::string>());
    for (const auto& [series, numbers] : sublayer["series"].items()) {
      summary.message(1, scalar(fmt::format("{} mean/{}", series, name), number_of(numbers, "mean", NAN)));
      if (is_histogram(numbers)) summary.message(1, histogram(fmt::format("{}/{}", series, name), numbers));
    }
    for (const char* key : {"discrepancy_before", "discrepancy_after"})
      if (sublayer.contains(key))
        summary.message(1, scalar(fmt::format("{}/{}", key, name), number_of(sublayer, key, NAN)));
  }
  return summary;
}

// The polynomial 0x1EDC6F41 with its bits reversed.
constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}

std::string four_bytes(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  return bytes;
}

// A checksum of data that holds checksums would be weak, so they are turned and shifted.
std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = crc_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

std::string event_frame(std::string_view event) {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(event.size() >> (8 * i) & 255);
  return length + four_bytes(masked(crc32c(length))) + std::string(event) + four_bytes(masked(crc32c(event)));
}

// Event: 1 wall time, 2 step, 3 version of the file, 5 a summary, 7 the log of sessions (1 its status; 1 is a start).
TensorboardWriter::TensorboardWriter(const std::string& folder, std::int64_t first_step) {
  make_folders(folder);
  const double time = wall_time();
  // Files are read in the order of their names, which begin with the time.
  file_ = std::make_unique<FileWriter>(
      fmt::format("{}/events.out.tfevents.{:010}.{:06}.{}", folder, static_cast<std::int64_t>(time),
                  static_cast<std::int64_t>(time * 1e6) % 1000000, ::getpid()));
  file_->write(event_frame(Message().number(1, time).text(3, "brain.Event:2").bytes()));
  file_->write(
      event_frame(Message().number(1, time).whole(2, first_step).message(7, Message().whole(1, 1)).bytes()));
  file_->flush();
}

TensorboardWriter::~TensorboardWriter() = default;

void TensorboardWriter::write(const Json& record) {
  const std::string event = record["event"].get<std::string>();
  if (event != "step" && event != "validation" && event != "gates") return;
  file_->write(event_frame(Message()
                               .number(1, wall_time())
                               .whole(2, record["step"].get<std::int64_t>())
                               .message(5, summary_of(record, event))
                               .bytes()));
  file_->flush();  // TensorBoard reads along
}

}  // namespace ddl
