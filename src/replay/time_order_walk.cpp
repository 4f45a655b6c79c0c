#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <queue>
#include <stdexcept>
#include <utility>

#include "base/fluid_link.h"
#include "replay/walks.h"

namespace fsdpbench::replay {
namespace {

using schedule::Op;

/// [Note: why the order of time is kept]
/// Every rank goes as far as it can with the ends that are known. What cannot go on then waits, directly or not, for
/// the end of a transfer that is on its way, so nothing can join any link before the first of those ends. That one is
/// therefore final; it is made known, and the ranks it concerns go on.
class TimeOrderWalk final : public Walk {
 public:
  TimeOrderWalk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times)
      : Walk(schedules, groups, times), states_(ranks()), links_(ranks() * kFabrics) {
    for (RankState& state : states_) state.host_ns = times.host.start_ns;
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
      if (!end_one_flow(going)) break;
    }
    end_step(recorded);
  }

 private:
  static constexpr std::size_t kFabrics = 8;
  static constexpr double kUnknown = -1;

  /// From op `op` on the host issues without being blocked, beginning at `time_ns`.
  struct Unblocked {
    std::size_t op = 0;
    double time_ns = 0;
  };
  struct RankState {
    double host_ns = 0;
    std::size_t next_issue = 0;
    std::vector<Unblocked> unblocked;
    std::array<double, kLaneCount> lane_ns{};
    std::array<std::size_t, kLaneCount> next{};  // into lane_ops_
    std::array<bool, kLaneCount> meets{};        // the lane's next op has begun and waits for its peers or its transfer
    std::vector<double> ends;                    // of the ops that somebody waits for, by ends_of_
    std::vector<trace::Record>* records = nullptr;  // of this step, if wanted
  };
  /// A collective of one group, from its first rank's arrival on.
  struct Meeting {
    std::size_t op = 0;
    std::size_t first = 0, stride = 1, members = 1;
    std::size_t arrived = 0, flowing = 0;
    double arrived_ns = 0;
    double end_ns = 0;
  };
  struct CommunicatorState {
    std::size_t next = 0;  // into communicator_ops_
    double free_ns = 0;
    Meeting meeting;
  };
  using Link = FluidLink<CommunicatorState*>;
  struct NextEnd {
    double time_ns;
    std::size_t link;
    std::int64_t version;
    bool operator>(const NextEnd& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : link > other.link;
    }
  };

