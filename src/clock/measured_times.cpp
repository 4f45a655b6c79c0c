#include "clock/measured_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/student.h"
#include "clock/collective_kinds.h"
#include "clock/compute_cost.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;
using trace::Record;

/// A transfer on one rank's link.
struct Flow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t op = 0;
};

/// Time that each flow would have needed with the link to itself: k flows at once get 1/k each. By flow; `flows`: in
/// order of their begins.
std::vector<double> alone_ns(const std::vector<Flow>& flows) {
  std::vector<std::int64_t> changes;
  for (const Flow& flow : flows) {
    changes.push_back(flow.begin);
    changes.push_back(flow.end);
  }
  std::ranges::sort(changes);
  std::vector<double> alone(flows.size());
  std::vector<std::size_t> active;
  auto next = flows.begin();
  std::int64_t last{};
  for (const std::int64_t now : changes) {
    const double share = static_cast<double>(now - last) / static_cast<double>(active.size());
    for (const std::size_t f : active) alone[f] += share;
    for (; next != flows.end() && next->begin == now; ++next) active.push_back(next - flows.begin());
    std::erase_if(active, [&](std::size_t f) { return flows[f].end == now; });
    last = now;
  }
  return alone;
}

}  // namespace

MeasuredTimes::MeasuredTimes(const schedule::Training& run, std::span<const trace::RankTrace> traces,
                             std::optional<double> hop_ns, bool shared_link, const SlowdownOf& slowdown,
                             bool one_fabric)
    : run_(&run), traces_(traces), hop_ns_(hop_ns), shared_link_(shared_link), one_fabric_(one_fabric) {
  const trace::RankTrace& any = traces.front();
  first_ = any.records.front().step;
  for (std::size_t step = 0, record = 0; step < any.steps.size(); ++step) {
    first_records_.push_back(record);
    const std::vector<Op>& ops = schedule_of(step).ops;
    record += ops.size();
    Table& by_rank = ns_.emplace_back();
    Table& issue_by_rank = issue_.emplace_back();
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      std::vector<std::int64_t>& ns = by_rank.emplace_back();
      std::vector<std::int64_t>& issue = issue_by_rank.emplace_back();
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Record& r = records(step, rank)[i];
        const bool missing = r.begin_ns == 0;
        ns.push_back(!ops[i].has_work() ? 0
                     : missing          ? kNone
                     : ops[i].is_collective()
                         ? std::max<std::int64_t>(0, r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns))
                         : r.end_ns - r.begin_ns);
        const std::int64_t issued =
            i + 1 < ops.size() ? records(step, rank)[i + 1].issued_ns : traces[rank].steps[step].issued_ns;
        issue.push_back(ops[i].is_host() || issued == 0 ? kNone : std::max<std::int64_t>(0, issued - r.issued_ns));
      }
    }
    if (shared_link) find_alone(step);
    if (slowdown) take_out(slowdown, step);
  }
  fill_gaps();
}

std::span<const Record> MeasuredTimes::records(std::size_t step, std::size_t rank) const {
  return std::span(traces_[rank].records).subspan(first_records_[step], schedule_of(step).ops.size());
}

/// A transfer is over when its last member's flow is: the member on whose link it would have needed least had most
/// company there, and held the others up.
void MeasuredTimes::find_alone(std::size_t step) {
  const std::vector<Op>& ops = schedule_of(step).ops;
  std::map<std::pair<std::size_t, int>, double> least;  // by op and group
  std::vector<std::vector<std::size_t>> transfers(ranks());
  const auto group_of = [&](std::size_t op, std::size_t rank) {
    return std::pair(op, run_->plan.groups.number(ops[op].group(), traces_[rank].rank));
  };
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    std::vector<Flow> flows;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (meeting_ranks(ops[i], run_->plan.groups) == 0 || ns_[step][rank][i] <= 0) continue;
      const std::int64_t end = records(step, rank)[i].end_ns;
      const double hops = work_of(ops[i], schedule_of(step), run_->plan.groups, run_->sizes).fixed;
      const auto latency = static_cast<std::int64_t>(std::nearbyint(hop_ns_.value_or(0) * hops));
      flows.push_back({std::min(end, end - ns_[step][rank][i] + latency), end, i});
    }
    std::ranges::stable_sort(flows, {}, &Flow::begin);
    const std::vector<double> alone = alone_ns(flows);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const std::size_t op = flows[f].op;
      const auto latency = static_cast<double>(ns_[step][rank][op] - (flows[f].end - flows[f].begin));
      const auto at = least.try_emplace(group_of(op, rank), latency + alone[f]).first;
      at->second = std::min(at->second, latency + alone[f]);
      transfers[rank].push_back(op);
    }
  }
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    for (const std::size_t op : transfers[rank]) ns_[step][rank][op] = std::llround(least.at(group_of(op, rank)));
  }
}

