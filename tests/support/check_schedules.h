#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/lane.h"
#include "base/lane_blocks.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

/// A place where a schedule is wrong whatever the speed of its lanes.
struct Fault {
  int step = 0;         ///< index into Schedules::steps (one past the last: the steady step again)
  int op = -1;          ///< index into its ops; -1: the end of the step
  std::string message;  ///< a sentence with the ops' and buffers' names
};

namespace proof {

/// An op's place in the order of its lane, and what it comes after.
struct Point {
  Lane lane = Lane::compute;
  std::int64_t position = 0;
  LaneClock clock;
  std::string name;
};

inline bool before(const Point& earlier, const LaneClock& later) {
  return later.covers(earlier.lane, earlier.position);
}

struct BufferState {
  bool allocated = false;
  bool written = false;
  LaneClock allocated_at;
  std::vector<Point> writes;  // since the last write that all came after
  std::vector<Point> reads;
};

class Checker {
 public:
  Checker(const Schedules& schedules, std::size_t limit) : schedules_(schedules), limit_(limit) {
    events_.resize(schedules.event_count);
    recorded_.resize(events_.size(), false);
  }

  std::vector<Fault> run() {
    const std::size_t persistent = count_persistent(schedules_.steps.front());
    states_.resize(persistent);
    for (BufferState& state : states_) state.allocated = state.written = true;
    for (std::size_t step = 0; step < schedules_.steps.size() + 2 && faults_.size() < limit_; ++step) {
      run_step(static_cast<int>(step), schedules_.of_step(step), persistent);
    }
    return std::move(faults_);
  }

 private:
  static std::size_t count_persistent(const Schedule& schedule) {
    std::size_t n = 0;
    while (n < schedule.buffers.size() && schedule.buffers[n].persistent) ++n;
    return n;
  }

  void fault(std::string message) {
    if (faults_.size() < limit_) faults_.push_back({step_, op_, std::move(message)});
  }

  std::string name_of(BufferId id) const {
    const Buffer& b = schedule_->buffers[id];
    return fmt::format("{} (unit {}, module {}, microbatch {})", to_string(b.role), b.unit, b.module, b.micro);
  }

  void run_step(int step, const Schedule& schedule, std::size_t persistent) {
    step_ = step;
    schedule_ = &schedule;
    states_.resize(persistent);
    states_.resize(schedule.buffers.size());
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      op_ = static_cast<int>(i);
      run_op(schedule.ops[i]);
    }
    op_ = -1;
    for (std::size_t i = persistent; i < states_.size(); ++i) {
      if (states_[i].allocated) fault(fmt::format("{} is never freed", name_of(static_cast<BufferId>(i))));
    }
  }

  void run_op(const Op& op) {
    for (const Wait& wait : op.waits) {
      const std::size_t event = wait.event;
      if (event >= events_.size()) {
        fault(fmt::format("{} waits for event {}, which does not exist", to_string(op.kind), wait.event));
        continue;
      }
      if (!recorded_[event] && step_ >= static_cast<int>(schedules_.steps.size())) {
        fault(fmt::format("{} waits for an event that nothing records", to_string(op.kind)));
      }
      if (op.is_host()) {
        order_.host_wait(events_[event]);
      } else {
        order_.wait(op.lane, events_[event]);
      }
    }
    if (op.kind == OpKind::host_sync) {
      for (Lane lane : kLanes) order_.host_wait(order_.record(lane));
    }
    if (op.is_host()) return;

    const LaneClock at_allocation = order_.now(op.lane);
    for (BufferId id : op.allocates) allocate(id, at_allocation);
    const std::int64_t position = order_.issue(op.lane);
    const Point point{op.lane, position, order_.now(op.lane), std::string(to_string(op.kind))};
    const Operands operands = op.operands();
    for (BufferId id : operands.reads) read(id, point);
    for (BufferId id : operands.writes) write(id, point);
    if (!op.is_transfer()) {
      for (BufferId id : operands.reads) check_reach(op, id);
      for (BufferId id : operands.writes) check_reach(op, id);
    }
    for (BufferId id : op.frees) free(id, point);
    if (op.record != kNoEvent) {
      events_[op.record] = order_.record(op.lane);
      recorded_[op.record] = true;
    }
  }

