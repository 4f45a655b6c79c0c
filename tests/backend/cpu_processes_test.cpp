// Messages and refusals of the CPU backend between processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "backend/cpu/team.h"
#include "backend/cpu_processes.h"
#include "backend/support.h"
#include "base/bytes.h"

namespace fsdpbench::backend {
namespace {

std::unique_ptr<Backend> make_processes() { return std::make_unique<CpuProcesses>(); }

std::string failure(int ranks, const Body& body) {
  BackendOptions options;
  options.ranks = ranks;
  options.pool_bytes = std::numeric_limits<std::int64_t>::max();
  return failure_of(&make_processes, options, body);
}

std::string refusal(launch::Placement placement, BackendOptions options) {
  launch::Joined alone;  // it only says where this process stands
  alone.members.resize(placement.ranks);
  alone.links.resize(placement.ranks);
  launch::Session session(std::move(placement), std::move(alone));
  options.session = &session;
  return failure_of(&make_copy_backend, options, [](RankContext&) {});
}

TEST(CpuProcesses, AsManyRanksAsTheJobHasProcesses) {
  BackendOptions options;
  options.ranks = 3;
  EXPECT_EQ(refusal(placement_of(0, 2, 0), options),
            "3 ranks are asked for, but the job has 2 processes, one rank each");
}

TEST(CpuProcesses, AnEmulatedLinkNeedsOneHost) {
  launch::Placement placement = placement_of(0, 4, 0);
  placement.local_ranks = 2;
  BackendOptions options;
  options.ranks = 4;
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1, .latency_seconds = 0};
  EXPECT_EQ(refusal(placement, options),
            "an emulated link keeps the time of one host, and only 2 of the job's 4 processes are on this one");
}

TEST(CpuProcesses, RanksOfOneHostShareItsMemory) {
  EXPECT_THAT(failure(3,
                      [](RankContext& rank) {
                        rank.device.allocate(cpu::memory_per_rank(2), MemoryCategory::gradients, Lane::compute);
                      }),
              testing::EndsWith("its share of this machine's memory is " + format_bytes(cpu::memory_per_rank(3))));
}

TEST(CpuProcesses, FactsSayHowTheyCommunicate) {
  run_sessions(2, [](launch::Session& session) {
    const std::unique_ptr<Backend> backend = make_copy_backend();
    BackendOptions options;
    options.ranks = 2;
    options.session = &session;
    backend->run(options, [](RankContext&) {});
    EXPECT_EQ(backend->facts().front(), (Facts::value_type{"ranks", "one per process, over TCP sockets"}));
  });
}

TEST(CpuProcesses, ASessionServesManyRuns) {
  run_sessions(2, [](launch::Session& session) {
    const std::unique_ptr<Backend> backend = make_copy_backend();
    BackendOptions options;
    options.ranks = 2;
    options.session = &session;
    for (int run = 0; run < 3; ++run) {
      backend->run(options, [](RankContext& rank) { check_collectives<float>(rank, 100); });
    }
  });
}

TEST(CpuProcesses, DifferentCollectivesOfASplitGroupNameWorldRanks) {
  EXPECT_THAT(failure(4,
                      [](RankContext& rank) {
                        const auto group = rank.world.split(rank.rank % 2, -rank.rank);
                        std::byte* buffer = reserve<float>(rank.device, 16);
                        if (rank.rank % 2 == 1) {
                          group->all_gather(Lane::all_gather, buffer, buffer, rank.rank, DType::f32, nullptr);
                        }
                        rank.device.synchronize();
                      }),
              testing::EndsWith("the ranks call different collectives: world rank 3 all_gather of 3 fp32, "
                                "world rank 1 all_gather of 1 fp32"));
}

TEST(CpuProcesses, ARankThatEndsWhileASplitGroupWaitsForIt) {
  EXPECT_THAT(failure(3,
                      [](RankContext& rank) {
                        const auto group = rank.world.split(rank.rank > 0, rank.rank);
                        std::byte* buffer = reserve<float>(rank.device, 16);
                        if (rank.rank == 2) group->broadcast(Lane::copy, buffer, 1, DType::f32, 0, nullptr);
                        rank.device.synchronize();
                      }),
              testing::EndsWith("world rank 1 has ended without calling the broadcast that world rank 2 has called"));
}

TEST(CpuProcesses, DifferentHostCallsAreAnError) {
  EXPECT_EQ(failure(2,
                    [](RankContext& rank) {
                      if (rank.rank == 0) rank.world.barrier();
                      if (rank.rank == 1) rank.world.split(0, 0);
                    }),
            "the ranks call different things: world rank 0 barrier, world rank 1 split");
}

TEST(CpuProcesses, ARankThatLivesAndDoesNotComeIsNamed) {
  BackendOptions options;
  options.ranks = 3;
  options.set<CpuOptions>().compute_flops_per_s = 1e9;
  options.set<CpuOptions>().stall_s = 0.5;
  const std::string text = failure_of(&make_processes, options, [](RankContext& rank) {
    rank.world.barrier();
    std::byte* shard = reserve<float>(rank.device, 1);
    std::byte* full = reserve<float>(rank.device, 3);
    if (rank.rank == 2) {  // it is busy for an hour
      const auto hour = [](Kernels& kernels) { kernels.delay(std::int64_t{3600} * 1'000'000'000); };
      rank.device.enqueue(Lane::all_gather, "long", hour, nullptr);
    }
    rank.world.all_gather(Lane::all_gather, shard, full, 1, DType::f32, nullptr);
    rank.device.synchronize();
  });
  EXPECT_THAT(text,
              ::testing::ContainsRegex("rank 2 has not come to the all_gather where rank [01] has waited for 0.5 s"));
}

}  // namespace
}  // namespace fsdpbench::backend
