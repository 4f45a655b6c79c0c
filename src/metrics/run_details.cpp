#include "metrics/run_details.h"

#include <algorithm>
#include <array>
#include <map>

#include "metrics/intervals.h"
#include "metrics/statistics.h"
#include "metrics/step_breakdown.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::metrics {
namespace {

using schedule::OpKind;
using schedule::Phase;

constexpr std::array<Phase, 3> kPhases{Phase::forward, Phase::backward, Phase::optimizer};

/// Nanoseconds, to be divided by ranks and steps.
struct Sums {
  std::int64_t step = 0, compute = 0, comm = 0, overlap = 0, exposed_comm = 0, exposed_copy = 0, idle = 0,
               host_wait = 0;
};

/// The stretches of one rank's step that belong to each phase.
std::array<IntervalSet, 3> phase_windows(const schedule::Schedule& schedule, const trace::Record* records,
                                         const trace::StepWindow& window) {
  std::array<IntervalSet, 3> result;
  Phase phase = Phase::forward;
  std::int64_t begin = window.begin_ns;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    if (op.phase == phase || classify(op) != OpClass::computation) continue;
    result[static_cast<std::size_t>(phase)].push_back({begin, records[i].begin_ns});
    begin = records[i].begin_ns;
    phase = op.phase;
  }
  result[static_cast<std::size_t>(phase)].push_back({begin, window.end_ns});
  for (IntervalSet& set : result) set = unite(std::move(set));
  return result;
}

class Details {
 public:
  Details(const schedule::Schedules& schedules, const plan::Plan& plan, const std::optional<LinkModel>& link)
      : schedules_(schedules), plan_(plan), link_(link), units_(plan.units.size()) {}

  void add_rank(const trace::RankTrace& trace) {
    std::size_t first = 0;
    for (const trace::StepWindow& window : trace.steps) {
      const schedule::Schedule& schedule = schedules_.of_step(static_cast<std::size_t>(trace.records[first].step));
      add_step(schedule, trace.records.data() + first, window);
      first += schedule.ops.size();
    }
  }

  RunDetails result() const {
    RunDetails details;
    const double per_ms = 1e6 * static_cast<double>(steps_);
    const auto ms = [per_ms](std::int64_t ns) { return static_cast<double>(ns) / per_ms; };
    for (Phase phase : kPhases) {
      const Sums& s = phases_[static_cast<std::size_t>(phase)];
      details.phases.push_back({phase, ms(s.step), ms(s.compute), ms(s.comm), ms(s.overlap), ms(s.exposed_comm),
                                ms(s.exposed_copy), ms(s.idle), ms(s.host_wait)});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      details.units.push_back(
          {plan_.units[u].label(), ms(units_[u].compute), ms(units_[u].comm), ms(units_[u].exposed_comm)});
    }
    for (const auto& [op, times] : collectives_) details.collectives.push_back(collective(op, times));
    return details;
  }

 private:
  struct Times {
    std::vector<double> time, wait, transfer;  // milliseconds
  };