  /// Only transfers touch both memories; but a device reads and writes single numbers in the host's.
  void check_reach(const Op& op, BufferId id) {
    const Buffer& buffer = schedule_->buffers[id];
    const bool few = buffer.role == BufferRole::norm_partial || buffer.role == BufferRole::norm_gathered ||
                     buffer.role == BufferRole::clip_factor;
    const bool on_host = buffer.space == MemorySpace::host;
    if (few || on_host == (op.lane == Lane::host_compute)) return;
    fault(fmt::format("{} on {} cannot reach {}, which is in {} memory", to_string(op.kind), to_string(op.lane),
                      name_of(id), to_string(buffer.space)));
  }

  void allocate(BufferId id, const LaneClock& now) {
    BufferState& state = states_[id];
    if (state.allocated) fault(fmt::format("{} is allocated twice", name_of(id)));
    state = {};
    state.allocated = true;
    state.allocated_at = now;
  }

  BufferState& access(BufferId id, const Point& point) {
    BufferState& state = states_[id];
    if (!state.allocated) fault(fmt::format("{} uses {}, which is not allocated", point.name, name_of(id)));
    for (Lane lane : kLanes) {
      // The pool hands out memory that is free as seen by the allocating lane; others must have caught up with it.
      if (!point.clock.covers(lane, state.allocated_at.seen[index_of(lane)])) {
        fault(fmt::format("{} may use {} before its memory is free", point.name, name_of(id)));
        break;
      }
    }
    return state;
  }

  void read(BufferId id, const Point& point) {
    BufferState& state = access(id, point);
    if (!state.written) fault(fmt::format("{} reads {} before anything wrote it", point.name, name_of(id)));
    for (const Point& write : state.writes) {
      if (!before(write, point.clock)) {
        fault(fmt::format("{} may read {} before {} has written it", point.name, name_of(id), write.name));
      }
    }
    state.reads.push_back(point);
  }

  void write(BufferId id, const Point& point) {
    BufferState& state = access(id, point);
    for (const Point& write : state.writes) {
      if (!before(write, point.clock)) {
        fault(fmt::format("{} may write {} while {} writes it", point.name, name_of(id), write.name));
      }
    }
    for (const Point& read : state.reads) {
      if (!before(read, point.clock)) {
        fault(fmt::format("{} may overwrite {} before {} has read it", point.name, name_of(id), read.name));
      }
    }
    state.written = true;
    state.writes = {point};
    state.reads.clear();
  }

  void free(BufferId id, const Point& point) {
    BufferState& state = states_[id];
    if (!state.allocated) {
      fault(fmt::format("{} frees {}, which is not allocated", point.name, name_of(id)));
      return;
    }
    for (const auto* accesses : {&state.writes, &state.reads}) {
      for (const Point& a : *accesses) {
        if (!before(a, point.clock)) {
          fault(fmt::format("{} may free {} while {} still uses it", point.name, name_of(id), a.name));
        }
      }
    }
    state = {};
  }

  const Schedules& schedules_;
  std::size_t limit_;
  LaneOrder order_;
  std::vector<LaneClock> events_;
  std::vector<bool> recorded_;
  std::vector<BufferState> states_;
  std::vector<Fault> faults_;
  const Schedule* schedule_ = nullptr;
  int step_ = 0;
  int op_ = -1;
};

}  // namespace proof

/// Proves by happens-before (lane order, events, host waits; a collective is complete on all ranks when it ends)
/// that every read comes after its write, every write after earlier reads, every access after the allocation and
/// before the free, that nothing is freed twice or left over, and that every wait has something to wait for.
/// Runs through all steps and twice through the steady one, without relying on the host's wait between steps.
/// Returns the first faults found, at most `limit`; none if the schedules are right.
inline std::vector<Fault> check_schedules(const Schedules& schedules, std::size_t limit = 8) {
  return proof::Checker(schedules, limit).run();
}

}  // namespace fsdpbench::schedule
