// Ranks that are threads of one process: the tests of what trains on several ranks need no torch and no
// sockets. Sums are made in the ranks' order, and every rank has the same bits.
#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/comm.h"

namespace ddl {

class ThreadRanks {
 public:
  explicit ThreadRanks(int ranks) : ranks_(ranks) {}

  // Calls body(comm) on every rank at once. A rank that throws is lost to the others. Returns what each threw, or null.
  std::vector<std::exception_ptr> run(const std::function<void(Comm&)>& body) {
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r)
      threads.emplace_back([&, r] {
        Member comm(*this, r);
        try {
          body(comm);
        } catch (...) {
          thrown[static_cast<std::size_t>(r)] = std::current_exception();
          const std::lock_guard lock(guard_);
          lost_ = true;
          changed_.notify_all();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }

  int operations() const { return operations_; }  // that all ranks made, so far

 private:
  // What the ranks bring to their n-th operation.
  struct Meeting {
    std::vector<std::vector<std::byte>> brought;
    int arrived = 0, left = 0;
  };

  class Member final : public Comm {
   public:
    Member(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return all_.ranks_; }
    Handle all_reduce(std::span<float> numbers) override {
      return start(std::as_writable_bytes(numbers), [numbers](const Meeting& m) { add(numbers, m); });
    }
    Handle broadcast(std::span<float> numbers, int from) override {
      const auto bytes = std::as_writable_bytes(numbers);
      return start(bytes, [bytes, from](const Meeting& m) { copy(bytes, m, from); });
    }
    void sum(std::span<double> numbers) override {
      start(std::as_writable_bytes(numbers), [numbers](const Meeting& m) { add(numbers, m); })->wait();
    }
    void broadcast(std::span<std::byte> bytes, int from) override {
      start(bytes, [bytes, from](const Meeting& m) { copy(bytes, m, from); })->wait();
    }

   private:
    using Finish = std::function<void(const Meeting&)>;
    struct Work final : Pending {
      Work(ThreadRanks& ranks, long which, Finish with)
          : all(ranks), number(which), finish(std::move(with)) {}
      void wait() override { all.wait(number, finish); }
      ThreadRanks& all;
      long number;
      Finish finish;
    };

    template <class T>
    static void add(std::span<T> numbers, const Meeting& meeting) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        T total = 0;
        for (const auto& bytes : meeting.brought) {
          T one;
          std::memcpy(&one, bytes.data() + i * sizeof(T), sizeof(T));
          total += one;
        }
        numbers[i] = total;
      }
    }
    static void copy(std::span<std::byte> bytes, const Meeting& meeting, int from) {
      const auto& source = meeting.brought[static_cast<std::size_t>(from)];
      if (source.size() != bytes.size())
        throw CommError("{} bytes sent, {} expected", source.size(), bytes.size());
      std::memcpy(bytes.data(), source.data(), bytes.size());
    }
    Handle start(std::span<std::byte> bytes, Finish finish) {
      all_.arrive(number_, rank_, bytes);
      return std::make_unique<Work>(all_, number_++, std::move(finish));
    }

    ThreadRanks& all_;
    const int rank_;
    long number_ = 0;
  };

  void arrive(long number, int rank, std::span<const std::byte> bytes) {
    const std::lock_guard lock(guard_);
    Meeting& meeting = meetings_[number];
    meeting.brought.resize(static_cast<std::size_t>(ranks_));
    meeting.brought[static_cast<std::size_t>(rank)].assign(bytes.begin(), bytes.end());
    if (++meeting.arrived == ranks_) ++operations_;
    changed_.notify_all();
  }
  void wait(long number, const std::function<void(const Meeting&)>& finish) {
    std::unique_lock lock(guard_);
    Meeting& meeting = meetings_[number];
    changed_.wait(lock, [&] { return lost_ || meeting.arrived == ranks_; });
    if (meeting.arrived != ranks_) throw CommError("a rank is lost");
    finish(meeting);
    if (++meeting.left == ranks_) meetings_.erase(number);
  }

  const int ranks_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::map<long, Meeting> meetings_;
  int operations_ = 0;
  bool lost_ = false;
};

}  // namespace ddl
