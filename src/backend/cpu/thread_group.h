#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/barrier.h"
#include "backend/cpu/group.h"
#include "backend/cpu/link.h"

namespace fsdpbench::backend::cpu {

class Team;

/// A group of threads of one process: all see each other's memory.
class ThreadGroup : public Group {
 public:
  /// `world_ranks`: the members, in group order. The group becomes known to `team`.
  static std::shared_ptr<ThreadGroup> make(Team& team, std::vector<int> world_ranks);

  int size() const override { return static_cast<int>(world_ranks_.size()); }
  void run(int rank, const CollectiveCall& call, Stamp& stamp) override;
  void host_barrier() override { host_barrier_.arrive_and_wait(); }
  std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank) override;
  void member_ended(int world_rank) override;
  void wait_ended() override {}

 private:
  struct SplitRequest {
    int color = 0;
    int key = 0;
    std::shared_ptr<Group> group;
  };

  ThreadGroup(Team& team, std::vector<int> world_ranks);
  void meet(const CollectiveCall& call);
  std::int64_t message_bytes(const CollectiveCall& call) const;

  Team& team_;
  const std::vector<int> world_ranks_;
  std::vector<CollectiveCall> calls_;  ///< by rank; valid between the meeting and the parting
  std::int64_t all_arrived_ns_ = 0;
  std::shared_ptr<Transfer> transfer_;
  Barrier lane_barrier_;
  Barrier host_barrier_;
  std::vector<SplitRequest> split_requests_;
};

}  // namespace fsdpbench::backend::cpu
