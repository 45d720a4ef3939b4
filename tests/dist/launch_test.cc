#include "dist/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"

namespace ddl::launch_test {

using Variables = std::map<std::string, std::string>;

Launch read(const Variables& variables, Meeting meeting = Meeting::kNeeded) {
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return read_launch(environment, meeting);
}

std::string refused(const Variables& variables) {
  try {
    read(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Launch, WithoutALauncherThereIsOneRank) {
  const Launch launch = read({});
  EXPECT_EQ(launch.launcher, "none");
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.ranks, 1);
  EXPECT_EQ(launch.local_ranks, 1);
}

// A study's ranks share a folder and never meet: Open MPI on two machines need not say where rank 0 is.
TEST(Launch, RanksThatDoNotMeetNeedNoAddress) {
  const Variables two_machines = {{"OMPI_COMM_WORLD_RANK", "3"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_TRUE(says(refused(two_machines), "where is rank 0?"));
  const Launch launch = read(two_machines, Meeting::kNone);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.local_ranks, 2);
  EXPECT_EQ(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, Meeting::kNone).rank, 1);
}

TEST(Launch, PlainVariables) {
  const Launch launch =
      read({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}});
  EXPECT_EQ(launch.launcher, "environment");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.local_rank, 3);
  EXPECT_EQ(launch.local_ranks, 4);
  EXPECT_EQ(launch.host, "head");
  EXPECT_EQ(launch.port, 1234);
  EXPECT_FALSE(launch.one_machine) << "rank 0 is elsewhere";
  EXPECT_FALSE(launch.served_by_launcher);
  EXPECT_TRUE(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}})
                  .one_machine);
}

TEST(Launch, SrunWithItsOwnPmiIsSrun) {
  Variables v{{"PMI_RANK", "3"},
              {"PMI_SIZE", "4"},
              {"PMI_JOBID", "7.0"},
              {"SLURM_PROCID", "3"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_STEP_NUM_TASKS", "4"},
              {"SLURM_JOB_ID", "7"},
              {"SLURM_STEP_NUM_NODES", "2"},
              {"SLURM_STEP_NODELIST", "gpu[03-04]"},
              {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  const Launch launch = read(v);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.local_ranks, 2);
  EXPECT_EQ(launch.host, "gpu03");
  EXPECT_FALSE(launch.one_machine);
  // MPICH's own launcher inside a job of Slurm says how many are here.
  v["MPI_LOCALNRANKS"] = "4", v["MPI_LOCALRANKID"] = "3";
  EXPECT_EQ(read(v).launcher, "mpirun");
}

TEST(Launch, Torchrun) {
  Variables v{{"RANK", "5"},
              {"WORLD_SIZE", "8"},
              {"LOCAL_RANK", "1"},
              {"LOCAL_WORLD_SIZE", "4"},
              {"MASTER_ADDR", "head"},
              {"MASTER_PORT", "29500"},
              {"TORCHELASTIC_RUN_ID", "x"},
              {"TORCHELASTIC_RESTART_COUNT", "2"},
              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const Launch launch = read(v);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_ranks, 4);
  EXPECT_EQ(launch.restarts, 2);
  EXPECT_TRUE(launch.served_by_launcher);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(read(v).served_by_launcher);
  v["WORLD_SIZE"] = "1", v["RANK"] = "0", v["LOCAL_RANK"] = "0", v["LOCAL_WORLD_SIZE"] = "1";
  EXPECT_EQ(read(v).restarts, 2) << "one rank is started again, too";
}

TEST(Launch, OpenMpiOnOneMachineNeedsNothingElse) {
  const Variables v{{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                    {"PMIX_NAMESPACE", "prterun-a-1@1"}};
  const Launch launch = read(v);
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.host, "127.0.0.1");
  EXPECT_GE(launch.port, 29'500);
  EXPECT_LT(launch.port, 31'500);
  EXPECT_EQ(launch.port, read(v).port) << "all ranks find the same one";
  Variables other = v;
  other["PMIX_NAMESPACE"] = "prterun-a-2@1";
  EXPECT_NE(read(other).port, launch.port) << "another job";
}

TEST(Launch, OpenMpiOnSeveralMachinesAsksForTheHost) {
  Variables v{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_TRUE(says(refused(v), "MASTER_ADDR")) << refused(v);
  v["MASTER_ADDR"] = "head";
  EXPECT_EQ(read(v).host, "head");
}

TEST(Launch, Mpich) {
  const Launch launch =
      read({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}});
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.ranks, 3);
}

TEST(Launch, Slurm) {
  Variables v{{"SLURM_PROCID", "5"},
              {"SLURM_NTASKS", "8"},
              {"SLURM_STEP_NUM_TASKS", "8"},
              {"SLURM_STEP_NUM_NODES", "2"},
              {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_STEP_NODELIST", "gpu[03-04]"},
              {"SLURM_JOB_ID", "77"},
              {"SLURM_RESTART_COUNT", "1"}};
  const Launch launch = read(v);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_ranks, 4);
  EXPECT_EQ(launch.host, "gpu03");
  EXPECT_EQ(launch.restarts, 1);
  v.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(read(v).ranks, 1) << "a batch script's own process is alone";
}

TEST(Launch, FirstHostOfASlurmList) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[03-05,9],login"), "gpu03");
  EXPECT_EQ(first_host("login,gpu[03-05]"), "login");
  EXPECT_EQ(first_host("gpu[7]"), "gpu7");
  EXPECT_THROW(first_host("gpu["), UserError);
  EXPECT_THROW(first_host("gpu[]"), UserError);
}

TEST(Launch, BadInputIsNamed) {
  const Variables good{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}};
  EXPECT_EQ(refused(good), "accepted");
  const auto with = [&](const char* name, const char* value) {
    Variables v = good;
    v[name] = value;
    return refused(v);
  };
  EXPECT_TRUE(says(with("RANK", "2"), "RANK: expected a whole number from 0 to 1, found '2'"))
      << with("RANK", "2");
  EXPECT_TRUE(says(with("RANK", "-1"), "RANK:"));
  EXPECT_TRUE(says(with("RANK", ""), "RANK:"));
  EXPECT_TRUE(says(with("RANK", "0x"), "RANK:"));
  EXPECT_TRUE(says(with("WORLD_SIZE", "0"), "WORLD_SIZE:"));
  EXPECT_TRUE(says(with("WORLD_SIZE", "99999999999"), "WORLD_SIZE:"));
  EXPECT_TRUE(says(with("MASTER_PORT", "65536"), "MASTER_PORT:"));
  EXPECT_TRUE(says(with("MASTER_PORT", "http"), "MASTER_PORT:"));
  EXPECT_TRUE(says(with("MASTER_ADDR", ""), "MASTER_ADDR"));
  EXPECT_TRUE(says(with("LOCAL_WORLD_SIZE", "3"), "LOCAL_WORLD_SIZE:"));
  EXPECT_TRUE(says(with("DDL_CONNECT_SECONDS", "soon"), "DDL_CONNECT_SECONDS:"));
  EXPECT_TRUE(says(refused({{"WORLD_SIZE", "2"}}), "RANK is not"));
  EXPECT_TRUE(says(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_PORT is not"));
}

}  // namespace ddl::launch_test
