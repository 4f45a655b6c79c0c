#include "account/step_view.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "account/run_view.h"
#include "account/step_breakdown.h"

namespace fsdpbench::account {

std::vector<OpKey> op_keys(const schedule::Schedule& schedule) {
  std::vector<OpKey> keys;
  std::map<OpKey, int> seen;
  for (const schedule::Op& op : schedule.ops) {
    OpKey key{op.kind, op.group(), op.phase, op.unit, op.module, op.micro, op.prefetch};
    key.occurrence = seen[key]++;
    keys.push_back(key);
  }
  return keys;
}

namespace {

StepEdges edges_of(const StepRecords& step) {
  StepEdges edges;
  std::array<int, kLaneCount> last_on_lane;
  std::array<int, schedule::kGroupCount> last_on_communicator;
  last_on_lane.fill(-1);
  last_on_communicator.fill(-1);
  std::vector<int> recorder(static_cast<std::size_t>(step.event_count()), -1);
  int host = -1, index = 0;
  for (const schedule::Op& o : step.schedule().ops) {
    edges.host_before.push_back(host);
    std::vector<int>& recorders = edges.recorders.emplace_back();
    for (const schedule::Wait& wait : o.waits) recorders.push_back(recorder[wait.event]);
    if (o.is_host()) host = index;
    edges.lane_before.push_back(o.is_host() ? -1 : std::exchange(last_on_lane[index_of(o.lane)], index));
    edges.communicator_before.push_back(
        o.is_collective() ? std::exchange(last_on_communicator[static_cast<std::size_t>(o.group())], index) : -1);
    if (o.record != schedule::kNoEvent) recorder[o.record] = index;
    ++index;
  }
  return edges;
}

}  // namespace

StepView::StepView(const StepRecords& step, int rank)
    : StepView(step.schedule().ops, step.of(rank), step.window(rank), edges_of(step)) {}

StepView::StepView(std::span<const schedule::Op> ops, std::span<const trace::Record> records,
                   const trace::StepWindow& window, StepEdges edges)
    : ops_(ops), records_(records), window_(window), edges_(std::move(edges)) {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const schedule::Op& o = ops_[i];
    classes_.push_back(classify(o));
    if (o.is_host() || o.has_work()) {
      done_.push_back(records_[i].end_ns);
      continue;
    }
    std::int64_t done = records_[i].issued_ns;
    const auto wait_for = [&](int before) {
      if (before >= 0) done = std::max(done, done_[before]);
    };
    wait_for(edges_.lane_before[i]);
    for (const int before : edges_.recorders[i]) wait_for(before);
    done_.push_back(done);
  }
}

int StepView::last_to_end() const {
  int last = -1;
  for (int i = 0; i < size(); ++i) {
    if (op(i).has_work() && (last < 0 || record(i).end_ns > record(last).end_ns)) last = i;
  }
  return last;
}

int last_to_arrive(const StepRecords& step, const plan::Groups& groups, int place, int op) {
  const plan::Group group = step.schedule().ops[op].group();
  const auto begin_of = [&](int other) { return step.of(other)[op].begin_ns; };
  int late = place;
  for (int other = 0; other < step.ranks(); ++other) {
    if (!groups.together(group, step.rank_at(place), step.rank_at(other))) continue;
    if (begin_of(other) > begin_of(late)) late = other;
  }
  const bool all_in_view = step.ranks() == groups.ranks();
  return all_in_view || begin_of(late) >= step.of(place)[op].peers_arrived_ns ? late : -1;
}

std::vector<int> needed_by(const schedule::Schedule& schedule) {
  std::vector<int> readers(schedule.ops.size(), -1);
  std::vector<std::vector<int>> from(schedule.buffers.size());  // collectives whose data a buffer holds, as yet unread
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    const OpClass op_class = classify(op);
    const schedule::Operands operands = op.operands();
    std::vector<int> read;
    for (const schedule::BufferId id : operands.reads) {
      std::vector<int>& waiting = from[id];
      std::erase_if(waiting, [&](int collective) { return readers[collective] >= 0; });
      read.insert(read.end(), waiting.begin(), waiting.end());
    }
    if (op_class == OpClass::copy) {  // passes on what it read
      for (const schedule::BufferId id : operands.writes) {
        std::vector<int>& written = from[id];
        for (const int collective : read) {
          if (std::ranges::find(written, collective) == written.end()) written.push_back(collective);
        }
      }
      continue;
    }
    for (const int collective : read) readers[collective] = static_cast<int>(i);
    if (!op.is_collective()) continue;
    for (const schedule::BufferId id : operands.writes) from[id] = {static_cast<int>(i)};
  }
  return readers;
}

void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Groups& groups,
                        std::vector<trace::RankTrace>& traces) {
  std::vector<std::int64_t> latest;  // begin, by group
  std::size_t first = 0;             // record of the step
  const RunView run(schedules, traces);
  for (const StepRecords& step : run.steps()) {
    const std::vector<schedule::Op>& ops = step.schedule().ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const schedule::Op& op = ops[i];
      if (!op.is_collective()) continue;
      latest.assign(static_cast<std::size_t>(groups.count(op.group())), 0);
      const auto of = [&](std::size_t rank) -> std::int64_t& {
        return latest[groups.number(op.group(), static_cast<int>(rank))];
      };
      for (std::size_t rank = 0; rank < traces.size(); ++rank) {
        of(rank) = std::max(of(rank), traces[rank].records[first + i].begin_ns);
      }
      for (std::size_t rank = 0; rank < traces.size(); ++rank) {
        trace::Record& r = traces[rank].records[first + i];
        if (r.peers_arrived_ns == 0) r.peers_arrived_ns = std::clamp(of(rank), r.begin_ns, r.end_ns);
      }
    }
    first += ops.size();
  }
}

}  // namespace fsdpbench::account
