#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device.h"

namespace fsdpbench::backend::cuda {

/// Collectives of one kind and size on a group of ranks that NCCL does in one way.
struct ProfiledCollective {
  std::string name;        ///< "all_gather"; of those that it has no word for NCCL's own
  std::int64_t bytes = 0;  ///< of the whole message: what all-gather leaves on a rank
  int ranks = 0;
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  std::int64_t count = 0;
  std::int64_t transfers = 0;     ///< over the network, of all channels
  std::int64_t peer_wait_ns = 0;  ///< of those transfers, for permission or data of the peer, summed up
};

/// Collectives of this process as NCCL's profiler interface told them. Memory is fixed, nothing is allocated or
/// locked for a collective of a kind that is known. Thread-safe: NCCL calls from the ranks' and its network's threads.
class CollectiveProfile {
 public:
  static constexpr std::size_t kMostKinds = 512;
  static constexpr std::size_t kMostTransfers = 4096;  ///< under way at a time

  struct Kind;
  struct Group {
    int ranks = 0;
  };

  CollectiveProfile();
  ~CollectiveProfile();
  CollectiveProfile(const CollectiveProfile&) = delete;
  CollectiveProfile& operator=(const CollectiveProfile&) = delete;

  /// A collective that was planned; null if there are too many kinds.
  Kind* collective(const Group& group, const char* function, std::size_t count, const char* dtype, int channels,
                   const char* algorithm, const char* protocol);
  /// A transfer that began for a collective of `kind`; null if too many are under way.
  void* begin_transfer(Kind* kind);
  /// It waits for something else from now (base/clock.h) on: a ProxyState.
  static void enter(void* transfer, int state, std::int64_t now_ns);
  void end_transfer(void* transfer, std::int64_t now_ns);

  std::vector<ProfiledCollective> collectives() const;
  std::int64_t left_out() const { return left_out_; }

 private:
  struct Transfer;

  mutable std::mutex mutex_;
  std::vector<Kind> kinds_;
  std::atomic<std::size_t> kind_count_{0};
  std::vector<Transfer> transfers_;
  std::vector<Transfer*> free_;
  std::atomic<std::int64_t> left_out_{0};
};

/// That of this process, which NCCL fills.
CollectiveProfile& collective_profile();

/// If NCCL_PROFILER_PLUGIN is "fsdpbench", NCCL is told where that is: this plugin. Before the process's first
/// communicator, and before threads read the environment, which it changes. True: NCCL was told, now or before.
bool name_profiler();
/// Facts that NCCL told, by backend::collective_fact(), or why it told nothing; nothing at all if it was not asked.
Facts profile_facts();

}  // namespace fsdpbench::backend::cuda
