#pragma once

// Rounds of emulated computation and collectives whose links several communicators share. The test asks for the least
// time they can take, bench/link_processes.cpp for how near that is.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/support.h"
#include "base/clock.h"

namespace fsdpbench::backend {

constexpr int kLinkRanks = 4;
constexpr int kLinkRounds = 8;
constexpr std::int64_t kLinkCount = 250'000;  // 1 MB, 1 ms on the link for each other rank

/// When one rank began and ended its part.
struct LinkTimes {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};
using LinkRounds = LinkTimes (*)(RankContext& rank);

struct LinkCase {
  std::string name;
  std::vector<double> slowdown;  ///< of the links
  LinkRounds rounds = nullptr;
  std::int64_t least_ms = 0;  ///< the bytes of the busiest link over its bandwidth: nothing is faster
};

inline BackendOptions with_links(std::vector<double> slowdown) {
  BackendOptions options;
  options.ranks = kLinkRanks;
  options.set<CpuOptions>().compute_flops_per_s = 1e12;
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1e9, .latency_seconds = 20e-6};
  options.set<CpuOptions>().link_slowdown = std::move(slowdown);
  return options;
}

inline std::byte* link_buffer(RankContext& rank) { return reserve<float>(rank.device, kLinkRanks * kLinkCount); }

/// While one unit's gradients are reduced, the next one's parameters are gathered: 3 ms each on every link.
inline LinkTimes full_shard_rounds(RankContext& rank) {
  Device& device = rank.device;
  const auto reducing = rank.world.split(0, rank.rank);
  std::byte* const memory = link_buffer(rank);
  rank.world.barrier();
  const std::int64_t begin = now_ns();
  for (int round = 0; round < kLinkRounds; ++round) {
    rank.world.all_gather(Lane::all_gather, memory, memory, kLinkCount, DType::f32, nullptr);
    device.record(0, Lane::all_gather);
    device.wait(Lane::compute, 0);
    delay(device, Lane::compute, 2 * kMillisecond);
    device.record(1, Lane::compute);
    device.wait(Lane::reduce_scatter, 1);
    reducing->reduce_scatter(Lane::reduce_scatter, memory, memory, kLinkCount, DType::f32, 1.0F, nullptr);
  }
  device.synchronize();
  return {begin, now_ns()};
}

/// Two shard groups; each rank's reduced shard is then summed over the replicas: 2 ms each on every link.
inline LinkTimes hybrid_rounds(RankContext& rank) {
  Device& device = rank.device;
  const auto shard = rank.world.split(rank.rank / 2, rank.rank);
  const auto replicate = rank.world.split(rank.rank % 2, rank.rank);
  std::byte* const memory = link_buffer(rank);
  rank.world.barrier();
  const std::int64_t begin = now_ns();
  for (int round = 0; round < kLinkRounds; ++round) {
    delay(device, Lane::compute, kMillisecond);
    device.record(0, Lane::compute);
    device.wait(Lane::reduce_scatter, 0);
    shard->reduce_scatter(Lane::reduce_scatter, memory, memory, 2 * kLinkCount, DType::f32, 1.0F, nullptr);
    device.record(1, Lane::reduce_scatter);
    device.wait(Lane::all_reduce, 1);
    replicate->all_reduce(Lane::all_reduce, memory, 2 * kLinkCount, DType::f32, 1.0F, nullptr);
  }
  device.synchronize();
  return {begin, now_ns()};
}

/// Stamps of one rank's two transfers.
struct StrangerStamps {
  Stamp others;  ///< of ranks 1 and 2, begun first
  Stamp ours;    ///< of ranks 0 and 1
};

/// Rank 1's link carries a transfer of which rank 0 has no part when their own begins, 40 ms each. When that is
/// through, both are, whenever it has begun.
inline StrangerStamps stranger_transfers(RankContext& rank) {
  Device& device = rank.device;
  const auto others = rank.world.split(rank.rank == 1 || rank.rank == 2, rank.rank);
  const auto ours = rank.world.split(rank.rank == 0 || rank.rank == 1, rank.rank);
  std::byte* const memory = link_buffer(rank);
  rank.world.barrier();
  StrangerStamps stamps;
  if (rank.rank == 1 || rank.rank == 2) {
    others->all_gather(Lane::all_gather, memory, memory, 40 * kLinkCount, DType::f32, &stamps.others);
  }
  delay(device, Lane::compute, 10 * kMillisecond);
  device.record(0, Lane::compute);
  device.wait(Lane::reduce_scatter, 0);
  if (rank.rank <= 1) {
    ours->all_gather(Lane::reduce_scatter, memory, memory, 40 * kLinkCount, DType::f32, &stamps.ours);
  }
  device.synchronize();
  return stamps;
}

/// From the strangers' begin to where rank 0 sees the end.
inline LinkTimes stranger_rounds(RankContext& rank) {
  const StrangerStamps stamps = stranger_transfers(rank);
  return {rank.rank == 1 ? stamps.others.peers_arrived_ns : std::numeric_limits<std::int64_t>::max(),
          rank.rank == 0 ? stamps.ours.end_ns : 0};
}

/// In each all ranks take part in what their links carry.
inline std::vector<LinkCase> link_cases() {
  return {
      {"CommunicatorsShareIt", {}, &full_shard_rounds, 2 * 3 * kLinkRounds},
      {"ASlowOneIsSharedByAllWhoUseIt", {1.0, 1.0, 3.0, 1.0}, &full_shard_rounds, 3 * 2 * 3 * kLinkRounds},
      {"GroupsOfDifferentMembersShareTheirLinks", {}, &hybrid_rounds, 2 * 2 * kLinkRounds},
      {"AlsoWhereOneLinkIsSlow", {1.0, 1.0, 1.0, 3.0}, &hybrid_rounds, 3 * 2 * 2 * kLinkRounds},
  };
}

/// Nanoseconds from the first rank's begin to the last one's end.
inline std::int64_t time_of_rounds(Backend& backend, const LinkCase& c) {
  std::mutex mutex;
  LinkTimes whole{std::numeric_limits<std::int64_t>::max(), 0};
  backend.run(with_links(c.slowdown), [&](RankContext& rank) {
    const LinkTimes mine = c.rounds(rank);
    const std::lock_guard lock(mutex);
    whole.begin_ns = std::min(whole.begin_ns, mine.begin_ns);
    whole.end_ns = std::max(whole.end_ns, mine.end_ns);
  });
  return whole.end_ns - whole.begin_ns;
}

}  // namespace fsdpbench::backend
