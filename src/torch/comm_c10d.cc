// Ranks over PyTorch's own process groups: c10d with Gloo, and for gradients on GPUs with NCCL.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/plugin.h"
#include "dist/comm.h"

namespace ddl {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

// What went wrong, without the place in c10d's or Gloo's sources before it, advice and a stack trace after it.
std::string first_line(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (const std::size_t place = text.find("] "); text.starts_with('[') && place != std::string::npos)
    text.erase(0, place + 2);
  return text.substr(0, text.find(". This is typically"));
}

class C10dComm final : public Comm {
 public:
  explicit C10dComm(const Launch& launch) : launch_(launch) {
    try {
      c10d::TCPStoreOptions options;
      options.port = static_cast<std::uint16_t>(launch.port);
      options.isServer = launch.rank == 0 && !launch.served_by_launcher;
      options.waitWorkers = false;  // the group below waits for them, and says who is missing
      options.timeout = milliseconds(launch.connect_seconds);
      auto server = c10::make_intrusive<c10d::TCPStore>(launch.host, options);
      // A restart must not meet the keys of the attempt before it.
      store_ = c10::make_intrusive<c10d::PrefixStore>("ddl/" + std::to_string(launch.restarts), server);
    } catch (const std::exception& error) {
      const bool serves = launch.rank == 0 && !launch.served_by_launcher;
      if (serves)
        throw CommError(
            "rank 0 cannot listen on port {} of {}: {}\nAnother MASTER_PORT may be free; MASTER_ADDR must be "
            "this machine.",
            launch.port, launch.host, first_line(error));
      throw CommError(
          "rank 0 was not reached at {}, port {}, within {:g} s: {}\nIt may not have started, or a firewall "
          "is between "
          "(DDL_CONNECT_SECONDS=N waits longer).",
          launch.host, launch.port, launch.connect_seconds, first_line(error));
    }
    meet();
    try {
      auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(launch.silence_seconds));
      options->threads = 1;  // one after another: what is reduced first is needed first
      const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
      options->devices.push_back(interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : launch.one_machine
                                     ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                     : c10d::ProcessGroupGloo::createDefaultDevice());
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, launch.rank, launch.ranks, options);
    } catch (const std::exception& error) {
      throw CommError("rank {} of {}: the ranks could not connect to one another: {}", launch.rank,
                      launch.ranks, first_line(error));
    }
  }

  int rank() const override { return launch_.rank; }
  int ranks() const override { return launch_.ranks; }

  Handle all_reduce(std::span<float> numbers) override {
    if (!on_gpus_)
      return start([&](std::vector<at::Tensor>& tensors) { return group_->allreduce(tensors); },
                   tensor(numbers.data(), numbers.size(), at::kFloat));
    return start([&](std::vector<at::Tensor>& tensors) { return on_gpus_->allreduce(tensors); },
                 at::from_blob(numbers.data(), {std::ssize(numbers)},
                               at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, gpu_)));
  }
  void reduce_on_gpu(int gpu) override {
    using Make = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>&, int, int, std::chrono::milliseconds);
    const auto make =
        reinterpret_cast<Make*>(nccl_plugin_symbol("ddl_make_nccl_group", "several ranks on GPUs"));
    try {
      on_gpus_ = c10::intrusive_ptr<c10d::Backend>::reclaim(
          make(c10::make_intrusive<c10d::PrefixStore>("nccl", store_), launch_.rank, launch_.ranks,
               milliseconds(launch_.silence_seconds)));
    } catch (const std::exception& error) {
      throw CommError("rank {} of {}: NCCL cannot be used: {}", launch_.rank, launch_.ranks,
                      first_line(error));
    }
    gpu_ = static_cast<at::DeviceIndex>(gpu);
  }
  Handle broadcast(std::span<float> numbers, int from) override {
    return broadcast_tensor(tensor(numbers.data(), numbers.size(), at::kFloat), from);
  }
  void sum(std::span<double> numbers) override {
    start([&](std::vector<at::Tensor>& tensors) { return group_->allreduce(tensors); },
          tensor(numbers.data(), numbers.size(), at::kDouble))
        ->wait();
  }
  void broadcast(std::span<std::byte> bytes, int from) override {
    broadcast_tensor(tensor(bytes.data(), bytes.size(), at::kByte), from)->wait();
  }

 private:
  class Work final : public Pending {
   public:
    Work(const C10dComm& comm, at::Tensor tensor, c10::intrusive_ptr<c10d::Work> work)
        : comm_(comm), tensor_(std::move(tensor)), work_(std::move(work)) {}
    ~Work() override {
      if (!work_) return;
      try {  // an error on the way: the numbers must not be written to any more
        work_->wait();
      } catch (const std::exception&) {
      }
    }
    void wait() override {
      const auto work = std::exchange(work_, {});
      comm_.trying([&] { work->wait(); });
    }

   private:
    const C10dComm& comm_;
    at::Tensor tensor_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  template <class Body>
  auto trying(Body&& body) const -> decltype(body()) {
    try {
      return body();
    } catch (const std::exception& error) {
      throw CommError("rank {} of {} lost the others: one of them ended, or was silent for {:g} s ({})",
                      launch_.rank, launch_.ranks, launch_.silence_seconds, first_line(error));
    }
  }

  static at::Tensor tensor(void* data, std::size_t count, at::ScalarType type) {
    return at::from_blob(data, {static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(type));
  }
  template <class Begin>
  Handle start(Begin&& begin, at::Tensor numbers) {
    std::vector<at::Tensor> tensors{numbers};
    return std::make_unique<Work>(*this, numbers, trying([&] { return begin(tensors); }));
  }
  Handle broadcast_tensor(at::Tensor numbers, int from) {
    c10d::BroadcastOptions options;
    options.rootRank = from;
    return start([&](std::vector<at::Tensor>& tensors) { return group_->broadcast(tensors, options); },
                 std::move(numbers));
  }

  // All ranks within connect_seconds, and at most one of each: the group alone would wait for a day, or take two processes
  // for one rank.
  void meet() {
    const auto mine = "rank/" + std::to_string(launch_.rank);
    std::vector<std::string> all, missing;
    try {
      if (store_->add(mine + "/count", 1) > 1)
        throw CommError("two processes say that they are rank {}: every rank needs a RANK of its own",
                        launch_.rank);
      store_->set(mine, std::to_string(launch_.ranks));
      for (int r = 0; r < launch_.ranks; ++r) all.push_back("rank/" + std::to_string(r));
      store_->wait(all, milliseconds(launch_.connect_seconds));
      for (int r = 0; r < launch_.ranks; ++r)
        if (const std::string said = store_->get_to_str(all[r]); said != std::to_string(launch_.ranks))
          throw CommError("rank {} counts {} ranks, rank {} counts {}: they were not started together", r,
                          said, launch_.rank, launch_.ranks);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      for (int r = 0; r < launch_.ranks; ++r) {
        try {
          if (!store_->check({all.at(r)})) missing.push_back(std::to_string(r));
        } catch (const std::exception&) {
          break;
        }
      }
      throw CommError("rank {} of {} waited {:g} s for the others; missing: {} ({})", launch_.rank,
                      launch_.ranks, launch_.connect_seconds,
                      missing.empty() ? "unknown" : "rank " + fmt::format("{}", fmt::join(missing, ", ")),
                      first_line(error));
    }
  }

  const Launch launch_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  c10::intrusive_ptr<c10d::Backend> on_gpus_;  // null: what all_reduce sums is in this process's memory
  at::DeviceIndex gpu_ = 0;
};

}  // namespace
}  // namespace ddl

extern "C" ddl::Comm* ddl_make_comm(const ddl::Launch& launch) { return new ddl::C10dComm(launch); }
