// The thread that computes for all requests and all models: every processor works on one thing at a time, a step of
// a batch or a slice of something else, and all that are under way take turns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/exec.h"
#include "serve/served_model.h"

namespace ddl {

// What a request asks to be computed: slices, one after another, then sequences.
struct ComputeJob {
  ServedModelPtr model;
  std::function<bool(const Exec& ex)> slice;         // true: there is more to do; none: nothing but sequences
  std::function<std::vector<Sequence>()> sequences;  // called after the last slice; may be none
  std::function<bool()> abandoned;
  std::function<void(const std::exception& error)> failed;  // what a slice threw
};

class ComputeThread {
 public:
  explicit ComputeThread(const Exec& ex);
  ~ComputeThread();  // drops what is not finished
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

  // False: the queue is full.
  bool submit(ComputeJob job);

  struct Load {
    Index queued = 0, slicing = 0, live = 0, waiting = 0;
    std::uint64_t prompt_tokens = 0, new_tokens = 0, steps = 0;
  };
  Load load() const;  // as of the last turn; from any thread

  static constexpr std::size_t kMaxQueued = 64;

 private:
  void run();
  void take_from_queue();
  void run_slice();
  void begin_sequences(ComputeJob& job);
  void step_models();
  void publish();

  const Exec ex_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ComputeJob> queue_;
  bool ending_ = false;
  Load load_;

  // Of the thread.
  std::list<ComputeJob> slicing_;
  std::vector<ServedModelPtr> batching_;  // with sequences live or waiting
  Load totals_;
  std::thread thread_;
};

}  // namespace ddl
