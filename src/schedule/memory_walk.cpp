#include "schedule/memory_walk.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "schedule/communicator_order.h"

namespace fsdpbench::schedule {
namespace {

class Walk {
 public:
  Walk(int event_count, MemorySpace space) : space_(space), events_(event_count) {}

  void allocate_persistent(const Schedule& schedule) {
    for (const Buffer& buffer : schedule.buffers) {
      if (!buffer.persistent) break;  // they come first
      offsets_.emplace_back();
      if (buffer.space == space_) {
        offsets_.back() = pool_.allocate(buffer.bytes, buffer.category, Lane::compute, order_);
      }
    }
  }

  void step(const Schedule& schedule) {
    offsets_.resize(schedule.buffers.size());
    for (const Op& op : schedule.ops) issue(schedule, op);
    wait_for_all();
  }

  const LanePool& pool() const { return pool_; }

 private:
  void wait_for_all() {
    for (Lane lane : kLanes) order_.host_wait(order_.record(lane));
  }

  void issue(const Schedule& schedule, const Op& op) {
    for (const Wait& wait : op.waits) {
      const LaneClock& event = events_[wait.event];
      if (op.is_host()) {
        order_.host_wait(event);
      } else {
        order_.wait(op.lane, event);
      }
    }
    if (op.kind == OpKind::host_sync) wait_for_all();
    if (op.is_host()) return;
    if (const EventId before = in_line_.before(op); before != kNoEvent) order_.wait(op.lane, events_[before]);
    for (BufferId id : op.allocates) {
      const Buffer& buffer = schedule.buffers[id];
      if (buffer.space != space_) continue;
      offsets_[id] = pool_.allocate(buffer.bytes, buffer.category, op.lane, order_);
    }
    if (op.has_work()) order_.issue(op.lane);
    for (BufferId id : op.frees) {
      if (schedule.buffers[id].space != space_) continue;
      pool_.free(offsets_[id], op.lane, order_);
    }
    if (op.record != kNoEvent) events_[op.record] = order_.record(op.lane);
  }

  MemorySpace space_;
  LaneOrder order_;
  CommunicatorOrder in_line_;
  LanePool pool_;
  std::vector<LaneClock> events_;
  std::vector<std::int64_t> offsets_;
};

/// Walks until steady steps repeat; what the pool will show after all of them.
PoolStatistics statistics_after(Walk& walk, const Schedules& schedules, std::int64_t steps) {
  walk.allocate_persistent(schedules.steps.front());
  struct StepEnd {  // after a steady step
    std::vector<std::int64_t> layout;
    PoolStatistics statistics;
  };
  std::vector<StepEnd> ends;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Schedule& schedule = schedules.of_step(step);
    walk.step(schedule);
    if (&schedule != &schedules.steady()) continue;
    StepEnd end{walk.pool().layout(), walk.pool().statistics()};
    const auto same =
        std::find_if(ends.begin(), ends.end(), [&](const StepEnd& earlier) { return earlier.layout == end.layout; });
    if (same == ends.end()) {
      ends.push_back(std::move(end));
      continue;
    }
    // From here the steps since `same` come again and again: nothing new but what is counted.
    const auto period = std::distance(same, ends.end());
    const std::int64_t left = steps - 1 - step;
    const PoolStatistics& last = same[left % period].statistics;
    const std::int64_t rounds = left / period + 1;
    PoolStatistics result = end.statistics;
    result.allocations = last.allocations + rounds * (end.statistics.allocations - same->statistics.allocations);
    result.reuses = last.reuses + rounds * (end.statistics.reuses - same->statistics.reuses);
    return result;
  }
  return walk.pool().statistics();
}

}  // namespace

PoolStatistics memory_walk(const Schedules& schedules, std::int64_t steps, MemorySpace space) {
  Walk walk(schedules.event_count, space);
  return statistics_after(walk, schedules, steps);
}

CategoryBytes category_walk(const Schedules& schedules, std::int64_t steps) {
  Walk walk(schedules.event_count, MemorySpace::device);
  statistics_after(walk, schedules, steps);
  return walk.pool().reserved_by_category();
}

MemoryPeak memory_peak(const Schedule& schedule) {
  const auto bytes = [&](BufferId id) { return schedule.buffers[id].bytes; };
  const auto on_device = [&](BufferId id) { return schedule.buffers[id].space == MemorySpace::device; };
  std::set<BufferId> live;
  std::int64_t now = 0;
  for (BufferId id = 0; id < static_cast<BufferId>(schedule.buffers.size()); ++id) {
    if (!schedule.buffers[id].persistent || !on_device(id)) continue;
    live.insert(id);
    now = checked_sum(now, bytes(id));
  }
  MemoryPeak peak;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    for (BufferId id : schedule.ops[i].allocates) {
      if (!on_device(id)) continue;
      live.insert(id);
      now = checked_sum(now, bytes(id));
    }
    if (now > peak.live_bytes) peak = {static_cast<int>(i), now, {live.begin(), live.end()}};
    for (BufferId id : schedule.ops[i].frees) {
      if (!on_device(id)) continue;
      live.erase(id);
      now -= bytes(id);
    }
  }
  std::stable_sort(peak.live.begin(), peak.live.end(), [&](BufferId a, BufferId b) { return bytes(a) > bytes(b); });
  return peak;
}

bool may_come_later(const Schedule& schedule, const Op& op, BufferId id) {
  if (op.kind != OpKind::backward) return false;
  const BufferRole role = schedule.buffers[id].role;
  return (role == BufferRole::gradients || role == BufferRole::d_stream) &&
         std::ranges::find(op.frees, id) == op.frees.end();
}

}  // namespace fsdpbench::schedule