void MeasuredTimes::take_out(const SlowdownOf& slowdown, std::size_t step) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const std::vector<double> parts = parts_alone(schedule_of(step), records(step, rank), slowdown);
    std::vector<std::int64_t>& ns = ns_[step][rank];
    for (std::size_t i = 0; i < ns.size(); ++i) {
      ns[i] = std::llround(static_cast<double>(ns[i]) * parts[i]);
    }
  }
}

void MeasuredTimes::fill_gaps() {
  for (std::size_t step = 0; step < steps(); ++step) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      for (std::size_t i = 0; i < ns_[step][rank].size(); ++i) {
        if (ns_[step][rank][i] != kNone) continue;
        std::vector<std::int64_t> others;
        for (std::size_t other = 0; other < steps(); ++other) {
          if (&schedule_of(other) != &schedule_of(step)) continue;
          if (ns_[other][rank][i] != kNone) others.push_back(ns_[other][rank][i]);
        }
        if (!others.empty()) ns_[step][rank][i] = lower_median(std::move(others));
      }
    }
  }
}

MeasuredTimes::MeasuredTimes(const MeasuredTimes& like, const schedule::Training& run, Table ns, Table issue)
    : run_(&run),
      traces_(like.traces_),
      hop_ns_(like.hop_ns_),
      shared_link_(like.shared_link_),
      one_fabric_(like.one_fabric_),
      ns_{std::move(ns)},
      issue_{std::move(issue)} {}

MeasuredTimes MeasuredTimes::with_step(const schedule::Training& run, Table ns, Table issue) const {
  return {*this, run, std::move(ns), std::move(issue)};
}

LineFit MeasuredTimes::fit(const std::vector<int>& ops) const {
  const schedule::Schedule& schedule = schedule_of(steps() - 1);
  std::vector<LineSample> samples;
  std::optional<double> hop_ns;
  for (const int op : ops) {
    const std::size_t i = op;
    std::vector<std::int64_t> values;
    for (std::size_t step = 0; step < steps(); ++step) {
      if (&schedule_of(step) != &schedule) continue;
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (ns_[step][rank][i] != kNone) values.push_back(ns_[step][rank][i]);
      }
    }
    if (values.empty()) continue;
    const OpWork work = work_of(schedule.ops[i], schedule, run_->plan.groups, run_->sizes);
    if (work.unit == OpWork::Unit::wire_bytes) hop_ns = hop_ns_;
    std::ranges::sort(values);
    const auto quarter = [&](std::size_t q) { return static_cast<double>(values[(values.size() - 1) * q / 4]); };
    samples.push_back({work.fixed, work.amount, quarter(2), quarter(3) - quarter(1)});
  }
  return fit_line(samples, hop_ns);
}

std::vector<MeasuredTimes::Link> MeasuredTimes::links() const {
  std::map<std::pair<schedule::OpKind, plan::Group>, std::vector<int>> ops;
  const schedule::Schedule& schedule = schedule_of(steps() - 1);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    if (meeting_ranks(op, run_->plan.groups) > 0) {
      ops[{op.kind, op.group()}].push_back(static_cast<int>(i));
    }
  }
  std::vector<Link> links;
  for (const auto& [key, list] : ops) links.push_back({key.first, key.second, fit(list)});
  return links;
}

MeasuredTimes::Straggler MeasuredTimes::straggler() const {
  std::vector<std::int64_t> busy;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    std::vector<std::int64_t> by_step;
    for (std::size_t step = 0; step < steps(); ++step) {
      std::int64_t sum = 0;
      const std::vector<Op>& ops = schedule_of(step).ops;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].lane == Lane::compute && !ops[i].is_collective())
          sum += std::max<std::int64_t>(0, ns_[step][rank][i]);
      }
      by_step.push_back(sum);
    }
    busy.push_back(lower_median(std::move(by_step)));
  }
  if (busy.size() < 2) return {};
  const auto slowest = std::ranges::max_element(busy);
  const int rank = static_cast<int>(slowest - busy.begin());
  const std::int64_t most = *slowest;
  busy.erase(slowest);
  const std::int64_t others = lower_median(std::move(busy));
  return {rank, others > 0 ? static_cast<double>(most) / static_cast<double>(others) : 1.0};
}

}  // namespace fsdpbench::clock
