#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/enum_table.h"
#include "clock/op_times.h"
#include "clock/walks.h"

namespace fsdpbench::clock {
namespace {

/// Greatest of at least one value. A reduction may pair values, where each comparison else waits for the one before it.
double greatest(std::span<const double> values) {
  return std::reduce(values.begin(), values.end(), values.front(), [](double a, double b) { return a < b ? b : a; });
}

class IssueOrderWalk final : public Walk {
 public:
  IssueOrderWalk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times)
      : Walk(schedules, groups, times), host_(ranks(), times.host.start_ns), begin_(ranks()), ns_(ranks()) {
    slots_.assign(std::ranges::max_element(programs_, {}, &Program::slots)->slots, std::vector<double>(ranks()));
    lanes_.fill(host_);
    for (const plan::Group group : kEnumerators<plan::Group>) communicators_[group].resize(group_count(group));
  }

  void step(std::span<trace::RankTrace> recorded) override {
    const std::vector<Instruction>& instructions = program().instructions;
    issued_ = 0;
    last_.begin_ns = host_;
    for (trace::RankTrace& trace : recorded) trace.records.reserve(trace.records.size() + instructions.size());
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      begin_records(i, recorded);
      switch (instructions[i].kind) {
        case Instruction::Kind::nothing: break;
        case Instruction::Kind::run: run(i, instructions[i], recorded); break;
        case Instruction::Kind::collective: meet(i, instructions[i], recorded); break;
        case Instruction::Kind::host_wait:
        case Instruction::Kind::host_sync: block(instructions[i]); break;
      }
      if (schedule().ops[i].is_host()) end_host_records(recorded);
    }
    end_step(recorded);
  }

 private:
  /// When the host has issued what it is at: its own time is kept at its last wait only.
  double host_ns(std::size_t rank) const { return host_[rank] + issued_; }

  void begin_records(std::size_t op, std::span<trace::RankTrace> recorded) {
    for (trace::RankTrace& trace : recorded) {
      const auto issued = static_cast<std::int64_t>(host_ns(index_of_rank(trace.rank)));
      trace.records.push_back(
          {.step = static_cast<std::int32_t>(step_), .op = static_cast<std::int32_t>(op), .issued_ns = issued});
    }
    if (schedule().ops[op].is_host()) return;
    if (times_.issue == OpTimes::Issue::by_cost) {
      issued_ += times_.host.issue_ns + (times_.own_issue.empty() ? 0 : times_.own_issue_of(step_)[op]);
    } else {
      const OpTimes::ByRank& given = times_.issue_of(step_);
      for (std::size_t rank = 0; rank < host_.size(); ++rank) host_[rank] += static_cast<double>(given[rank][op]);
    }
  }

  void end_host_records(std::span<trace::RankTrace> recorded) {
    for (trace::RankTrace& trace : recorded) {
      trace.records.back().end_ns = static_cast<std::int64_t>(host_ns(index_of_rank(trace.rank)));
    }
  }

  /// Later of `time` and `event`, which somebody must wake up for.
  void wait(const Awaited& awaited, std::vector<double>& time) const {
    const std::vector<double>& event = slots_[awaited.slot];
    const double wake = times_.host.wake_ns;
    for (std::size_t k = 0; k < time.size(); ++k) time[k] = event[k] > time[k] ? event[k] + wake : time[k];
  }
  std::span<const Awaited> waits_of(const Instruction& instruction) const {
    return std::span(program().waits).subspan(instruction.first_wait, instruction.wait_count);
  }

  /// When ranks may begin: lane, host and events. `time` may be the lane's own.
  void ready(std::size_t op, const Instruction& instruction, std::vector<double>& time) const {
    const std::vector<double>& lane = lanes_[index_of(instruction.lane)];
    const double issued = issued_;
    const double launch = instruction.has_work ? times_.host.launch_ns : 0;
    const double gap = instruction.has_work ? times_.host.gap_ns : 0;
    for (std::size_t k = 0; k < time.size(); ++k) {
      const double at = host_[k] + issued;
      time[k] = at > lane[k] ? at + launch : lane[k] + gap;
    }
    for (const Awaited& awaited : waits_of(instruction)) wait(awaited, time);
    if (instruction.has_work && times_.delays.any()) {
      times_.delays.add(static_cast<std::int64_t>(step_), op, instruction.lane, 0, time);
    }
  }

  void block(const Instruction& instruction) {
    for (double& host : host_) host += issued_;
    issued_ = 0;
    for (const Awaited& awaited : waits_of(instruction)) wait(awaited, host_);
    if (instruction.kind != Instruction::Kind::host_sync) return;
    for (const std::vector<double>& lane : lanes_) {
      for (std::size_t r = 0; r < host_.size(); ++r) {
        host_[r] = lane[r] > host_[r] ? lane[r] + times_.host.wake_ns : host_[r];
      }
    }
  }

  void durations(std::size_t op, const Instruction& instruction, std::vector<double>& out) const {
    if (!instruction.has_work) {
      std::ranges::fill(out, 0.0);
      return;
    }
    if (times_.are_given()) {
      const OpTimes::ByRank& given = times_.given_of(step_);
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<double>(given[k][op]);
      return;
    }
    std::ranges::fill(out, costs()[op].run_ns);
    const bool computes = instruction.lane == Lane::compute;
    if (computes && !times_.compute_factor.empty()) {
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = std::nearbyint(out[k] * times_.compute_factor[k]);
    }
    if (costs()[op].run_ns > 0)
      times_.jitter.apply(static_cast<std::int64_t>(step_), op, 0, computes, out, costs()[op].scatter);
  }

