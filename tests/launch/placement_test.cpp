#include "launch/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/error.h"

namespace fsdpbench::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Set = std::map<std::string, std::string>;

std::optional<Placement> find(const Set& set) {
  return find_placement([&set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Set& set) {
  try {
    find(set);
    return "nothing was thrown";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

Set with(Set set, const Set& changes) {
  for (const auto& [name, value] : changes) set[name] = value;
  return set;
}

Set without(Set set, const std::string& name) {
  set.erase(name);
  return set;
}

const Set kTorchrun{{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node1"},
                    {"MASTER_PORT", "29400"},
                    {"TORCHELASTIC_RUN_ID", "abc"},
                    {"TORCHELASTIC_RESTART_COUNT", "2"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Set kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_NAMESPACE", "1234567"},       {"PMIX_RANK", "3"}};
const Set kMvapich{{"MV2_COMM_WORLD_RANK", "1"},
                   {"MV2_COMM_WORLD_SIZE", "4"},
                   {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                   {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}};
const Set kHydra{{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Set kSlurmStep{{"SLURM_JOB_ID", "777"},
                     {"SLURM_STEP_ID", "3"},
                     {"SLURM_PROCID", "17"},
                     {"SLURM_NTASKS", "20"},
                     {"SLURM_STEP_NUM_TASKS", "20"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_NODEID", "2"},
                     {"SLURM_STEP_TASKS_PER_NODE", "8(x2),4"},
                     {"SLURM_STEP_NODELIST", "node[003-004,9]"},
                     {"SLURM_JOB_NODELIST", "node[001-020]"}};

TEST(Placement, NobodyStartedIt) {
  EXPECT_FALSE(find({}));
  EXPECT_FALSE(find({{"PATH", "/bin"}, {"MASTER_ADDR", "node1"}, {"WORLD_SIZE", "8"}}));
  EXPECT_FALSE(find({{"RANK", "3"}})) << "many things are called RANK";
}

TEST(Placement, RanksThatThisProgramStartedAreOfNobodyElsesJob) {
  const auto placement = find(with(kTorchrun, {{"FSDPBENCH_OWN_JOB", "own 7"},
                                               {"FSDPBENCH_OWN_RANK", "2"},
                                               {"FSDPBENCH_OWN_RANKS", "3"},
                                               {"FSDPBENCH_OWN_PORT", "20007"}}));
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 2);
  EXPECT_EQ(placement->ranks, 3);
  EXPECT_EQ(placement->local_rank, 2);
  EXPECT_EQ(placement->local_ranks, 3);
  EXPECT_EQ(placement->job, "own 7");
  EXPECT_EQ(placement->root_host, "127.0.0.1");
  EXPECT_EQ(placement->root_port, 20007);
}

TEST(Placement, Torchrun) {
  const auto placement = find(kTorchrun);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 5);
  EXPECT_EQ(placement->ranks, 8);
  EXPECT_EQ(placement->local_rank, 1);
  EXPECT_EQ(placement->local_ranks, 4);
  EXPECT_EQ(placement->source, "torchrun (RANK, WORLD_SIZE, MASTER_ADDR)");
  EXPECT_EQ(placement->job, "torchrun abc restart 2");
  EXPECT_EQ(placement->root_host, "node1");
  EXPECT_EQ(placement->root_port, 29401) << "torchrun itself holds the port it names";
  EXPECT_EQ(find(with(kTorchrun, {{"FSDPBENCH_PORT", "1234"}}))->root_port, 1234);
  EXPECT_EQ(find(without(kTorchrun, "MASTER_PORT"))->root_port, 29501);
}

TEST(Placement, TheThreeVariablesOfTorchrunSuffice) {
  const auto placement = find({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}});
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->local_rank, 0);
  EXPECT_EQ(placement->local_ranks, 1);
  EXPECT_EQ(placement->job, "");
}

TEST(Placement, OpenMpi) {
  const auto placement = find(kOpenMpi);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 3);
  EXPECT_EQ(placement->ranks, 4);
  EXPECT_EQ(placement->local_rank, 1);
  EXPECT_EQ(placement->local_ranks, 2);
  EXPECT_EQ(placement->source, "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)");
  EXPECT_EQ(placement->job, "mpi 1234567");
  EXPECT_EQ(placement->root_host, "");
}

TEST(Placement, Mvapich) {
  const auto placement = find(kMvapich);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 1);
  EXPECT_EQ(placement->local_ranks, 1);
  EXPECT_EQ(placement->source, "MVAPICH (MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE)");
}

TEST(Placement, MpichAndIntelMpi) {
  const auto placement = find(kHydra);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 2);
  EXPECT_EQ(placement->ranks, 6);
  EXPECT_EQ(placement->local_rank, 2);
  EXPECT_EQ(placement->local_ranks, 3);
  EXPECT_EQ(placement->source, "MPI (PMI_RANK, PMI_SIZE)");
  const auto other = find({{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}, {"PMI_LOCAL_RANK", "0"}, {"PMI_LOCAL_SIZE", "2"}});
  EXPECT_EQ(other->local_ranks, 2);
}

TEST(Placement, SlurmStep) {
  const auto placement = find(kSlurmStep);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rank, 17);
  EXPECT_EQ(placement->ranks, 20);
  EXPECT_EQ(placement->local_rank, 1);
  EXPECT_EQ(placement->local_ranks, 4);
  EXPECT_EQ(placement->source, "Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS)");
  EXPECT_EQ(placement->job, "slurm 777.3");
  EXPECT_EQ(placement->root_host, "node003");
  EXPECT_GE(placement->root_port, 20000);
  EXPECT_LT(placement->root_port, 32000);
  EXPECT_EQ(find(with(kSlurmStep, {{"FSDPBENCH_PORT", "1234"}}))->root_port, 1234);
  EXPECT_EQ(find(with(kSlurmStep, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}))->local_ranks, 8);
  EXPECT_EQ(find(without(kSlurmStep, "SLURM_STEP_NODELIST"))->root_host, "node001");
}

TEST(Placement, ThePortOfASlurmStepIsItsOwn) {
  const int port = find(kSlurmStep)->root_port;
  EXPECT_EQ(find(with(kSlurmStep, {{"SLURM_PROCID", "16"}}))->root_port, port);
  EXPECT_NE(find(with(kSlurmStep, {{"SLURM_STEP_ID", "4"}}))->root_port, port);
  EXPECT_NE(find(with(kSlurmStep, {{"SLURM_JOB_ID", "778"}}))->root_port, port);
}

TEST(Placement, ASlurmStepSmallerThanItsAllocation) {
  const auto placement = find(with(kSlurmStep, {{"SLURM_STEP_NUM_TASKS", "18"}}));
  EXPECT_EQ(placement->ranks, 18);
  const auto old = find(without(kSlurmStep, "SLURM_STEP_NUM_TASKS"));
  EXPECT_EQ(old->ranks, 20);
  EXPECT_EQ(old->source, "Slurm (SLURM_PROCID, SLURM_NTASKS)");
}

TEST(Placement, ShellsInsideAnAllocationAreNoJob) {
  EXPECT_FALSE(find({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}})) << "salloc";
  EXPECT_FALSE(find({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}})) << "a batch script";
  for (const char* step : {"4294967291", "4294967290", "interactive"}) {
    EXPECT_FALSE(find(with(kSlurmStep, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", step}}))) << step;
  }
}

TEST(Placement, OneProcessIsNoJob) {
  EXPECT_FALSE(
      find(with(kTorchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}})));
  EXPECT_FALSE(find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(find({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
}

TEST(Placement, TorchrunBeforeMpiBeforeSlurm) {
  EXPECT_EQ(find(with(with(kSlurmStep, kOpenMpi), kTorchrun))->source, "torchrun (RANK, WORLD_SIZE, MASTER_ADDR)");
  const auto mpi = find(with(with(kSlurmStep, kHydra), kOpenMpi));
  EXPECT_EQ(mpi->source, "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)");
  EXPECT_EQ(mpi->ranks, 4);
  const auto pmi = find(with(kSlurmStep, {{"PMI_RANK", "17"}, {"PMI_SIZE", "20"}}));
  EXPECT_EQ(pmi->source, "MPI (PMI_RANK, PMI_SIZE)") << "srun --mpi=pmi2";
  EXPECT_EQ(pmi->job, "slurm 777.3");
  EXPECT_EQ(pmi->local_rank, 1);
  EXPECT_EQ(pmi->local_ranks, 4);
  EXPECT_EQ(pmi->root_host, "node003");
}

TEST(Placement, HalfATorchrunDoesNotHideAnother) {
  EXPECT_EQ(find(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "9"}}))->ranks, 4);
}

TEST(Placement, RanksOfMpirunOnOneHostMeetThereAtAPortOfTheirJob) {
  const Set one_host = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const auto placement = find(one_host);
  EXPECT_EQ(placement->root_host, "127.0.0.1");
  EXPECT_GE(placement->root_port, 20000);
  EXPECT_LT(placement->root_port, 32000);
  EXPECT_EQ(find(with(one_host, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))->root_port,
            placement->root_port);
  EXPECT_NE(find(with(one_host, {{"PMIX_NAMESPACE", "1234568"}}))->root_port, placement->root_port);
  EXPECT_EQ(find(with(one_host, {{"FSDPBENCH_PORT", "5"}}))->root_port, 5);
}

TEST(Placement, MasterAddrSaysWhereRankZeroOfMpirunIs) {
  const auto placement = find(with(kOpenMpi, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29400"}}));
  EXPECT_EQ(placement->root_host, "node1");
  EXPECT_EQ(placement->root_port, 29401) << "as under torchrun";
  EXPECT_EQ(placement->source, "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, MASTER_ADDR)");
  EXPECT_EQ(error_of(with(kOpenMpi, {{"MASTER_ADDR", "not a host"}})),
            "MASTER_ADDR='not a host' in the environment is neither the name nor the address of a host");
}

struct Wrong {
  Set set;
  std::vector<std::string> named;
};

TEST(Placement, ContradictionsNameTheVariablesAndTheirValues) {
  const std::vector<Wrong> table{
      {with(kTorchrun, {{"RANK", "8"}}), {"RANK=8 and WORLD_SIZE=8", "contradict each other"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK=-1", "not an integer from 0"}},
      {with(kTorchrun, {{"WORLD_SIZE", "2000000000"}}), {"WORLD_SIZE=2000000000", "from 1 to 1048576"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2000000000"}}), {"LOCAL_WORLD_SIZE=2000000000", "from 1 to 1048576"}},
      {with(kTorchrun, {{"RANK", "five"}}), {"RANK=five"}},
      {with(kTorchrun, {{"RANK", "5x"}}), {"RANK=5x"}},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0", "from 1"}},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE=99999999999"}},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"local rank 4 (LOCAL_RANK) of 4", "LOCAL_WORLD_SIZE"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
       {"of 9 on this host (LOCAL_WORLD_SIZE), of 8 in all (WORLD_SIZE)"}},
      {with(kTorchrun, {{"MASTER_PORT", "http"}}), {"MASTER_PORT=http"}},
      {with(kTorchrun, {{"FSDPBENCH_PORT", "70000"}}), {"FSDPBENCH_PORT=70000", "65535"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR is not"}},
      {{{"RANK", "1"}, {"MASTER_ADDR", "x"}}, {"RANK=1", "MASTER_ADDR=x", "WORLD_SIZE is not"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "not a host"}},
       {"MASTER_ADDR='not a host' in the environment is neither"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "256.1.1.1"}},
       {"MASTER_ADDR='256.1.1.1' in the environment is neither"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "http://x"}},
       {"MASTER_ADDR='http://x' in the environment is neither"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1:zz"}},
       {"MASTER_ADDR='::1:zz' in the environment is neither"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "-x"}}, {"MASTER_ADDR='-x' in the environment is neither"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE is not"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_RANK"), {"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK is not"}},
      {with(kMvapich, {{"MV2_COMM_WORLD_RANK", "4"}}), {"MV2_COMM_WORLD_RANK=4 and MV2_COMM_WORLD_SIZE=4"}},
      {without(kHydra, "PMI_SIZE"), {"PMI_RANK=2", "PMI_SIZE is not"}},
      {with(kSlurmStep, {{"SLURM_PROCID", "20"}}), {"SLURM_PROCID=20 and SLURM_STEP_NUM_TASKS=20"}},
      {with(kSlurmStep, {{"SLURM_STEP_ID", "x"}}), {"SLURM_STEP_ID=x"}},
      {with(kSlurmStep, {{"SLURM_STEP_TASKS_PER_NODE", "8(x2"}}), {"SLURM_STEP_TASKS_PER_NODE=8(x2", "node 2"}},
      {with(kSlurmStep, {{"SLURM_NODEID", "3"}}), {"SLURM_STEP_TASKS_PER_NODE=8(x2),4", "node 3"}},
      {with(kSlurmStep, {{"SLURM_STEP_NODELIST", "node["}}), {"SLURM_STEP_NODELIST=node[", "no list of nodes"}},
      {without(without(kSlurmStep, "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS"), {"SLURM_PROCID=17", "is not"}},
  };
  for (const Wrong& wrong : table) {
    for (const std::string& named : wrong.named) EXPECT_THAT(error_of(wrong.set), HasSubstr(named));
  }
}

}  // namespace
}  // namespace fsdpbench::launch
