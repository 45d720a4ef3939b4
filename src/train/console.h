// What a person sees of a run, printed from its records: on a terminal one live line and a line per
// validation, otherwise plain lines at intervals, or the records themselves.
#pragma once

#include <string>

#include "core/record.h"

namespace ddl {

class Console {
 public:
  // kLineOnly: a live line and nothing else, gone at the end.
  enum class Style { kLive, kPlain, kJson, kSilent, kLineOnly };
  static Style style_for(bool json);  // kLive where standard output is a terminal

  // Plain lines come at most every `plain_seconds`; the first and the last step always have one.
  // A reader of standard output that leaves does not stop the run: `records` is where the rest can be read.
  Console(Style style, double plain_seconds, long total_steps, std::string records = "metrics.jsonl");
  ~Console();

  void show(const Json& record);
  void note(const std::string& line);  // a line that is not a record; not with kJson

 private:
  void step(const Json& record);
  void line(const std::string& text);
  void print(const std::string& text);
  Style style_;
  double plain_seconds_;
  long total_steps_;
  std::string records_;
  double step_seconds_ = 0;  // smoothed, for the time left
  double last_shown_ = -1e9;
  bool live_line_ = false;  // the cursor stands behind one
};

std::string format_duration(double seconds);  // "40 s", "14 min", "3.2 hours", "12 days"
std::string format_count(double count);       // "4.2 M", "13 k"

}  // namespace ddl
