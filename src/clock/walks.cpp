#include "clock/walks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/lane_blocks.h"
#include "clock/collective_kinds.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;
using schedule::OpKind;

/// The waits of a schedule that count, each as the op whose end it is.
class Order {
 public:
  explicit Order(int event_count) : events_(event_count) {}

  std::vector<int> issue(const Op& op, int index) {
    std::vector<int> counting;
    for (const schedule::Wait& wait : op.waits) {
      const Event& event = events_[wait.event];
      LaneClock known = op.is_host() ? host_ : order_.now(op.lane);
      const LaneClock before = known;
      known.merge(event.clock);
      if (!(known == before)) counting.push_back(event.op);
      if (op.is_host()) {
        wait_on_host(event.clock);
      } else {
        order_.wait(op.lane, event.clock);
      }
    }
    if (op.kind == OpKind::host_sync) {
      for (const Lane lane : kLanes) wait_on_host(order_.record(lane));
    }
    if (op.has_work()) order_.issue(op.lane);
    if (op.record != schedule::kNoEvent) events_[op.record] = {index, order_.record(op.lane)};
    return counting;
  }

 private:
  struct Event {
    int op = -1;
    LaneClock clock;  ///< of an event of an earlier step: nothing that this step does
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
  std::vector<std::size_t> last_wait(ops);  // by op: the op that waits last for its end; 0: none, as it comes later
  for (std::size_t i = 0; i < ops; ++i) {
    Instruction instruction;
    instruction.first_wait = static_cast<int>(program.waits.size());
    for (const int awaited : order.issue(schedule.ops[i], static_cast<int>(i))) {
      program.waits.push_back({.op = awaited});
      last_wait[awaited] = i;
    }
    instruction.wait_count = static_cast<int>(program.waits.size()) - instruction.first_wait;
    program.instructions.push_back(instruction);
  }

  std::vector<int> slot_of(ops);
  std::vector<int> free;
  for (std::size_t i = 0; i < ops; ++i) {
    const Op& op = schedule.ops[i];
    Instruction& instruction = program.instructions[i];
    for (int w = 0; w < instruction.wait_count; ++w) {
      Awaited& wait = program.waits[instruction.first_wait + w];
      wait.slot = slot_of[wait.op];
      if (last_wait[wait.op] == i) free.push_back(wait.slot);
    }
    instruction.lane = op.lane;
    instruction.group = op.group();
    instruction.has_work = op.has_work();
    instruction.kind = kind_of(op, instruction.wait_count > 0, last_wait[i] > 0);
    if (last_wait[i] == 0) continue;
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

Walk::Walk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times)
    : schedules_(schedules), groups_(groups), times_(times), ranks_(times.ranks_differ() ? groups.ranks() : 1) {
  for (const schedule::Schedule& schedule : schedules.steps) {
    programs_.push_back(compile(schedule, schedules.event_count));
  }
  last_.begin_ns.resize(ranks_);
  last_.end_ns.resize(ranks_);
  if (times.link_factor.empty()) return;
  for (const plan::Group group : kEnumerators<plan::Group>) {
    slowest_link_[group].assign(group_count(group), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      double& slowest = slowest_link_[group][group_number(group, rank)];
      slowest = std::max(slowest, times.link_factor[rank]);
    }
  }
}

plan::Members Walk::members(plan::Group group, std::size_t rank) const {
  return ranks_ == 1 ? plan::Members{} : groups_.members(group, static_cast<int>(rank));
}

std::size_t Walk::group_number(plan::Group group, std::size_t rank) const {
  return groups_.number(group, static_cast<int>(rank));
}

void Walk::collective_ns(std::size_t op, std::size_t first, std::span<double> by_group) const {
  const OpCost& cost = costs()[op];
  const std::vector<double>& slowest = slowest_link_[schedule().ops[op].group()];
  if (slowest.empty()) {
    std::ranges::fill(by_group, cost.run_ns + cost.link_ns);
  } else {
    for (std::size_t g = 0; g < by_group.size(); ++g) {
      by_group[g] = cost.run_ns + static_cast<double>(std::llround(cost.link_ns * slowest[first + g]));
    }
  }
  times_.jitter.apply(static_cast<std::int64_t>(step_), op, first, false, by_group, cost.scatter);
}

std::int64_t Walk::own_link_ns(std::size_t op, std::size_t rank, double group_ns) const {
  const double latency = std::min(costs()[op].run_ns, group_ns);
  return std::llround(latency + (group_ns - latency) * link_share(schedule().ops[op].group(), rank));
}

double Walk::link_share(plan::Group group, std::size_t rank) const {
  const std::vector<double>& slowest = slowest_link_[group];
  return slowest.empty() ? 1.0 : times_.link_factor[rank] / slowest[group_number(group, rank)];
}

bool links_are_shared(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times) {
  if (times.ops == OpTimes::Ops::given) return false;
  constexpr int kFabrics = 8;
  for (std::size_t step = 0; step < schedules.steps.size(); ++step) {
    std::array<plan::Group, kFabrics> user{};
    const std::vector<schedule::Op>& ops = schedules.steps[step].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (meeting_ranks(ops[i], groups) == 0) continue;
      plan::Group& known = user.at(times.of_step(step)[i].fabric);
      if (known != plan::Group::none && known != ops[i].group()) return true;
      known = ops[i].group();
    }
  }
  return false;
}

std::unique_ptr<Replay> make_replay(const schedule::Schedules& schedules, const plan::Groups& groups,
                                    const OpTimes& times) {
  return links_are_shared(schedules, groups, times) ? walk_in_time_order(schedules, groups, times)
                                                    : walk_in_issue_order(schedules, groups, times);
}

std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            std::vector<OpDurations> by_rank) {
  const schedule::Schedules schedules{{schedule}, event_count};
  OpTimes times;
  times.ops = OpTimes::Ops::given;
  times.given.push_back(std::move(by_rank));
  const auto replay = walk_in_issue_order(schedules, groups, times);
  replay->step({});
  return static_cast<std::int64_t>(*std::ranges::max_element(replay->last_step().end_ns));
}

}  // namespace fsdpbench::clock
