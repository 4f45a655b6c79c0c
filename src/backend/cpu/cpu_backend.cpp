#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <atomic>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/process_group.h"
#include "backend/cpu/team.h"
#include "backend/cpu/thread_group.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "hardware/thread_binding.h"
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

/// Among the ranks of its host.
hardware::LocalRank local_rank(const BackendOptions& options, int rank) {
  if (options.session == nullptr) return {rank, options.ranks, {}};
  return {options.session->placement().local_rank, options.session->placement().local_ranks, {}};
}

void run_rank(Team& team, const std::shared_ptr<Group>& group, int rank,
              const std::function<void(RankContext&)>& body) {
  std::optional<hardware::ThreadBinding> binding;  // before the lanes, whose threads inherit it
  std::unique_ptr<CpuDevice> device;  // outlives the handler: its lanes may end only after the abort is set
  try {
    binding.emplace(team.options().binding, local_rank(team.options(), rank));
    device = std::make_unique<CpuDevice>(team, rank, binding->text());
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

}  // namespace fsdpbench::backend::cpu
