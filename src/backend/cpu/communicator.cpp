#include "backend/cpu/communicator.h"

#include <atomic>
#include <utility>

#include "backend/cpu/device.h"
#include "base/clock.h"

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

  std::atomic<std::int64_t> sent_in_parts = 0;  ///< bytes; their lengths are known when they go

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
    if (call.parts.pieces > 0) turnstile->sent_in_parts += bytes_to_others(call, rank, group->size());
    group->run(rank, call, times);
    times.end_ns = now_ns();
    turnstile->leave();
  };
  device_.enqueue_collective(lane, to_string(call.kind).data(), std::move(work), stamp);
  ++issued_;
  if (call.parts.pieces == 0) wire_bytes_[static_cast<std::size_t>(call.kind)] += cpu::wire_bytes(call, size());
}

const WireBytes& CpuCommunicator::wire_bytes() const {
  told_ = wire_bytes_;
  told_[static_cast<std::size_t>(Collective::all_to_all)] += turnstile_->sent_in_parts;
  return told_;
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

}  // namespace fsdpbench::backend::cpu
