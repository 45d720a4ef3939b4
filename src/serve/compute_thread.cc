#include "serve/compute_thread.h"

#include <algorithm>
#include <utility>

namespace ddl {
namespace {

constexpr std::size_t kMaxSlicing = 8;  // requests that take turns

}  // namespace

ComputeThread::ComputeThread(const Exec& ex) : ex_(ex), thread_([this] { run(); }) {}

ComputeThread::~ComputeThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // A sequence refers to its request, and that to the model that holds the sequence.
  for (const ServedModelPtr& model : batching_) model->batcher().clear();
}

bool ComputeThread::submit(ComputeJob job) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || queue_.size() >= kMaxQueued) return false;
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

ComputeThread::Load ComputeThread::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  load.queued = std::ssize(queue_);
  return load;
}

void ComputeThread::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [&] { return ending_ || !queue_.empty() || !slicing_.empty() || !batching_.empty(); });
      if (ending_) return;
    }
    take_from_queue();
    run_slice();
    step_models();
    publish();
  }
}

// A request leaves the queue when it can begin: a job of slices when few are under way, one of sequences when a
// slot of its model is free. Those behind one that cannot begin may pass it if they use another model.
void ComputeThread::take_from_queue() {
  std::vector<ComputeJob> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  for (auto job = queue_.begin(); job != queue_.end();) {
    const Batcher& batcher = job->model->batcher();
    if (job->abandoned()) {
      dropped.push_back(std::move(*job));
    } else if (job->slice) {
      if (slicing_.size() >= kMaxSlicing) {
        ++job;
        continue;
      }
      slicing_.push_back(std::move(*job));
    } else {
      if (batcher.live() + batcher.waiting() >= batcher.slots()) {
        ++job;
        continue;
      }
      begin_sequences(*job);
      dropped.push_back(std::move(*job));
    }
    job = queue_.erase(job);
  }
}

void ComputeThread::run_slice() {
  if (slicing_.empty()) return;
  ComputeJob job = std::move(slicing_.front());
  slicing_.pop_front();
  if (job.abandoned()) return;
  try {
    if (job.slice(ex_)) {
      slicing_.push_back(std::move(job));
      return;
    }
    begin_sequences(job);
  } catch (const std::exception& error) {
    job.failed(error);
  }
}

void ComputeThread::begin_sequences(ComputeJob& job) {
  if (!job.sequences) return;
  for (Sequence& sequence : job.sequences()) job.model->batcher().add(std::move(sequence));
  if (std::find(batching_.begin(), batching_.end(), job.model) == batching_.end())
    batching_.push_back(job.model);
}

void ComputeThread::step_models() {
  for (const ServedModelPtr& model : batching_) {
    const Batcher::Counts before = model->batcher().counts();
    model->batcher().step(ex_);
    const Batcher::Counts& after = model->batcher().counts();
    totals_.prompt_tokens += after.prompt_tokens - before.prompt_tokens;
    totals_.new_tokens += after.new_tokens - before.new_tokens;
    totals_.steps += after.steps - before.steps;
  }
  std::erase_if(batching_, [](const ServedModelPtr& model) { return model->batcher().idle(); });
}

void ComputeThread::publish() {
  Load load = totals_;
  load.slicing = std::ssize(slicing_);
  for (const ServedModelPtr& model : batching_)
    load.live += model->batcher().live(), load.waiting += model->batcher().waiting();
  const std::lock_guard lock(mutex_);
  load_ = load;
}

}  // namespace ddl