  void begin_step(std::span<trace::RankTrace> recorded) {
    const std::vector<Op>& ops = schedule().ops;
    for (auto& list : lane_ops_) list.clear();
    for (auto& list : communicator_ops_) list.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Instruction::Kind kind = program().instructions[i].kind;
      if (kind == Instruction::Kind::run || kind == Instruction::Kind::collective) {
        lane_ops_[index_of(ops[i].lane)].push_back(i);
      }
      if (kind == Instruction::Kind::collective) {
        communicator_ops_[static_cast<std::size_t>(ops[i].group())].push_back(i);
      }
    }
    ends_of_.assign(ops.size(), 0);
    issued_before_.assign(ops.size() + 1, 0);
    std::size_t awaited = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ends_of_[i] = awaited;
      if (program().instructions[i].record >= 0) ++awaited;
      issued_before_[i + 1] = issued_before_[i] + (ops[i].is_host() ? 0 : times_.host.issue_ns);
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      RankState& state = states_[rank];
      last_.begin_ns[rank] = state.host_ns;
      state.next_issue = 0;
      state.unblocked.assign(1, {0, state.host_ns});
      state.next.fill(0);
      state.meets.fill(false);
      state.ends.assign(awaited, kUnknown);
      state.records = nullptr;
    }
    for (std::size_t g = 0; g < plan::kGroupCount; ++g) {
      std::vector<CommunicatorState>& all = communicators_[g];
      all.resize(group_count(static_cast<plan::Group>(g)));
      for (CommunicatorState& communicator : all) {
        communicator.next = 0;
        communicator.meeting = {};
      }
    }
    records_.assign(recorded.size(), {});
    for (std::size_t k = 0; k < recorded.size(); ++k) {
      const std::size_t rank = index_of_rank(recorded[k].rank);
      for (std::size_t i = 0; i < ops.size(); ++i) {
        records_[k].push_back({static_cast<std::int32_t>(step_), static_cast<std::int32_t>(i), 0, 0, 0, 0});
      }
      states_[rank].records = &records_[k];
    }
  }

  /// When the host of a rank that has come so far began to issue op i.
  double issued_ns(const RankState& state, std::size_t i) const {
    auto from = state.unblocked.end() - 1;
    while (from->op > i) --from;
    return from->time_ns + (issued_before_[i] - issued_before_[from->op]);
  }
  void set_end(RankState& state, std::size_t i, double end_ns) const {
    if (program().instructions[i].record >= 0) state.ends[ends_of_[i]] = end_ns;
    if (state.records != nullptr) (*state.records)[i].end_ns = static_cast<std::int64_t>(end_ns);
  }

  /// Goes on with a rank until nothing of it can go on.
  void advance(std::size_t rank) {
    for (bool moved = true; moved;) {
      moved = issue(rank);
      for (const Lane lane : kLanes) {
        while (run_next(rank, lane)) moved = true;
      }
    }
  }

  /// The time after all that op `i` waits for, if it comes to it at `time`; kUnknown if that is not known yet.
  double after_waits(const RankState& state, std::size_t i, double time) const {
    const Instruction& instruction = program().instructions[i];
    for (int w = 0; w < instruction.wait_count; ++w) {
      const Awaited& awaited = program().waits[static_cast<std::size_t>(instruction.first_wait + w)];
      const double end = state.ends[ends_of_[static_cast<std::size_t>(awaited.op)]];
      if (end == kUnknown) return kUnknown;
      if (end > time) time = end + times_.host.wake_ns;
    }
    return time;
  }

  /// The host issues until it is blocked. Returns whether it issued anything.
  bool issue(std::size_t rank) {
    RankState& state = states_[rank];
    const std::size_t before = state.next_issue;
    for (; state.next_issue < schedule().ops.size(); ++state.next_issue) {
      const std::size_t i = state.next_issue;
      if (!schedule().ops[i].is_host()) {
        state.host_ns += times_.host.issue_ns;
        continue;
      }
      double time = after_waits(state, i, state.host_ns);
      if (time == kUnknown) break;
      if (schedule().ops[i].kind == schedule::OpKind::host_sync) {
        if (!idle_before(state, i)) break;
        for (const double lane : state.lane_ns) time = lane > time ? lane + times_.host.wake_ns : time;
      }
      if (state.records != nullptr) (*state.records)[i].end_ns = static_cast<std::int64_t>(time);
      if (time == state.host_ns) continue;
      state.host_ns = time;
      state.unblocked.push_back({i + 1, time});
    }
    return state.next_issue > before;
  }

  /// Whether every op before i has ended on its lane.
  bool idle_before(const RankState& state, std::size_t i) const {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      const std::size_t next = state.next[lane];
      if (next < lane_ops_[lane].size() && lane_ops_[lane][next] < i) return false;
    }
    return true;
  }

  /// Runs the next op of a lane, or lets it meet its peers. Returns whether there was something to do.
  bool run_next(std::size_t rank, Lane lane) {
    RankState& state = states_[rank];
    const std::size_t l = index_of(lane);
    if (state.meets[l] || state.next[l] == lane_ops_[l].size()) return false;
    const std::size_t i = lane_ops_[l][state.next[l]];
    if (i >= state.next_issue) return false;
    const Instruction& instruction = program().instructions[i];
    const double issued = issued_ns(state, i) + times_.host.issue_ns;
    const double launch = instruction.has_work ? times_.host.launch_ns : 0;
    const double gap = instruction.has_work ? times_.host.gap_ns : 0;
    double begin = after_waits(state, i, issued > state.lane_ns[l] ? issued + launch : state.lane_ns[l] + gap);
    if (begin == kUnknown) return false;
    if (instruction.has_work && times_.delays.any()) {
      times_.delays.add(static_cast<std::int64_t>(step_), i, lane, rank, {&begin, 1});
    }
    if (instruction.kind == Instruction::Kind::collective) return meet(rank, l, i, begin);
    state.lane_ns[l] = begin + duration(rank, i, instruction);
    set_end(state, i, state.lane_ns[l]);
    if (state.records != nullptr) (*state.records)[i].begin_ns = static_cast<std::int64_t>(begin);
    ++state.next[l];
    return true;
  }

  double given_ns(std::size_t rank, std::size_t i) const {
    return static_cast<double>(times_.given[std::min(step_, times_.given.size() - 1)][rank][i]);
  }

  double duration(std::size_t rank, std::size_t i, const Instruction& instruction) const {
    if (!instruction.has_work) return 0;
    if (!times_.given.empty()) return given_ns(rank, i);
    double ns = costs()[i].run_ns;
    const bool computes = instruction.lane == Lane::compute;
    if (computes && !times_.compute_factor.empty()) ns = std::nearbyint(ns * times_.compute_factor[rank]);
    if (costs()[i].run_ns > 0) times_.jitter.apply(static_cast<std::int64_t>(step_), i, rank, computes, {&ns, 1});
    return ns;
  }

  bool meet(std::size_t rank, std::size_t l, std::size_t i, double begin) {
    RankState& state = states_[rank];
    const plan::Group group = schedule().ops[i].group();
    const auto g = static_cast<std::size_t>(group);
    CommunicatorState& communicator = communicators_[g][group_number(group, rank)];
    if (communicator_ops_[g][communicator.next] != i) return false;  // not its turn
    if (communicator.free_ns > begin) begin = communicator.free_ns + times_.host.wake_ns;
    if (state.records != nullptr) (*state.records)[i].begin_ns = static_cast<std::int64_t>(begin);
    state.meets[l] = true;
    Meeting& meeting = communicator.meeting;
    if (meeting.arrived == 0) {
      const std::size_t stride = group_stride(group), members = group_size(group);
      meeting = {i, rank - rank / stride % members * stride, stride, members, 0, 0, 0, 0};
    }
    meeting.arrived_ns = std::max(meeting.arrived_ns, begin);
    if (++meeting.arrived == meeting.members) begin_transfer(communicator, group_number(group, rank));
    return true;
  }

  void begin_transfer(CommunicatorState& communicator, std::size_t group) {
    Meeting& meeting = communicator.meeting;
    const OpCost& cost = costs()[meeting.op];
    if (times_.given.empty()) {
      group_ns_.resize(group_count(schedule().ops[meeting.op].group()));
      collective_ns(meeting.op, group_ns_);
    }
    double slowest = 0;
    for (std::size_t m = 0; m < meeting.members; ++m) {
      slowest = std::max(slowest, link_factor(meeting.first + m * meeting.stride));
    }
    meeting.flowing = meeting.members;
    for (std::size_t m = 0; m < meeting.members; ++m) {
      const std::size_t rank = meeting.first + m * meeting.stride;
      const std::size_t link = rank * kFabrics + static_cast<std::size_t>(cost.fabric);
      const double alone_ns = times_.given.empty() ? group_ns_[group] : given_ns(rank, meeting.op);
      const double latency = std::min(cost.run_ns, alone_ns);
      const double share = link_factor(rank) / slowest;
      links_[link].add({&communicator, meeting.arrived_ns + latency, (alone_ns - latency) * share});
      predict(link);
    }
  }

  void predict(std::size_t link) {
    if (versions_.empty()) versions_.resize(links_.size());
    ends_.push({links_[link].first_end_ns(), link, ++versions_[link]});
  }

  /// The first flow of all that ends; a transfer ends with its last flow. Returns false if nothing flows.
  bool end_one_flow(std::vector<std::size_t>& going) {
    while (!ends_.empty()) {
      const NextEnd next = ends_.top();
      ends_.pop();
      if (next.version != versions_[next.link]) continue;
      std::vector<CommunicatorState*> over;
      links_[next.link].advance(next.time_ns, [&](const Link::Flow& flow, double end_ns) {
        Meeting& meeting = flow.name->meeting;
        meeting.end_ns = std::max(meeting.end_ns, std::nearbyint(end_ns));
        if (--meeting.flowing == 0) over.push_back(flow.name);
      });
      if (!links_[next.link].flows().empty()) predict(next.link);
      for (CommunicatorState* communicator : over) end_transfer(*communicator, going);
      return true;
    }
    return false;
  }

  void end_transfer(CommunicatorState& communicator, std::vector<std::size_t>& going) {
    const Meeting meeting = std::exchange(communicator.meeting, {});
    const std::size_t l = index_of(schedule().ops[meeting.op].lane);
    for (std::size_t m = 0; m < meeting.members; ++m) {
      const std::size_t rank = meeting.first + m * meeting.stride;
      RankState& state = states_[rank];
      set_end(state, meeting.op, meeting.end_ns);
      if (state.records != nullptr) {
        (*state.records)[meeting.op].peers_arrived_ns = static_cast<std::int64_t>(meeting.arrived_ns);
      }
      state.lane_ns[l] = meeting.end_ns;
      state.meets[l] = false;
      ++state.next[l];
      going.push_back(rank);
    }
    communicator.free_ns = meeting.end_ns;
    ++communicator.next;
  }

  void end_step(std::span<trace::RankTrace> recorded) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      RankState& state = states_[rank];
      if (state.next_issue < schedule().ops.size() || !idle_before(state, schedule().ops.size())) {
        throw std::logic_error("replay: a schedule waits for itself");
      }
      last_.end_ns[rank] = std::max(last_.begin_ns[rank], *std::ranges::max_element(state.lane_ns));
    }
    for (trace::RankTrace& trace : recorded) {
      const std::size_t rank = index_of_rank(trace.rank);
      const RankState& state = states_[rank];
      for (trace::Record record : *state.records) {
        const auto i = static_cast<std::size_t>(record.op);
        record.issued_ns = static_cast<std::int64_t>(issued_ns(state, i));
        if (!schedule().ops[i].has_work()) record.begin_ns = 0;
        if (!schedule().ops[i].has_work() && !schedule().ops[i].is_host()) record.end_ns = 0;
        trace.records.push_back(record);
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
  std::vector<std::size_t> ends_of_;   // by op: where its end is in RankState::ends, if somebody waits for it
  std::vector<double> issued_before_;  // by op: what the host takes to issue those before it, unblocked
  std::vector<std::vector<trace::Record>> records_;
  std::array<std::vector<std::size_t>, kLaneCount> lane_ops_;
  std::array<std::vector<std::size_t>, plan::kGroupCount> communicator_ops_;
  std::array<std::vector<CommunicatorState>, plan::kGroupCount> communicators_;
  std::vector<Link> links_;             // by rank and fabric
  std::vector<std::int64_t> versions_;  // by link: what was predicted before counts no more
  std::priority_queue<NextEnd, std::vector<NextEnd>, std::greater<>> ends_;
  std::vector<double> group_ns_;
};

}  // namespace

std::unique_ptr<Replay> walk_in_time_order(const schedule::Schedules& schedules, const plan::Groups& groups,
                                           const OpTimes& times) {
  return std::make_unique<TimeOrderWalk>(schedules, groups, times);
}

}  // namespace fsdpbench::replay