  void run(std::size_t op, const Instruction& instruction, std::span<trace::RankTrace> recorded) {
    ready(op, instruction, begin_);
    durations(op, instruction, ns_);
    std::vector<double>& lane = lanes_[index_of(instruction.lane)];
    for (std::size_t k = 0; k < lane.size(); ++k) lane[k] = begin_[k] + ns_[k];
    if (instruction.record >= 0) slots_[instruction.record] = lane;
    if (!instruction.has_work) return;
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank);
      trace.records.back().begin_ns = static_cast<std::int64_t>(begin_[rank]);
      trace.records.back().end_ns = static_cast<std::int64_t>(lane[rank]);
    }
  }

  void meet(std::size_t op, const Instruction& instruction, std::span<trace::RankTrace> recorded) {
    const plan::Group group = instruction.group;
    const plan::Members members = this->members(group, {});  // of the others there are as many, as far apart
    const std::size_t size = members.count, stride = members.stride;
    std::vector<double>& free = communicators_[group];
    std::vector<double>& lane = lanes_[index_of(instruction.lane)];
    ready(op, instruction, lane);  // the lane holds when each rank may begin, until its end is known
    for_members(size, stride, [&](std::size_t number, std::size_t rank) {
      if (free[number] > lane[rank]) lane[rank] = free[number] + times_.host.wake_ns;
    });
    arrived_ = free;
    if (stride == 1) {
      for (std::size_t number = 0; number < free.size(); ++number) {
        arrived_[number] = greatest(std::span(lane).subspan(number * size, size));
      }
    } else {
      for_members(size, stride, [&](std::size_t number, std::size_t rank) {
        arrived_[number] = std::max(arrived_[number], lane[rank]);
      });
    }
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank), number = group_number(group, rank);
      trace.records.back().begin_ns = static_cast<std::int64_t>(lane[rank]);
      trace.records.back().peers_arrived_ns = static_cast<std::int64_t>(arrived_[number]);
    }
    if (!times_.are_given()) {
      group_ns_.resize(free.size());
      collective_ns(op, 0, group_ns_);
      for (std::size_t g = 0; g < free.size(); ++g) free[g] = arrived_[g] + group_ns_[g];
      for_members(size, stride, [&](std::size_t number, std::size_t rank) { lane[rank] = free[number]; });
    } else {
      const OpTimes::ByRank& given = times_.given_of(step_);
      for_members(size, stride, [&](std::size_t number, std::size_t rank) {
        lane[rank] = arrived_[number] + static_cast<double>(given[rank][op]);
        free[number] = std::max(free[number], lane[rank]);
      });
    }
    if (instruction.record >= 0) slots_[instruction.record] = lane;
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank);
      trace.records.back().end_ns = static_cast<std::int64_t>(lane[rank]);
      if (!times_.are_given())
        trace.records.back().link_ns = own_link_ns(op, rank, group_ns_[group_number(group, rank)]);
    }
  }

  /// visit(number of the group, rank) for all ranks, in order of rank.
  template <typename Visit>
  void for_members(std::size_t size, std::size_t stride, Visit&& visit) const {
    for (std::size_t rank = 0, number = 0; rank < ranks(); number += stride) {
      for (std::size_t member = 0; member < size; ++member) {
        for (std::size_t k = 0; k < stride; ++k, ++rank) visit(number + k, rank);
      }
    }
  }

  void end_step(std::span<trace::RankTrace> recorded) {
    std::vector<double>& end = last_.end_ns;
    end = last_.begin_ns;
    for (const std::vector<double>& lane : lanes_) {
      for (std::size_t r = 0; r < end.size(); ++r) end[r] = std::max(end[r], lane[r]);
    }
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank);
      trace.steps.push_back({static_cast<std::int64_t>(last_.begin_ns[rank]), static_cast<std::int64_t>(end[rank]),
                             static_cast<std::int64_t>(host_ns(rank))});
    }
    for (std::size_t r = 0; r < host_.size(); ++r)
      host_[r] = std::max(host_[r] + issued_, end[r]) + times_.host.step_ns;
    ++step_;
  }

  std::vector<double> host_;  // by rank, after its last wait, or, where ranks issue in times of their own, now
  double issued_ = 0;         // what the host has issued since, on every rank
  std::array<std::vector<double>, kLaneCount> lanes_;
  EnumTable<plan::Group, std::vector<double>> communicators_;  // by group: free again
  std::vector<std::vector<double>> slots_;                     // by rank
  std::vector<double> begin_, ns_;                             // by rank, of the op at hand
  std::vector<double> arrived_, group_ns_;                     // by group, of the collective at hand
};

}  // namespace

std::unique_ptr<Replay> walk_in_issue_order(const schedule::Schedules& schedules, const plan::Groups& groups,
                                            const OpTimes& times) {
  return std::make_unique<IssueOrderWalk>(schedules, groups, times);
}

}  // namespace fsdpbench::clock
