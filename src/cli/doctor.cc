// ./ddl doctor: what this machine has, and what each command would use of it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "core/arena.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/machine.h"
#include "core/plugin.h"
#include "core/record.h"
#include "data/document_source.h"
#include "model/config.h"
#include "model/instruction_set.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

std::string field_of(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name))
      if (const std::size_t colon = line.find(':'); colon != std::string::npos) {
        const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
      }
  return "";
}

// Asks the driver itself: it has the answers, and nothing need be installed.
struct CudaDriver {
  std::string problem;  // "" where there is a driver
  int version = 0;      // 13020: CUDA 13.2
  struct Gpu {
    std::string name;
    std::size_t bytes = 0;
  };
  std::vector<Gpu> gpus;
};

CudaDriver ask_driver() {
  CudaDriver driver;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return {"no NVIDIA driver (libcuda.so.1 is not on this machine)", 0, {}};
  const auto find = [&](const char* name) { return ::dlsym(library, name); };
  const auto init = reinterpret_cast<int (*)(unsigned)>(find("cuInit"));
  const auto version = reinterpret_cast<int (*)(int*)>(find("cuDriverGetVersion"));
  const auto count = reinterpret_cast<int (*)(int*)>(find("cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(find("cuDeviceGetName"));
  const auto memory = reinterpret_cast<int (*)(std::size_t*, int)>(find("cuDeviceTotalMem_v2"));
  if (!init || !version || !count || !name || !memory) return {"libcuda.so.1 is not NVIDIA's driver", 0, {}};
  version(&driver.version);
  if (const int code = init(0); code != 0) {
    driver.problem = fmt::format("the NVIDIA driver does not start (CUDA error {}{})", code,
                                 code == 100 ? ": no GPU" : "");
    return driver;
  }
  int gpus = 0;
  count(&gpus);
  for (int i = 0; i < gpus; ++i) {
    char text[256] = "";
    std::size_t bytes = 0;
    name(text, sizeof text, i), memory(&bytes, i);
    driver.gpus.push_back({text, bytes});
  }
  if (gpus == 0) driver.problem = "a driver, but no GPU";
  return driver;
}

// Parts are below build/parts, and the program in build/release.
fs::path parts_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "parts";
}

// The first line of a part's record: "torch 2.15.0 HASH".
std::string part_version(const std::string& part) {
  std::ifstream file(parts_folder() / (part + ".version"));
  std::string package, version;
  return file >> package >> version ? package + " " + version : "";
}

// "2.30.7" of the library that was set up; "" where it is not there or cannot be loaded.
std::string nccl_version() {
  if (!nccl_plugin_problem().empty()) return "";
  const int version = reinterpret_cast<int (*)()>(nccl_plugin_symbol("ddl_nccl_version", "NCCL"))();
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

struct Doctor {
  bool json = false;

  void execute() const {
    const CudaDriver driver = ask_driver();
    const std::string torch = part_version("torch"), cuda = part_version("cuda"),
                      plugin = torch_plugin_problem();
    const int threads = default_exec().threads;
    const bool gpu = !driver.gpus.empty() && plugin.empty() && !cuda.empty();
    const std::string cpu = field_of("/proc/cpuinfo", "model name");
    const std::size_t available_kib =
        std::strtoull(field_of("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10);
    const std::string native = fmt::format("native engine, {} threads, {}, precision auto is {}", threads,
                                           current_isa(), ModelConfig{}.uses_bf16() ? "bf16" : "f32");
    const std::string nccl = nccl_version();
    if (json) {
      Json record = make_record("doctor");
      record["cpu"] = cpu, record["threads"] = threads, record["isa"] = current_isa();
      record["available_isas"] = available_isas();
      record["memory_bytes"] = machine_memory_bytes();
      record["driver"] = driver.version, record["driver_problem"] = driver.problem;
      record["gpus"] = Json::array();
      for (const CudaDriver::Gpu& g : driver.gpus)
        record["gpus"].push_back({{"name", g.name}, {"bytes", g.bytes}});
      record["torch"] = torch, record["torch_problem"] = plugin, record["cuda"] = cuda, record["nccl"] = nccl;
      record["parquet"] = parquet_is_built_in();
      record["uses"] = {{"train", "native"}, {"ranks", plugin.empty() ? "c10d with Gloo" : ""}, {"gpu", gpu}};
      std::puts(to_line(record).c_str());
      return;
    }
    const auto line = [](const char* name, const std::string& text) { fmt::print("{:<12}{}\n", name, text); };
    line("program",
         fmt::format("ddl {} ({}, {})", kBuildInfo.version, kBuildInfo.commit, kBuildInfo.compiler));
    line("processor", fmt::format("{}, {} threads; instruction sets: {}", cpu, threads,
                                  fmt::join(available_isas(), ", ")));
    line("memory", fmt::format("{}, of which {} are available", format_bytes(machine_memory_bytes()),
                               format_bytes(available_kib * 1024)));
    if (driver.gpus.empty())
      line("GPUs", driver.problem);
    else
      for (const CudaDriver::Gpu& g : driver.gpus)
        line("GPU", fmt::format("{}, {}, driver for CUDA {}.{}", g.name, format_bytes(g.bytes),
                                driver.version / 1000, driver.version % 1000 / 10));
    line("torch", plugin.empty() ? torch : plugin);
    line("CUDA parts", cuda.empty() ? "not set up; run: ./ddl setup cuda" : cuda);
    line("NCCL", nccl.empty() ? nccl_plugin_problem() : nccl + " (loaded; used where every rank has a GPU)");
    line("Parquet", parquet_is_built_in() ? "Apache Arrow" : "not set up; run: ./ddl setup parquet");
    fmt::print("\nWhat commands use here:\n");
    line("train, eval", native);
    line("--ranks N",
         plugin.empty() ? "c10d with Gloo, threads shared out among the ranks" : "nothing: " + plugin);
    line("GPUs", gpu ? "the torch engine: --engine torch" : "none");
  }
};

}  // namespace

void add_doctor_command(Command app) {
  auto c = std::make_shared<Doctor>();
  Command doctor = app.add_command("doctor", "What this machine has, and what commands would use of it");
  doctor.add_flag("--json", c->json, "One JSON record");
  doctor.on_run([c] { c->execute(); });
}

}  // namespace ddl
