#include "backend/cpu/thread_group.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/seat.h"
#include "backend/cpu/team.h"
#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {

void Barrier::wait_for_release(std::uint32_t phase) {
  constexpr int kYields = 64;
  released_.wait([&] { return phase_.load() != phase || ended_.load(); }, kYields);
  if (phase_.load() == phase) {
    throw BackendError("a rank of the group has ended without calling this collective or barrier");
  }
}

std::shared_ptr<ThreadGroup> ThreadGroup::make(Team& team, std::vector<int> world_ranks) {
  std::shared_ptr<ThreadGroup> group(new ThreadGroup(team, std::move(world_ranks)));
  team.add(group);
  return group;
}

ThreadGroup::ThreadGroup(Team& team, std::vector<int> world_ranks)
    : team_(team),
      world_ranks_(std::move(world_ranks)),
      calls_(world_ranks_.size()),
      lane_barrier_(team.abort(), size()),
      host_barrier_(team.abort(), size()),
      split_requests_(world_ranks_.size()) {}

void ThreadGroup::run(int rank, const CollectiveCall& call, Stamp& stamp) {
  calls_[rank] = call;
  meet(call);
  stamp.peers_arrived_ns = all_arrived_ns_;
  const std::shared_ptr<Transfer> transfer = transfer_;
  if (team_.moves_bytes()) {
    move_directly(rank, calls_, [this] { lane_barrier_.arrive_and_wait(); });
    lane_barrier_.arrive_and_wait();  // nobody reads this rank's memory any more
  }
  if (!transfer) return;
  team_.links()->wait(*transfer);
  const int world_rank = world_ranks_[rank];
  stamp.link_ns = team_.links()->end_of(*transfer, world_rank) - transfer->start_ns;
}

void ThreadGroup::meet(const CollectiveCall& call) {
  lane_barrier_.arrive_and_wait([&] {
    all_arrived_ns_ = now_ns();
    check_match(calls_, world_ranks_);  // before anybody trusts the others' arguments
    if (Links* links = team_.links()) {
      transfer_ = links->begin(world_ranks_, link_bytes(call, size()), hops(call.kind, size()), all_arrived_ns_);
    }
  });
}

std::shared_ptr<Group> ThreadGroup::split(int rank, int color, int key, int& new_rank) {
  SplitRequest& mine = split_requests_[rank];
  mine = {color, key, nullptr};
  host_barrier();
  std::vector<int> members;  // ranks of this group
  for (int r = 0; r < size(); ++r) {
    if (split_requests_[r].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return split_requests_[a].key < split_requests_[b].key; });
  new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  if (new_rank == 0) {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(world_ranks_[member]);
    mine.group = make(team_, std::move(ranks));
  }
  host_barrier();
  std::shared_ptr<Group> group = split_requests_[members.front()].group;
  host_barrier();  // the next split may overwrite the requests only now
  mine.group = nullptr;
  return group;
}

void ThreadGroup::member_ended(int world_rank) {
  if (std::find(world_ranks_.begin(), world_ranks_.end(), world_rank) == world_ranks_.end()) return;
  lane_barrier_.member_ended();
  host_barrier_.member_ended();
}

}  // namespace fsdpbench::backend::cpu
