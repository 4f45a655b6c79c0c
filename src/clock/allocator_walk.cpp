#include "clock/allocator_walk.h"

#include <algorithm>
#include <array>
#include <vector>

#include "clock/forecast.h"

namespace fsdpbench::clock {
namespace {

using schedule::BufferId;
using schedule::Op;
using schedule::Schedule;

class AllocatorWalk {
 public:
  AllocatorWalk(int event_count, std::int64_t capacity, bool expandable)
      : allocator_(capacity, expandable), events_ns_(static_cast<std::size_t>(event_count), 0) {}

  void allocate_persistent(const Schedule& schedule) {
    for (std::size_t id = 0; id < schedule.buffers.size() && schedule.buffers[id].persistent; ++id) {
      held_.push_back({});
      if (schedule.buffers[id].space != MemorySpace::device) continue;
      held_.back() = {allocator_.allocate(schedule.buffers[id].bytes, Lane::compute, 0), Lane::compute};
    }
  }

  void step(const Schedule& schedule, std::span<const trace::Record> records) {
    held_.resize(schedule.buffers.size());
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) issue(schedule, schedule.ops[i], records[i]);
  }

  const CachingAllocator::Statistics& statistics() const { return allocator_.statistics(); }

 private:
  struct Held {
    CachingAllocator::BlockId block = -1;
    Lane stream = Lane::compute;
  };

  void issue(const Schedule& schedule, const Op& op, const trace::Record& record) {
    if (op.is_host()) return;
    for (const BufferId id : op.allocates) {
      const schedule::Buffer& buffer = schedule.buffers[static_cast<std::size_t>(id)];
      if (buffer.space != MemorySpace::device) continue;
      held_[static_cast<std::size_t>(id)] = {
          allocator_.allocate(buffer.bytes, op.lane, static_cast<double>(record.issued_ns)), op.lane};
    }
    // An op without work has no times of its own: it is over when its lane comes past it.
    double& lane_ns = lanes_ns_[index_of(op.lane)];
    for (const schedule::Wait& wait : op.waits) {
      lane_ns = std::max(lane_ns, events_ns_[static_cast<std::size_t>(wait.event)]);
    }
    if (op.has_work()) lane_ns = std::max(lane_ns, static_cast<double>(record.end_ns));
    if (op.record != schedule::kNoEvent) events_ns_[static_cast<std::size_t>(op.record)] = lane_ns;
    for (const BufferId id : op.frees) {
      if (schedule.buffers[static_cast<std::size_t>(id)].space != MemorySpace::device) continue;
      const Held& held = held_[static_cast<std::size_t>(id)];
      if (held.stream == op.lane) {
        allocator_.free(held.block);
      } else {
        allocator_.free_after(held.block, lane_ns);
      }
    }
  }

  CachingAllocator allocator_;
  std::array<double, kLaneCount> lanes_ns_{};
  std::vector<double> events_ns_;
  std::vector<Held> held_;  // by buffer
};

}  // namespace

CachingAllocator::Statistics allocator_walk(const schedule::Schedules& schedules,
                                            std::span<const trace::Record> records, std::size_t first,
                                            std::int64_t capacity, bool expandable) {
  AllocatorWalk walk(schedules.event_count, capacity, expandable);
  walk.allocate_persistent(schedules.steps.front());
  for (std::size_t step = first; !records.empty(); ++step) {
    const Schedule& schedule = schedules.of_step(step);
    walk.step(schedule, records.first(schedule.ops.size()));
    records = records.subspan(schedule.ops.size());
  }
  return walk.statistics();
}

CachingAllocator::Statistics allocator_forecast(const schedule::Training& training, const OpTimes& times,
                                                std::int64_t capacity) {
  std::vector<trace::RankTrace> traces(1);
  forecast_run(training, times, training.schedules.steps.size() + 1, 0, traces);
  return allocator_walk(training.schedules, traces.front().records, 0, capacity,
                        training.config.simulate.expandable_segments);
}

}  // namespace fsdpbench::clock
