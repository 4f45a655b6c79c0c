#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/enum_table.h"
#include "clock/op_times.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::clock {

/// One op of a schedule, reduced to what moves time.
struct Instruction {
  enum class Kind : std::uint8_t {
    nothing,     ///< moves no time: no work, and all that it waits for is over anyway
    run,         ///< on a lane
    collective,  ///< on a lane, together with its group
    host_wait,
    host_sync,
  };
  Kind kind = Kind::nothing;
  Lane lane = Lane::compute;
  schedule::Group group = schedule::Group::none;  ///< of a collective
  bool has_work = false;
  int first_wait = 0;  ///< into Program::waits, in the order of the schedule
  int wait_count = 0;
  int record = -1;  ///< slot that gets the time of the end; -1: nobody waits for it
};

/// The end of op `op`, kept in `slot`.
struct Awaited {
  int slot = -1;
  int op = -1;
};

/// A schedule made ready to be walked.
///
/// [Note: which waits count]
/// A step begins when the host has seen all lanes idle, so an event of an earlier step is over before any op of this
/// one. Within a step a wait is left out if what the lane has waited for before, or what the host had waited for when
/// it issued the op, implies it (base/lane_blocks.h): the op begins no earlier without it. What remains is kept in
/// slots: an event has one from its recording to its last wait, so that a step of thousands of events needs a few dozen
/// times a rank.
struct Program {
  std::vector<Instruction> instructions;  ///< as many as the schedule has ops, in its order
  std::vector<Awaited> waits;
  int slots = 0;
};

/// `event_count`: ids of events are below it.
Program compile(const schedule::Schedule& schedule, int event_count);

/// The two walks behind make_replay(). Arguments as there.

/// Op by op as the host issues them, all ranks at each: (max, +) arithmetic on arrays, so its time is ranks times ops.
/// A transfer takes what it takes alone.
std::unique_ptr<Replay> walk_in_issue_order(const schedule::Schedules& schedules, const plan::Groups& groups,
                                            const OpTimes& times);

/// Rank by rank, as far as each can come, and transfer by transfer in the order in which they end.
std::unique_ptr<Replay> walk_in_time_order(const schedule::Schedules& schedules, const plan::Groups& groups,
                                           const OpTimes& times);

/// Base of both walks.
class Walk : public Replay {
 public:
  Walk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times);
  const StepTimes& last_step() const override { return last_; }

 protected:
  /// Number of ranks walked: one for all if no two may differ. Then each group has that one.
  std::size_t ranks() const { return ranks_; }
  std::size_t index_of_rank(int rank) const { return ranks_ == 1 ? 0 : rank; }
  /// The ranks of a rank's group, its number, and how many such groups there are, among those that are walked.
  plan::Members members(plan::Group group, std::size_t rank) const;
  std::size_t group_number(plan::Group group, std::size_t rank) const;
  std::size_t group_count(plan::Group group) const { return ranks_ / members(group, 0).count; }

  const schedule::Schedule& schedule() const { return schedules_.of_step(step_); }
  const Program& program() const { return programs_[step_ < programs_.size() ? step_ : programs_.size() - 1]; }
  const StepCosts& costs() const { return times_.of_step(step_); }
  /// Nanoseconds of a collective that is alone on its links, of groups first, first + 1 …, from the arrival of its last
  /// peer.
  void collective_ns(std::size_t op, std::size_t first, std::span<double> by_group) const;
  /// Time for which a collective of `group_ns` alone keeps a member's own link busy, latency included.
  std::int64_t own_link_ns(std::size_t op, std::size_t rank, double group_ns) const;
  /// Time that a member's link takes for its bytes, over what the link of the slowest member of its group takes.
  double link_share(plan::Group group, std::size_t rank) const;

  const schedule::Schedules& schedules_;
  const plan::Groups& groups_;
  const OpTimes& times_;
  std::vector<Program> programs_;
  std::size_t step_ = 0;  ///< the next one
  std::size_t ranks_;
  StepTimes last_;

 private:
  EnumTable<plan::Group, std::vector<double>> slowest_link_;  // by group; empty: 1
};

}  // namespace fsdpbench::clock
