// Where the time goes: seconds by name, filled by scopes on the calling thread. Costs nothing when no
// profiler is set.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "core/exec.h"

namespace ddl {

class Profiler {
 public:
  struct Entry {
    double seconds = 0;
    Index calls = 0;
  };
  void add(const char* name, double seconds) {
    Entry& entry = entries_[name];
    entry.seconds += seconds;
    ++entry.calls;
  }
  void clear() { entries_.clear(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry> entries_;
};

// { ProfileScope scope("attention forward", ex); ... }
class ProfileScope {
 public:
  ProfileScope(const char* name, const Exec& ex) : profiler_(ex.profiler), name_(name) {
    if (profiler_) start_ = std::chrono::steady_clock::now();
  }
  ~ProfileScope() {
    if (profiler_)
      profiler_->add(name_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* profiler_;
  const char* name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ddl
