#include "dist/launch.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace ddl {
namespace {

constexpr int kMostRanks = 1 << 16;

// The names under which a family of launchers says the same things; nullptr where it does not.
struct Family {
  const char *launcher, *rank, *ranks, *local_rank, *local_ranks, *job;
};
constexpr Family kFamilies[] = {
    {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
    // Not SLURM_NTASKS, which a batch script has too: one process that srun did not start.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID"},
};

struct Reader {
  const Environment& environment;

  const char* text(const char* name) const { return name ? environment(name) : nullptr; }
  bool has(const char* name) const { return text(name) != nullptr; }

  std::optional<int> whole(const char* name, int low, int high) const {
    const char* const found = text(name);
    if (!found) return std::nullopt;
    const std::string_view value(found);
    int number = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || stop != value.data() + value.size() || number < low || number > high)
      throw UserError("{}: expected a whole number from {} to {}, found '{}'", name, low, high, value);
    return number;
  }
  double seconds(const char* name, double fallback) const {
    return whole(name, 1, 1'000'000).value_or(static_cast<int>(fallback));
  }
};

// Slurm: "4", "2(x3)" or "2,1": how many tasks the nodes have. The first number where there is one node, or all are alike.
std::optional<int> tasks_of_a_node(const char* list) {
  if (!list) return std::nullopt;
  const std::string_view text(list);
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  return number;
}

// Two jobs on one machine should not meet: a port that follows from the job's name.
int port_of(std::string_view job) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 29'500 + static_cast<int>(hash % 2'000);
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const std::size_t digits_end = list.find_first_of(",-]", open);
  if (digits_end == std::string::npos || digits_end == open + 1)
    throw UserError("SLURM_STEP_NODELIST: expected a list like gpu[01-04], found '{}'", list);
  return list.substr(0, open) + list.substr(open + 1, digits_end - open - 1);
}

Launch read_launch(const Environment& environment, Meeting meeting) {
  const Reader read{environment};
  Launch launch;
  launch.connect_seconds = read.seconds("DDL_CONNECT_SECONDS", launch.connect_seconds);
  launch.silence_seconds = read.seconds("DDL_SILENCE_SECONDS", launch.silence_seconds);
  const Family* family = nullptr;
  for (const Family& candidate : kFamilies) {
    if (!read.has(candidate.ranks)) continue;
    const bool of_srun = std::string_view(candidate.ranks) == "PMI_SIZE" &&
                         !read.has(candidate.local_ranks) && read.has("SLURM_STEP_NUM_TASKS");
    if (of_srun) continue;
    if (!read.has(candidate.rank))
      throw UserError("{} is set, {} is not: a launcher sets both (RANK=0 WORLD_SIZE=1 is one process alone)",
                      candidate.ranks, candidate.rank);
    family = &candidate;
    break;
  }
  if (!family) return launch;

  launch.launcher = family->launcher;
  launch.ranks = *read.whole(family->ranks, 1, kMostRanks);
  launch.rank = *read.whole(family->rank, 0, launch.ranks - 1);
  const bool slurm = launch.launcher == "srun";
  const std::optional<int> nodes = slurm ? read.whole("SLURM_STEP_NUM_NODES", 1, kMostRanks) : std::nullopt;
  launch.local_ranks =
      slurm ? (nodes.value_or(1) == 1 ? launch.ranks
                                      : tasks_of_a_node(read.text("SLURM_STEP_TASKS_PER_NODE")).value_or(1))
            : read.whole(family->local_ranks, 1, launch.ranks).value_or(launch.ranks);
  launch.local_rank =
      read.whole(family->local_rank, 0, launch.ranks - 1).value_or(launch.rank % launch.local_ranks);
  launch.restarts = read.whole("SLURM_RESTART_COUNT", 0, 1'000'000).value_or(0);
  if (read.has("TORCHELASTIC_RUN_ID")) {
    launch.launcher = "torchrun";
    launch.restarts = read.whole("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000).value_or(0);
    const char* const agent = read.text("TORCHELASTIC_USE_AGENT_STORE");
    launch.served_by_launcher = agent && std::string_view(agent) == "True";
  }
  if (launch.ranks == 1 || meeting == Meeting::kNone) return launch;

  // Plain variables need not say how many ranks a machine has: then the address of rank 0 does.
  const char* const address = read.text("MASTER_ADDR");
  const bool is_known = slurm || read.has(family->local_ranks);
  const bool is_here = !address || std::string_view(address).starts_with("127.") ||
                       std::string_view(address) == "localhost" || std::string_view(address) == "::1";
  launch.one_machine = launch.local_ranks == launch.ranks && (is_known || is_here);
  const char* const nodelist = slurm ? read.text("SLURM_STEP_NODELIST") : nullptr;
  if (address)
    launch.host = address;
  else if (!launch.one_machine && nodelist)
    launch.host = first_host(nodelist);
  else if (!launch.one_machine)
    throw UserError(
        "{} ranks, {} of them on this machine: where is rank 0? Set MASTER_ADDR to its host name for all of "
        "them "
        "(mpirun -x MASTER_ADDR=HOST ...)",
        launch.ranks, launch.local_ranks);
  if (launch.host.empty())
    throw UserError("MASTER_ADDR is empty, expected the host name of rank 0's machine");
  if (const std::optional<int> port = read.whole("MASTER_PORT", 1, 65'535))
    launch.port = *port;
  else if (launch.launcher == "environment")
    throw UserError(
        "RANK and WORLD_SIZE are set, MASTER_PORT is not: set it to the same free port for all ranks");
  else
    launch.port = port_of(read.has(family->job) ? read.text(family->job) : "");

  return launch;
}

Launch read_launch(Meeting meeting) {
  return read_launch([](const char* name) { return static_cast<const char*>(std::getenv(name)); }, meeting);
}

}  // namespace ddl
