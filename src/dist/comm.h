// What the processes of one run ("ranks") say to one another. Every rank makes the same calls in the same order. A rank
// that is gone, or silent for longer than the timeout, is a CommError on all the others.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/launch.h"

namespace ddl {

struct CommError : UserError {
  using UserError::UserError;
};

class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  bool alone() const { return ranks() == 1; }
  bool leads() const { return rank() == 0; }  // files, console and decisions are rank 0's

  class Pending {
   public:
    virtual ~Pending() = default;  // an operation that nobody waits for may still be under way: wait first
    virtual void wait() = 0;       // throws CommError
  };
  using Handle = std::unique_ptr<Pending>;

  // Both run while the caller computes; the numbers belong to the operation until wait() returns.
  // The sum over ranks, with the same bits on each; which bits depends on how many floats go at once.
  virtual Handle all_reduce(std::span<float> numbers) = 0;
  virtual Handle broadcast(std::span<float> numbers, int from) = 0;

  // From now on all_reduce takes numbers in the memory of this GPU, through NCCL. Every rank calls it, with a GPU of its own
  // (dist/gpu_choice.h). Throws UserError where that cannot be.
  virtual void reduce_on_gpu(int gpu);

  // These wait.
  virtual void sum(std::span<double> numbers) = 0;
  virtual void broadcast(std::span<std::byte> bytes, int from) = 0;

  std::string broadcast_text(std::string text, int from = 0);
  std::vector<std::string> gather_texts(const std::string& own);  // by rank, on every rank
};

Comm& alone();  // one rank: nothing to say, and nothing that costs time

// By the launcher's description: alone() where there is one rank, otherwise c10d with Gloo, from the plugin.
// Waits for the other ranks. Throws UserError where the plugin is missing, and CommError where others do not
// come in time.
std::shared_ptr<Comm> connect(const Launch& launch);

// What the plugin offers connect(): a new one, which is the caller's.
using MakeComm = Comm*(const Launch& launch);

}  // namespace ddl
