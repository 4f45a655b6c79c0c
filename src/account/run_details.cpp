#include "account/run_details.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "base/enum_table.h"
#include "clock/collective_kinds.h"
#include "config/run_config.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::account {

std::vector<trace::LiveBytes> memory_timeline(const StepRecords& step, int rank) {
  const StepView view(step, rank);
  const std::vector<schedule::Buffer>& buffers = step.schedule().buffers;
  struct Change {
    std::int64_t time_ns;
    MemoryCategory category;
    std::int64_t bytes;
  };
  std::vector<Change> changes;
  const auto change = [&](std::int64_t time_ns, schedule::BufferId id, int sign) {
    const schedule::Buffer& b = buffers[id];
    changes.push_back({time_ns, b.category, sign * b.bytes});
  };
  for (int i = 0; i < view.size(); ++i) {
    for (const schedule::BufferId id : view.op(i).allocates) change(view.record(i).begin_ns, id, 1);
    for (const schedule::BufferId id : view.op(i).frees) change(view.done(i), id, -1);
  }
  std::ranges::stable_sort(changes, {}, &Change::time_ns);

  std::vector<trace::LiveBytes> levels(1);
  for (const schedule::Buffer& b : buffers) {
    if (b.persistent) levels.front().live[index_of(b.category)] += b.bytes;
  }
  for (const Change& c : changes) {
    trace::LiveBytes level = levels.back();
    level.time_ns = c.time_ns - view.window().begin_ns;
    level.live[index_of(c.category)] += c.bytes;
    levels.push_back(level);
  }
  return levels;
}
namespace {

using schedule::Phase;

constexpr auto& kPhases = kEnumerators<Phase>;

/// The stretches of one rank's step that belong to each phase.
EnumTable<Phase, IntervalSet> phase_windows(const StepRecords& step, int rank) {
  EnumTable<Phase, IntervalSet> result;
  const trace::StepWindow& window = step.window(rank);
  Phase phase = Phase::forward;
  std::int64_t begin = window.begin_ns;
  for (std::size_t i = 0; i < step.schedule().ops.size(); ++i) {
    const schedule::Op& op = step.schedule().ops[i];
    const OpClass op_class = classify(op);
    const bool begins = op_class == OpClass::computation || op_class == OpClass::host_update;
    if (op.phase == phase || !begins) continue;
    const std::int64_t end = step.of(rank)[i].begin_ns;
    result[phase].push_back({begin, end});
    begin = end;
    phase = op.phase;
  }
  result[phase].push_back({begin, window.end_ns});
  for (IntervalSet& set : result) set = unite(std::move(set));
  return result;
}

struct Sums {
  StepBreakdown time;
  std::int64_t host_wait = 0;
};

struct UnitSums {
  std::int64_t compute = 0, comm = 0, exposed_comm = 0;
};

class Details {
 public:
  Details(const RunView& run, const plan::Plan& plan, const std::optional<LinkModel>& link)
      : run_(run), plan_(plan), link_(link), units_(plan.units.size()) {
    // The steady schedule first: its order is the one that readers know.
    const std::vector<schedule::Schedule>& schedules = run.schedules().steps;
    for (auto schedule = schedules.rbegin(); schedule != schedules.rend(); ++schedule) {
      std::vector<OpKey> keys = op_keys(*schedule);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!schedule->ops[i].is_collective() || number_.contains(keys[i])) continue;
        number_.emplace(keys[i], collectives_.size());
        collectives_.push_back({&schedule->ops[i], {}, {}, {}});
      }
      keys_.emplace(&*schedule, std::move(keys));
    }
  }

  RunDetails result() {
    const MiddleSteps middle = middle_steps(run_);
    for (const std::size_t s : middle.indices) {
      for (int rank = 0; rank < run_.ranks(); ++rank) add_times(run_.steps()[s], rank);
    }
    for (const StepRecords& step : run_.steps()) {
      for (int rank = 0; rank < run_.ranks(); ++rank) add_collectives(step, rank);
    }
    RunDetails details;
    const auto ms = [&](std::int64_t ns) { return static_cast<double>(ns) * middle.ms_per_ns; };
    for (const Phase phase : kPhases) {
      const auto& [t, host_wait] = phases_[phase];
      details.phases.push_back({phase, ms(t.step), ms(t.computation), ms(t.communication), ms(t.overlap),
                                ms(t.exposed_communication), ms(t.exposed_copy), ms(t.idle), ms(host_wait)});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      details.units.push_back(
          {plan_.units[u].label(), ms(units_[u].compute), ms(units_[u].comm), ms(units_[u].exposed_comm)});
    }
    for (const Times& times : collectives_) {
      if (!times.time.empty()) details.collectives.push_back(collective(times));
    }
    return details;
  }

 private:
  struct Times {
    const schedule::Op* op;
    std::vector<double> time, wait, transfer;  // milliseconds
  };

  void add_times(const StepRecords& step, int rank) {
    const StepIntervals intervals = intervals_of(step, rank);
    const EnumTable<Phase, IntervalSet> windows = phase_windows(step, rank);
    for (const Phase phase : kPhases) {
      phases_[phase].time += break_down(intervals, windows[phase]);
    }
    std::vector<std::vector<Interval>> computation(units_.size()), communication(units_.size());
    for (std::size_t i = 0; i < step.schedule().ops.size(); ++i) {
      const schedule::Op& op = step.schedule().ops[i];
      const trace::Record& r = step.of(rank)[i];
      if (op.is_host()) phases_[op.phase].host_wait += r.end_ns - r.issued_ns;
      if (op.unit < 0) continue;
      const auto unit = static_cast<std::size_t>(op.unit);
      if (classify(op) == OpClass::computation) computation[unit].push_back({r.begin_ns, r.end_ns});
      if (classify(op) == OpClass::communication) communication[unit].push_back({r.begin_ns, r.end_ns});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const IntervalSet mine = unite(std::move(communication[u]));
      units_[u].compute += length(unite(std::move(computation[u])));
      units_[u].comm += length(mine);
      units_[u].exposed_comm += length(subtract(mine, intervals.computation));
    }
  }

  void add_collectives(const StepRecords& step, int rank) {
    const std::vector<OpKey>& keys = keys_.at(&step.schedule());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!step.schedule().ops[i].is_collective()) continue;
      const trace::Record& r = step.of(rank)[i];
      const std::int64_t arrived = std::max(r.begin_ns, r.peers_arrived_ns);
      Times& times = collectives_[number_.at(keys[i])];
      times.time.push_back(static_cast<double>(r.end_ns - r.begin_ns) / 1e6);
      times.wait.push_back(static_cast<double>(arrived - r.begin_ns) / 1e6);
      times.transfer.push_back(static_cast<double>(r.end_ns - arrived) / 1e6);
    }
  }

  CollectiveTimes collective(const Times& times) const {
    const schedule::Op& op = *times.op;
    const clock::CollectiveMessage message = clock::message_of(op, plan_.groups);
    CollectiveTimes c;
    c.name = schedule::op_name(plan_, op);
    c.kind = schedule::to_string(op.kind);
    const std::vector<schedule::Op>& steady = run_.schedules().steady().ops;
    if (times.op >= steady.data() && times.op < steady.data() + steady.size()) {
      c.op = static_cast<int>(times.op - steady.data());
    }
    c.phase = schedule::to_string(op.phase);
    if (op.unit >= 0) c.unit = plan_.units[op.unit].label();
    c.group_size = message.ranks;
    c.message_bytes = message.bytes;
    c.count = static_cast<int>(times.time.size());
    c.time_ms = median(times.time);
    c.wait_ms = median(times.wait);
    c.transfer_ms = median(times.transfer);
    if (c.transfer_ms > 0) {
      c.algbw_gb_s = static_cast<double>(c.message_bytes) / (c.transfer_ms * 1e6);
      c.busbw_gb_s = c.algbw_gb_s * message.share();
      if (link_) c.link_efficiency = c.busbw_gb_s * 1e9 / link_->bytes_per_second;
    }
    return c;
  }

  const RunView& run_;
  const plan::Plan& plan_;
  const std::optional<LinkModel>& link_;
  EnumTable<Phase, Sums> phases_;
  std::vector<UnitSums> units_;
  std::map<const schedule::Schedule*, std::vector<OpKey>> keys_;
  std::map<OpKey, std::size_t> number_;  // into collectives_
  std::vector<Times> collectives_;
};

}  // namespace

RunDetails run_details(const RunView& run, const plan::Plan& plan, const std::optional<LinkModel>& link) {
  return Details(run, plan, link).result();
}

}  // namespace fsdpbench::account
