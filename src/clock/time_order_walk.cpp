#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <queue>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/enum_table.h"
#include "base/link_model.h"
#include "clock/walks.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;

std::span<double> only(double& value) { return std::span<double, 1>(&value, 1); }

/// [Note: why the order of time is kept]
/// Every rank goes as far as it can with the ends that are known. What cannot go on then waits, directly or not, for
/// the end of a transfer that is on its way, so nothing can join any link before the first of those ends. That one is
/// therefore final; it is made known, and the ranks it concerns go on.
///
/// [Note: transfers that stay whole]
/// Where all links are alike, a transfer that meets no other ends on all of them at once, and one entry in the order of
/// ends stands for all its members. A link is told apart from the others only when a second transfer comes to it: then
/// the first one's flow there is put on the link as it was, and that link's end has an entry of its own.
class TimeOrderWalk final : public Walk {
 public:
  TimeOrderWalk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times)
      : Walk(schedules, groups, times), states_(ranks()), links_(ranks() * kFabrics) {
    for (RankState& state : states_) state.host_ns = times.host.start_ns;
    for (const plan::Group group : kEnumerators<plan::Group>) {
      communicators_[group].resize(group_count(group));
      for (CommunicatorState& communicator : communicators_[group]) {
        communicator.id = static_cast<std::uint32_t>(by_id_.size());
        by_id_.push_back(&communicator);
      }
    }
  }

  void step(std::span<trace::RankTrace> recorded) override {
    begin_step(recorded);
    std::vector<std::size_t> going(ranks());
    for (std::size_t rank = 0; rank < going.size(); ++rank) going[rank] = going.size() - 1 - rank;
    for (;;) {
      while (!going.empty()) {
        const std::size_t rank = going.back();
        going.pop_back();
        advance(rank);
      }
      if (!next_end(going)) break;
    }
    end_step(recorded);
  }

 private:
  static constexpr std::size_t kFabrics = 8;
  static constexpr double kUnknown = -1;

  /// Place in the schedule from which the host issues without being blocked: op `op`, beginning at `time_ns`.
  struct Unblocked {
    std::size_t op = 0;
    double time_ns = 0;
  };
  struct RankState {
    double host_ns = 0;
    std::size_t next_issue = 0;
    std::array<double, kLaneCount> lane_ns{};
    std::array<std::uint32_t, kLaneCount> next{};  // into lane_ops_
    std::array<bool, kLaneCount> meets{};  // the lane's next op has begun and waits for its peers or its transfer
    std::vector<Unblocked> unblocked;
    std::vector<trace::Record> records;  // of this step by op, if wanted
  };
  /// A collective of one group, from its first rank's arrival on.
  struct Meeting {
    std::size_t op = 0;
    plan::Members members;
    int arrived = 0, flowing = 0;
    double arrived_ns = 0;
    double end_ns = 0;
    double flow_from_ns = 0, flow_ns = 0;  // of every member, while it is whole
  };
  struct CommunicatorState {
    std::size_t next = 0;  // into communicator_ops_
    double free_ns = 0;
    std::uint32_t id = 0;
    std::uint32_t version = 0;  // of the meeting: counts them
    Meeting meeting;
  };
  struct Link {
    FluidLink<CommunicatorState*> fluid;
    CommunicatorState* whole = nullptr;  // whose transfer is on it, and on its other members' links likewise
    std::uint32_t version = 0;           // what was predicted before counts no more
  };
  /// End of the first flow of link `number`, or of the whole rest of the transfer of communicator number - links.
  struct NextEnd {
    double time_ns;
    std::uint32_t number;
    std::uint32_t version;
    auto operator<=>(const NextEnd&) const = default;
  };

  void begin_step(std::span<trace::RankTrace> recorded) {
    const std::vector<Op>& ops = schedule().ops;
    instructions_ = program().instructions;
    waits_ = program().waits;
    costs_ = costs();
    for (auto& list : lane_ops_) list.clear();
    for (auto& list : communicator_ops_) list.clear();
    host_ops_.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Instruction::Kind kind = instructions_[i].kind;
      if (kind == Instruction::Kind::run || kind == Instruction::Kind::collective) {
        lane_ops_[index_of(ops[i].lane)].push_back(i);
      }
      if (kind == Instruction::Kind::collective) {
        communicator_ops_[ops[i].group()].push_back(i);
      }
      if (ops[i].is_host()) host_ops_.push_back(i);
    }
    ends_of_.resize(ops.size());
    issued_before_.assign(times_.issue == OpTimes::Issue::by_cost ? 1 : ranks(), std::vector<double>(ops.size() + 1));
    std::vector<double> ends;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ends_of_[i] = ends.size();
      if (instructions_[i].record >= 0) ends.resize(ends.size() + ranks(), kUnknown);
      for (std::size_t rank = 0; rank < issued_before_.size(); ++rank) {
        issued_before_[rank][i + 1] = issued_before_[rank][i] + (ops[i].is_host() ? 0 : issue_ns(rank, i));
      }
    }
    known_ends_ = std::move(ends);
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      RankState& state = states_[rank];
      last_.begin_ns[rank] = state.host_ns;
      state.next_issue = 0;
      state.unblocked = {{0, state.host_ns}};
      state.next.fill(0);
      state.records.clear();
    }
    for (std::vector<CommunicatorState>& of_group : communicators_) {
      for (CommunicatorState& communicator : of_group) communicator.next = 0;
    }
    for (const trace::RankTrace& trace : recorded) states_[index_of_rank(trace.rank)].records.resize(ops.size());
  }

  /// Time in which the host issues op i.
  double issue_ns(std::size_t rank, std::size_t i) const {
    if (times_.issue == OpTimes::Issue::by_cost) {
      return times_.host.issue_ns + (times_.own_issue.empty() ? 0 : times_.own_issue_of(step_)[i]);
    }
    return static_cast<double>(times_.issue_of(step_)[rank][i]);
  }
  const std::vector<double>& issued_before(std::size_t rank) const {
    return issued_before_[issued_before_.size() == 1 ? 0 : rank];
  }
  /// When the host of a rank that has come so far began to issue op i.
  double issued_ns(std::size_t rank, std::size_t i) const {
    const std::vector<Unblocked>& unblocked = states_[rank].unblocked;
    const std::vector<double>& before = issued_before(rank);
    const auto from = std::find_if(unblocked.rbegin(), unblocked.rend(), [i](const Unblocked& u) { return u.op <= i; });
    return from->time_ns + (before[i] - before[from->op]);
  }
  /// Ranks side by side: they come to an op at about the same time.
  double& known_end(std::size_t rank, std::size_t op) { return known_ends_[ends_of_[op] + rank]; }
  /// The lane of op `i` has ended it, and goes on to its next one.
  void end_op(std::size_t rank, std::size_t i, double end_ns) {
    const Instruction& instruction = instructions_[i];
    states_[rank].lane_ns[index_of(instruction.lane)] = end_ns;
    ++states_[rank].next[index_of(instruction.lane)];
    if (instruction.record >= 0) known_end(rank, i) = end_ns;
    if (trace::Record* record = record_of(rank, i)) record->end_ns = static_cast<std::int64_t>(end_ns);
  }
  /// Record of an op with work or of the host, if wanted.
  trace::Record* record_of(std::size_t rank, std::size_t i) {
    std::vector<trace::Record>& records = states_[rank].records;
    const Op& op = schedule().ops[i];
    return records.empty() || !(op.has_work() || op.is_host()) ? nullptr : &records[i];
  }

  /// Goes on with a rank until nothing of it can go on.
  void advance(std::size_t rank) {
    for (bool moved = true; moved;) {
      issue(rank);
      moved = false;
      for (const Lane lane : kLanes) {
        while (run_next(rank, lane)) moved = true;
      }
    }
  }

  /// The time after all that op `i` waits for, if it comes to it at `time`; kUnknown if that is not known yet.
  double after_waits(std::size_t rank, std::size_t i, double time) {
    const Instruction& instruction = instructions_[i];
    for (int w = 0; w < instruction.wait_count; ++w) {
      const Awaited& awaited = waits_[instruction.first_wait + w];
      const double end = known_end(rank, awaited.op);
      if (end == kUnknown) return kUnknown;
      if (end > time) time = end + times_.host.wake_ns;
    }
    return time;
  }

  /// The host issues until it is blocked.
  void issue(std::size_t rank) {
    RankState& state = states_[rank];
    for (auto next = std::ranges::lower_bound(host_ops_, state.next_issue);; ++next) {
      const std::size_t i = next == host_ops_.end() ? instructions_.size() : *next;
      state.host_ns += issued_before(rank)[i] - issued_before(rank)[state.next_issue];
      state.next_issue = i;
      if (i == instructions_.size()) break;
      double time = after_waits(rank, i, state.host_ns);
      if (time == kUnknown) break;
      if (instructions_[i].kind == Instruction::Kind::host_sync) {
        if (!idle_before(state, i)) break;
        for (const double lane : state.lane_ns) time = lane > time ? lane + times_.host.wake_ns : time;
      }
      if (trace::Record* record = record_of(rank, i)) record->end_ns = static_cast<std::int64_t>(time);
      if (time == state.host_ns) continue;
      state.host_ns = time;
      state.unblocked.push_back({i + 1, time});
    }
  }

  /// Whether every op before i has ended on its lane.
  bool idle_before(const RankState& state, std::size_t i) const {
    for (std::size_t l = 0; l < kLaneCount; ++l) {
      if (state.next[l] < lane_ops_[l].size() && lane_ops_[l][state.next[l]] < i) return false;
    }
    return true;
  }

  /// Runs the next op of a lane, or lets it meet its peers. Returns whether the lane may go on.
  bool run_next(std::size_t rank, Lane lane) {
    RankState& state = states_[rank];
    const std::size_t l = index_of(lane);
    if (state.meets[l] || state.next[l] == lane_ops_[l].size()) return false;
    const std::size_t i = lane_ops_[l][state.next[l]];
    if (i >= state.next_issue) return false;
    const Instruction& instruction = instructions_[i];
    const double issued = issued_ns(rank, i) + issue_ns(rank, i);
    const double launch = instruction.has_work ? times_.host.launch_ns : 0;
    const double gap = instruction.has_work ? times_.host.gap_ns : 0;
    double begin = after_waits(rank, i, issued > state.lane_ns[l] ? issued + launch : state.lane_ns[l] + gap);
    if (begin == kUnknown) return false;
    if (instruction.has_work && times_.delays.any()) {
      times_.delays.add(static_cast<std::int64_t>(step_), i, lane, rank, only(begin));
    }
    const bool meets = instruction.kind == Instruction::Kind::collective;
    if (meets) {
      meet(rank, i, begin);
    } else {
      end_op(rank, i, begin + (instruction.has_work ? duration(rank, i, lane) : 0));
      note_begin(rank, i, begin);
    }
    return !meets;
  }

  void note_begin(std::size_t rank, std::size_t i, double begin) {
    if (trace::Record* record = record_of(rank, i)) record->begin_ns = static_cast<std::int64_t>(begin);
  }

  double given_ns(std::size_t rank, std::size_t i) const {
    return static_cast<double>(times_.given_of(step_)[rank][i]);
  }

  double duration(std::size_t rank, std::size_t i, Lane lane) const {
    if (times_.are_given()) return given_ns(rank, i);
    double ns = costs_[i].run_ns;
    const bool computes = lane == Lane::compute;
    if (computes && !times_.compute_factor.empty()) ns = std::nearbyint(ns * times_.compute_factor[rank]);
    if (costs_[i].run_ns > 0)
      times_.jitter.apply(static_cast<std::int64_t>(step_), i, rank, computes, only(ns), costs_[i].scatter);
    return ns;
  }

  void meet(std::size_t rank, std::size_t i, double begin) {
    const plan::Group g = instructions_[i].group;
    const std::size_t number = group_number(g, rank);
    CommunicatorState& communicator = communicators_[g][number];
    if (communicator_ops_[g][communicator.next] != i) return;  // not its turn
    if (communicator.free_ns > begin) begin = communicator.free_ns + times_.host.wake_ns;
    note_begin(rank, i, begin);
    states_[rank].meets[index_of(instructions_[i].lane)] = true;
    Meeting& meeting = communicator.meeting;
    if (meeting.arrived == 0) {
      meeting.op = i;
      meeting.members = members(g, rank);
      ++communicator.version;
    }
    meeting.arrived_ns = std::max(meeting.arrived_ns, begin);
    if (++meeting.arrived == meeting.members.count) begin_transfer(communicator, number);
  }

  std::size_t link_of(const Meeting& meeting, int member) const {
    return meeting.members[member] * kFabrics + costs_[meeting.op].fabric;
  }

  void begin_transfer(CommunicatorState& communicator, std::size_t group) {
    Meeting& meeting = communicator.meeting;
    meeting.flowing = meeting.members.count;
    if (times_.are_given() || !times_.link_factor.empty()) return begin_flows(communicator, group);
    double alone_ns{};
    collective_ns(meeting.op, group, only(alone_ns));
    const double latency = std::min(costs_[meeting.op].run_ns, alone_ns);
    meeting.flow_from_ns = meeting.arrived_ns + latency;
    meeting.flow_ns = alone_ns - latency;
    for (int m = 0; m < meeting.members.count; ++m) {
      const std::size_t number = link_of(meeting, m);
      Link& link = links_[number];
      if (link.whole == nullptr && link.fluid.flows().empty()) {
        link.whole = &communicator;
        continue;
      }
      if (link.whole != nullptr) part(number);
      link.fluid.add({&communicator, meeting.flow_from_ns, meeting.flow_ns});
      predict(number);
    }
    FluidLink<CommunicatorState*> alone;
    alone.add({&communicator, meeting.flow_from_ns, meeting.flow_ns});
    const auto number = static_cast<std::uint32_t>(links_.size() + communicator.id);
    ends_.push({alone.first_end_ns(), number, communicator.version});
  }

  /// Gives this link a flow of its own: that of the transfer that it was part of.
  void part(std::size_t number) {
    Link& link = links_[number];
    const Meeting& meeting = link.whole->meeting;
    link.fluid.add({link.whole, meeting.flow_from_ns, meeting.flow_ns});
    link.whole = nullptr;
  }

  /// Each member's flow on its own link, which may be slower than others.
  void begin_flows(CommunicatorState& communicator, std::size_t group) {
    const Meeting& meeting = communicator.meeting;
    double alone_ns{};
    if (!times_.are_given()) collective_ns(meeting.op, group, only(alone_ns));
    for (int m = 0; m < meeting.members.count; ++m) {
      const std::size_t rank = meeting.members[m];
      if (times_.are_given()) alone_ns = given_ns(rank, meeting.op);
      const double latency = std::min(costs_[meeting.op].run_ns, alone_ns);
      const double share = link_share(instructions_[meeting.op].group, rank);
      const std::size_t number = link_of(meeting, m);
      links_[number].fluid.add({&communicator, meeting.arrived_ns + latency, (alone_ns - latency) * share});
      predict(number);
    }
  }

  void predict(std::size_t number) {
    Link& link = links_[number];
    ends_.push({link.fluid.first_end_ns(), static_cast<std::uint32_t>(number), ++link.version});
  }

  /// The first of all ends; a transfer is over with its last flow. Returns false if nothing flows.
  bool next_end(std::vector<std::size_t>& going) {
    while (!ends_.empty()) {
      const NextEnd next = ends_.top();
      ends_.pop();
      if (next.number < links_.size()) {
        if (next.version != links_[next.number].version) continue;
        end_one_flow(next.number, next.time_ns, going);
      } else {
        CommunicatorState& communicator = *by_id_[next.number - links_.size()];
        if (next.version != communicator.version || communicator.meeting.flowing == 0) continue;
        end_whole(communicator, next.time_ns, going);
      }
      return true;
    }
    return false;
  }

  /// One member's link is done.
  void end_on_link(std::size_t number, Meeting& meeting, double time_ns) {
    const double end_ns = std::nearbyint(time_ns);
    meeting.end_ns = std::max(meeting.end_ns, end_ns);
    if (times_.are_given()) return;
    if (trace::Record* record = record_of(number / kFabrics, meeting.op)) {
      record->link_ns = static_cast<std::int64_t>(end_ns - meeting.arrived_ns);
    }
  }

  void end_whole(CommunicatorState& communicator, double time_ns, std::vector<std::size_t>& going) {
    Meeting& meeting = communicator.meeting;
    for (int m = 0; m < meeting.members.count; ++m) {
      Link& link = links_[link_of(meeting, m)];
      if (link.whole != &communicator) continue;
      link.whole = nullptr;
      end_on_link(link_of(meeting, m), meeting, time_ns);
      --meeting.flowing;
    }
    if (meeting.flowing == 0) end_transfer(communicator, going);
  }

  void end_one_flow(std::size_t number, double time_ns, std::vector<std::size_t>& going) {
    FluidLink<CommunicatorState*>& fluid = links_[number].fluid;
    over_.clear();
    fluid.advance(time_ns, [&](const FluidLink<CommunicatorState*>::Flow& flow, double end_ns) {
      Meeting& meeting = flow.name->meeting;
      end_on_link(number, meeting, end_ns);
      if (--meeting.flowing == 0) over_.push_back(flow.name);
    });
    if (!fluid.flows().empty()) predict(number);
    for (CommunicatorState* communicator : over_) end_transfer(*communicator, going);
  }

  void end_transfer(CommunicatorState& communicator, std::vector<std::size_t>& going) {
    const Meeting meeting = std::exchange(communicator.meeting, {});
    for (int m = 0; m < meeting.members.count; ++m) {
      const std::size_t rank = meeting.members[m];
      end_op(rank, meeting.op, meeting.end_ns);
      if (trace::Record* record = record_of(rank, meeting.op)) {
        record->peers_arrived_ns = static_cast<std::int64_t>(meeting.arrived_ns);
      }
      states_[rank].meets[index_of(instructions_[meeting.op].lane)] = false;
      going.push_back(rank);
    }
    communicator.free_ns = meeting.end_ns;
    ++communicator.next;
  }

  void end_step(std::span<trace::RankTrace> recorded) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      RankState& state = states_[rank];
      if (!idle_before(state, schedule().ops.size())) throw std::logic_error("replay: a schedule waits for itself");
      last_.end_ns[rank] = std::max(last_.begin_ns[rank], *std::ranges::max_element(state.lane_ns));
    }
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank);
      const RankState& state = states_[rank];
      for (std::size_t i = 0; i < state.records.size(); ++i) {
        trace::Record& record = trace.records.emplace_back(state.records[i]);
        record.step = static_cast<std::int32_t>(step_);
        record.op = static_cast<std::int32_t>(i);
        record.issued_ns = static_cast<std::int64_t>(issued_ns(rank, i));
      }
      trace.steps.push_back({static_cast<std::int64_t>(last_.begin_ns[rank]),
                             static_cast<std::int64_t>(last_.end_ns[rank]), static_cast<std::int64_t>(state.host_ns)});
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      states_[rank].host_ns = std::max(states_[rank].host_ns, last_.end_ns[rank]) + times_.host.step_ns;
    }
    ++step_;
  }

  std::vector<RankState> states_;
  std::span<const Instruction> instructions_;  // of this step, as the next two
  std::span<const Awaited> waits_;
  std::span<const OpCost> costs_;
  std::vector<std::size_t> host_ops_;  // ops of the host itself
  std::vector<std::size_t> ends_of_;   // by op: where its ends are in known_ends_, if somebody waits for them
  std::vector<double> known_ends_;     // by op and rank
  /// By op: what the host takes to issue those before it, unblocked; one entry if all ranks take the same.
  std::vector<std::vector<double>> issued_before_;
  std::array<std::vector<std::size_t>, kLaneCount> lane_ops_;
  EnumTable<plan::Group, std::vector<std::size_t>> communicator_ops_;
  EnumTable<plan::Group, std::vector<CommunicatorState>> communicators_;
  std::vector<CommunicatorState*> by_id_;
  std::vector<Link> links_;  // by rank and fabric
  std::priority_queue<NextEnd, std::vector<NextEnd>, std::greater<>> ends_;
  std::vector<CommunicatorState*> over_;
};

}  // namespace

std::unique_ptr<Replay> walk_in_time_order(const schedule::Schedules& schedules, const plan::Groups& groups,
                                           const OpTimes& times) {
  return std::make_unique<TimeOrderWalk>(schedules, groups, times);
}

}  // namespace fsdpbench::clock
