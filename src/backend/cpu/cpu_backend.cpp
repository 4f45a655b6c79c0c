#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/process_group.h"
#include "backend/cpu/seat.h"
#include "backend/cpu/team.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {

class CpuCommunicator::Turnstile {
 public:
  explicit Turnstile(launch::Abort& abort) : moved_(abort) {}
  void enter(std::int64_t number) {
    moved_.wait([&] { return passed_.load() == number; });
  }
  void leave() {
    passed_.fetch_add(1);
    moved_.notify();
  }

 private:
  std::atomic<std::int64_t> passed_{0};
  WaitPoint moved_;
};

CpuCommunicator::CpuCommunicator(CpuDevice& device, std::shared_ptr<Group> group, int rank)
    : device_(device), group_(std::move(group)), rank_(rank), turnstile_(std::make_shared<Turnstile>(device.abort())) {}

void CpuCommunicator::enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) {
  check_root(call, size());
  auto work = [group = group_, turnstile = turnstile_, rank = rank_, number = issued_, call](Stamp& times) {
    turnstile->enter(number);
    times.begin_ns = now_ns();  // waiting for this rank's own earlier collective is no part of this one
    group->run(rank, call, times);
    times.end_ns = now_ns();
    turnstile->leave();
  };
  device_.enqueue_collective(lane, to_string(call.kind).data(), std::move(work), stamp);
  ++issued_;
  wire_bytes_[static_cast<std::size_t>(call.kind)] += cpu::wire_bytes(call, size());
}

void CpuCommunicator::barrier() {
  device_.guarded([&] { group_->host_barrier(); });
}

std::unique_ptr<Communicator> CpuCommunicator::split(int color, int key) {
  int new_rank = 0;
  std::shared_ptr<Group> group;
  device_.guarded([&] { group = group_->split(rank_, color, key, new_rank); });
  return std::make_unique<CpuCommunicator>(device_, std::move(group), new_rank);
}
namespace {

void run_rank(Team& team, const std::shared_ptr<Group>& group, int rank,
              const std::function<void(RankContext&)>& body) {
  std::unique_ptr<CpuDevice> device;  // outlives the handler: its lanes may end only after the abort is set
  try {
    device = std::make_unique<CpuDevice>(team, rank);
    CpuCommunicator communicator(*device, group, rank);
    RankContext context{rank, *device, communicator};
    body(context);
    device->synchronize();
    team.rank_ended(rank);
  } catch (...) {
    team.fail(std::current_exception());
    throw;
  }
}

void run_threads(Team& team, const std::function<void(RankContext&)>& body) {
  const int count = team.options().ranks;
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::shared_ptr<Group> group = ThreadGroup::make(team, std::move(ranks));
  launch::run_ranks(count, [&](int rank) { run_rank(team, group, rank, body); });
}

void run_process(Team& team, const std::function<void(RankContext&)>& body) {
  try {
    run_rank(team, ProcessGroup::make(team), team.options().session->placement().rank, body);
    team.wait_for_others();
  } catch (...) {
    team.fail(std::current_exception());
    throw;
  }
}

}  // namespace

Facts CpuBackend::facts() const {
  return {{"ranks", ranks_},
          {"processors", std::to_string(std::thread::hardware_concurrency())},
          {"memory", format_bytes(memory_per_rank(1))},
          {"communication lanes of emulated links", describe_prompt_scheduling()}};
}

void CpuBackend::run(const BackendOptions& options, const std::function<void(RankContext&)>& body) {
  Team team(options, kernels_);
  launch::Session* const session = options.session;
  ranks_ = session ? fmt::format("one per process, over {}", session->transport()) : "threads of one process";
  try {
    session ? run_process(team, body) : run_threads(team, body);
  } catch (...) {
    if (const std::exception_ptr first = team.abort().first()) std::rethrow_exception(first);
    throw;
  }
}

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
