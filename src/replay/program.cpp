#include "replay/program.h"

#include <cstddef>

#include "base/lane_order.h"

namespace fsdpbench::replay {
namespace {

using schedule::Op;
using schedule::OpKind;

/// The waits of a schedule that count, each as the op whose end it is.
class Order {
 public:
  explicit Order(int event_count) : events_(static_cast<std::size_t>(event_count)) {}

  std::vector<int> issue(const Op& op, int index) {
    std::vector<int> counting;
    for (const schedule::Wait& wait : op.waits) {
      const Event& event = events_[static_cast<std::size_t>(wait.event)];
      LaneClock known = op.is_host() ? host_ : order_.now(op.lane);
      const LaneClock before = known;
      known.merge(event.clock);
      if (event.op >= 0 && !(known == before)) counting.push_back(event.op);
      if (op.is_host()) {
        wait_on_host(event.clock);
      } else {
        order_.wait(op.lane, event.clock);
      }
    }
    if (op.kind == OpKind::host_sync) {
      for (const Lane lane : kLanes) wait_on_host(order_.record(lane));
    }
    if (op.is_host()) return counting;
    if (op.has_work()) order_.issue(op.lane);
    if (op.record != schedule::kNoEvent) events_[static_cast<std::size_t>(op.record)] = {index, order_.record(op.lane)};
    return counting;
  }

 private:
  struct Event {
    int op = -1;  ///< -1: of an earlier step
    LaneClock clock;
  };
  void wait_on_host(const LaneClock& clock) {
    order_.host_wait(clock);
    host_.merge(clock);
  }

  LaneOrder order_;
  LaneClock host_;
  std::vector<Event> events_;
};

Instruction::Kind kind_of(const Op& op, bool waits, bool awaited) {
  using Kind = Instruction::Kind;
  if (op.kind == OpKind::host_sync) return Kind::host_sync;
  if (op.is_host()) return waits ? Kind::host_wait : Kind::nothing;
  if (op.is_collective()) return Kind::collective;
  return op.has_work() || waits || awaited ? Kind::run : Kind::nothing;
}

}  // namespace

Program compile(const schedule::Schedule& schedule, int event_count) {
  const std::size_t ops = schedule.ops.size();
  Order order(event_count);
  Program program;
  std::vector<int> last_wait(ops, -1);  // by op whose end is awaited: the op that waits last
  for (std::size_t i = 0; i < ops; ++i) {
    Instruction instruction;
    instruction.first_wait = static_cast<int>(program.waits.size());
    for (const int awaited : order.issue(schedule.ops[i], static_cast<int>(i))) {
      program.waits.push_back({-1, awaited});
      last_wait[static_cast<std::size_t>(awaited)] = static_cast<int>(i);
    }
    instruction.wait_count = static_cast<int>(program.waits.size()) - instruction.first_wait;
    program.instructions.push_back(instruction);
  }

  std::vector<int> slot_of(ops, -1);
  std::vector<int> free;
  for (std::size_t i = 0; i < ops; ++i) {
    const Op& op = schedule.ops[i];
    Instruction& instruction = program.instructions[i];
    for (int w = 0; w < instruction.wait_count; ++w) {
      Awaited& wait = program.waits[static_cast<std::size_t>(instruction.first_wait + w)];
      int& slot = slot_of[static_cast<std::size_t>(wait.op)];
      wait.slot = slot;
      if (last_wait[static_cast<std::size_t>(wait.op)] == static_cast<int>(i)) {
        free.push_back(slot);
        slot = -1;
      }
    }
    instruction.lane = op.lane;
    instruction.group = op.group();
    instruction.has_work = op.has_work();
    instruction.kind = kind_of(op, instruction.wait_count > 0, last_wait[i] >= 0);
    if (last_wait[i] < 0) continue;
    if (free.empty()) {
      instruction.record = program.slots++;
    } else {
      instruction.record = free.back();
      free.pop_back();
    }
    slot_of[i] = instruction.record;
  }
  return program;
}

}  // namespace fsdpbench::replay
