// A run's records as an event file of TensorBoard: scalars of steps and validations, histograms of gates.
//
// An event file is a list of frames: length (u64), checksum of the length, an Event as a protocol buffer,
// checksum of it. The checksums are CRC-32C, masked. The fields that are written here are in tensorboard.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "io/file.h"

namespace ddl {

std::uint32_t crc32c(std::string_view bytes);
std::string event_frame(std::string_view event);

class TensorboardWriter {
 public:
  // A new file in `folder`, which is made. From `first_step` on, what earlier files say does not count.
  TensorboardWriter(const std::string& folder, std::int64_t first_step);
  ~TensorboardWriter();
  // Takes what belongs there: records of "step", "validation" and "gates". Throws UserError when the disk is full.
  void write(const Json& record);
  const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<FileWriter> file_;
};

}  // namespace ddl
