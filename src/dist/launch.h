// Who this process is among the ranks of a run, as its launcher says in the environment: torchrun or plain
// variables (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_*), MPICH and others of its family (PMI_*), or
// Slurm's srun (SLURM_*), in this order. Slurm's plugin for PMI sets some of MPICH's names, too; those alone
// mean srun.
#pragma once

#include <functional>
#include <string>

namespace ddl {

struct Launch {
  std::string launcher = "none";  // "torchrun", "environment", "mpirun", "srun"
  int rank = 0, ranks = 1;
  int local_rank = 0, local_ranks = 1;  // of those on this machine
  bool one_machine = true;              // all of them, as far as the launcher says
  // Where rank 0 listens, or torchrun does in its place.
  std::string host = "127.0.0.1";
  int port = 0;
  bool served_by_launcher = false;
  int restarts = 0;              // by the launcher, after a failure: 0 for the first attempt
  double connect_seconds = 60;   // until all ranks must have come
  double silence_seconds = 600;  // of a rank that is alive: then it counts as gone
};

using Environment = std::function<const char*(const char* name)>;  // like getenv
// Whether the ranks are to connect with one another. Where not, nobody need say where rank 0 is.
enum class Meeting { kNeeded, kNone };
Launch read_launch(const Environment& environment, Meeting meeting = Meeting::kNeeded);  // throws UserError
Launch read_launch(Meeting meeting = Meeting::kNeeded);                                  // of this process

// The first host of a list as Slurm writes it: "gpu[03-05,9],login" is "gpu03".
std::string first_host(const std::string& list);

}  // namespace ddl