  void add_step(const schedule::Schedule& schedule, const trace::Record* records, const trace::StepWindow& window) {
    ++steps_;
    std::vector<Interval> computation, communication, copies;
    std::vector<std::vector<Interval>> unit_computation(units_.size()), unit_communication(units_.size());
    const bool steady = schedule.ops.size() == schedules_.steady().ops.size();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const schedule::Op& op = schedule.ops[i];
      const Interval run{records[i].begin_ns, records[i].end_ns};
      const auto unit = static_cast<std::size_t>(op.unit);
      switch (classify(op)) {
        case OpClass::computation:
          computation.push_back(run);
          if (op.unit >= 0) unit_computation[unit].push_back(run);
          break;
        case OpClass::communication:
          communication.push_back(run);
          if (op.unit >= 0) unit_communication[unit].push_back(run);
          if (steady) add_collective(static_cast<int>(i), records[i]);
          break;
        case OpClass::copy: copies.push_back(run); break;
        case OpClass::none:
          if (op.is_host()) {
            phases_[static_cast<std::size_t>(op.phase)].host_wait += records[i].end_ns - records[i].issued_ns;
          }
          break;
      }
    }
    const IntervalSet comp = unite(std::move(computation));
    const IntervalSet comm = unite(std::move(communication));
    const IntervalSet both = unite(comp, comm);
    const IntervalSet all = unite(both, unite(std::move(copies)));
    const std::array<IntervalSet, 3> windows = phase_windows(schedule, records, window);
    for (Phase phase : kPhases) {
      const IntervalSet& in = windows[static_cast<std::size_t>(phase)];
      Sums& s = phases_[static_cast<std::size_t>(phase)];
      s.step += length(in);
      s.compute += length(intersect(in, comp));
      s.comm += length(intersect(in, comm));
      s.overlap += length(intersect(in, intersect(comp, comm)));
      s.exposed_comm += length(intersect(in, subtract(comm, comp)));
      s.exposed_copy += length(intersect(in, subtract(all, both)));
      s.idle += length(subtract(in, all));
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const IntervalSet mine = unite(std::move(unit_communication[u]));
      units_[u].compute += length(unite(std::move(unit_computation[u])));
      units_[u].comm += length(mine);
      units_[u].exposed_comm += length(subtract(mine, comp));
    }
  }

  void add_collective(int op, const trace::Record& r) {
    Times& times = collectives_[op];
    const std::int64_t arrived = std::max(r.begin_ns, r.peers_arrived_ns);
    times.time.push_back(static_cast<double>(r.end_ns - r.begin_ns) / 1e6);
    times.wait.push_back(static_cast<double>(arrived - r.begin_ns) / 1e6);
    times.transfer.push_back(static_cast<double>(r.end_ns - arrived) / 1e6);
  }

  CollectiveTimes collective(int index, const Times& times) const {
    const schedule::Op& op = schedules_.steady().ops[static_cast<std::size_t>(index)];
    CollectiveTimes c;
    c.name = schedule::op_name(plan_, op);
    c.kind = schedule::to_string(op.kind);
    c.phase = schedule::to_string(op.phase);
    if (op.unit >= 0) c.unit = plan_.units[static_cast<std::size_t>(op.unit)].label();
    c.group_size = plan_.groups.size(op.group());
    const bool all_reduce = op.kind == OpKind::all_reduce;
    c.message_bytes = op.collective()->bytes() * (all_reduce ? 1 : c.group_size);
    c.count = static_cast<int>(times.time.size());
    c.time_ms = median(times.time);
    c.wait_ms = median(times.wait);
    c.transfer_ms = median(times.transfer);
    if (c.transfer_ms > 0) {
      const double n = c.group_size;
      c.algbw_gb_s = static_cast<double>(c.message_bytes) / (c.transfer_ms * 1e6);
      c.busbw_gb_s = c.algbw_gb_s * (all_reduce ? 2 : 1) * (n - 1) / n;
      if (link_) c.link_efficiency = c.busbw_gb_s * 1e9 / link_->bytes_per_second;
    }
    return c;
  }

  const schedule::Schedules& schedules_;
  const plan::Plan& plan_;
  const std::optional<LinkModel>& link_;
  std::int64_t steps_ = 0;  // of all ranks
  std::array<Sums, 3> phases_;
  std::vector<Sums> units_;
  std::map<int, Times> collectives_;  // by op of the steady schedule
};

}  // namespace

RunDetails run_details(const schedule::Schedules& schedules, const plan::Plan& plan,
                       const std::vector<trace::RankTrace>& traces, const std::optional<LinkModel>& link) {
  Details details(schedules, plan, link);
  for (const trace::RankTrace& trace : traces) details.add_rank(trace);
  return details.result();
}

}  // namespace fsdpbench::metrics
