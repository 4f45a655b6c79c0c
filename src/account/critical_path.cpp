#include "account/critical_path.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "account/step_breakdown.h"
#include "schedule/op.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::account {
namespace {

class PathWalk {
 public:
  explicit PathWalk(const PathStep& step) : step_(step), at_{step.slowest(), -1} {
    const StepView& view = step_.view(at_.place);
    path_.place = at_.place;
    path_.step = {view.window().begin_ns + offset(), view.window().end_ns + offset()};
    cursor_ = path_.step.end;
  }

  CriticalPath run() {
    from_the_end();
    while (at_.op >= 0 && cursor_ > path_.step.begin && seen_.emplace(at_.place, at_.op).second) {
      run_of_op();
      before_op();
    }
    put(path_.step.begin, PathKind::unknown, -1);
    std::ranges::reverse(path_.parts);
    return std::move(path_);
  }

 private:
  const StepView& view() const { return step_.view(at_.place); }
  std::int64_t offset() const { return step_.offset_ns(at_.place); }

  /// Puts what lies between `from`, in the time of the rank, and the cursor.
  void put(std::int64_t from, PathKind kind, int op) {
    from = std::max(from, path_.step.begin);
    if (from >= cursor_) return;
    path_.parts.push_back({at_.place, {from, cursor_}, kind, op});
    cursor_ = from;
  }
  void put_own(std::int64_t from, PathKind kind, int op) { put(from + offset(), kind, op); }

  /// The step ends when the last op is over, and the host has issued all.
  void from_the_end() {
    const int last = view().last_to_end();
    if (last < 0) return;
    const std::int64_t end = view().record(last).end_ns, issued = view().window().issued_ns;
    put_own(std::max(end, issued), PathKind::unknown, -1);
    if (issued > end) {
      back_along_host(view().size());
    } else {
      at_.op = last;
    }
  }

  /// The run of the op, back to its begin; a collective's to that of its last rank.
  void run_of_op() {
    const trace::Record& r = view().record(at_.op);
    switch (view().op_class(at_.op)) {
      case OpClass::computation: return put_own(r.begin_ns, PathKind::kernels, at_.op);
      case OpClass::copy: return put_own(r.begin_ns, PathKind::copies, at_.op);
      case OpClass::host_update: return put_own(r.begin_ns, PathKind::host, at_.op);
      case OpClass::none: return;
      case OpClass::communication: break;
    }
    const std::int64_t arrived = std::clamp(r.peers_arrived_ns, r.begin_ns, r.end_ns);
    put_own(arrived, PathKind::collectives, at_.op);
    if (arrived == r.begin_ns) return;
    const PathStep::At last = step_.last_to_arrive(at_);
    if (last.place < 0) return put_own(r.begin_ns, PathKind::waits, at_.op);
    at_ = last;
    put_own(view().record(at_.op).begin_ns, PathKind::collectives, at_.op);
  }

  /// Goes to what held the op back longest.
  void before_op() {
    const int held = at_.op;
    const schedule::Op& op = view().op(held);
    std::int64_t until = step_.issued_until(at_);
    int binding = -1;
    const auto ask = [&](int before) {
      if (before < 0 || view().done(before) < until) return;
      until = view().done(before);
      binding = before;
    };
    ask(view().lane_before(held));
    if (op.is_collective()) ask(view().communicator_before(held));
    for (std::size_t w = 0; w < op.waits.size(); ++w) ask(view().recorded_by(held, w));
    if (op.has_work()) {
      const trace::Record& r = view().record(held);
      put_own(std::max(until, r.begin_ns - r.core_wait_ns), PathKind::waits, held);
      put_own(until, step_.gap(at_), held);
    }
    if (binding >= 0) {
      at_.op = binding;
    } else {
      back_along_host(held);
    }
  }

  void back_along_host(int issued) {
    const PathStep::Release release = step_.released({at_.place, issued});
    put_own(release.op < 0 ? view().window().begin_ns : release.at_ns, PathKind::host,
            issued < view().size() ? issued : -1);
    if (release.op >= 0) put_own(view().done(release.op), PathKind::host, release.op);
    at_.op = release.op;
  }

  const PathStep& step_;
  CriticalPath path_;
  PathStep::At at_;
  std::int64_t cursor_ = 0;
  std::set<std::pair<int, int>> seen_;  // an op is on the path once, so it ends
};

class RecordedStep : public PathStep {
 public:
  RecordedStep(const StepRecords& step, const plan::Groups& groups) : step_(step), groups_(groups) {}

  int slowest() const override { return step_.slowest_rank(); }
  const StepView& view(int place) const override {
    const auto known = views_.find(place);
    return known != views_.end() ? known->second : views_.try_emplace(place, step_, place).first->second;
  }
  std::int64_t offset_ns(int) const override { return 0; }

  At last_to_arrive(const At& at) const override {
    return {account::last_to_arrive(step_, groups_, at.place, at.op), at.op};
  }

  std::int64_t issued_until(const At& at) const override {
    const StepView& own = view(at.place);
    const trace::Record& r = own.record(at.op);
    if (!own.op(at.op).has_work()) return r.issued_ns;
    const std::int64_t next = at.op + 1 < own.size() ? own.record(at.op + 1).issued_ns : own.window().issued_ns;
    return std::max(r.issued_ns, std::min(next, r.begin_ns));
  }

  Release released(const At& at) const override {
    const StepView& own = view(at.place);
    int host = -1;
    if (at.op < own.size()) {
      host = own.host_blocked_before(at.op);
    } else {
      for (host = own.size() - 1; host >= 0 && !own.op(host).is_host();) --host;
    }
    for (; host >= 0; host = own.host_blocked_before(host)) {
      const trace::Record& r = own.record(host);
      if (r.end_ns <= r.issued_ns) continue;  // what it wanted was there
      Release release{-1, r.end_ns};
      for (std::size_t w = 0; w < own.op(host).waits.size(); ++w) {
        const int before = own.recorded_by(host, w);
        if (before >= 0 && (release.op < 0 || own.done(before) > own.done(release.op))) release.op = before;
      }
      if (release.op >= 0 && own.done(release.op) > r.issued_ns) return release;
    }
    return {};
  }

  PathKind gap(const At&) const override { return PathKind::unknown; }

 private:
  const StepRecords& step_;
  const plan::Groups& groups_;
  mutable std::map<int, StepView> views_;
};

}  // namespace

std::string_view to_string(PathKind kind) {
  static constexpr EnumNames<PathKind> kKinds{"kernels", "collectives", "copies", "host", "waits", "unknown"};
  return kKinds[kind];
}

CriticalPath find_critical_path(const PathStep& step) { return PathWalk(step).run(); }

CriticalPath find_critical_path(const StepRecords& step, const plan::Groups& groups) {
  return find_critical_path(RecordedStep(step, groups));
}

std::int64_t PathOfRank::all() const {
  std::int64_t sum = 0;
  for (const PathKind kind : kEnumerators<PathKind>) sum += ns[kind];
  return sum;
}

void add_path(const CriticalPath& path, std::vector<PathOfRank>& sums) {
  for (const PathPart& part : path.parts) {
    auto of_rank = std::ranges::find(sums, part.place, &PathOfRank::place);
    if (of_rank == sums.end()) {
      sums.emplace_back().place = part.place;
      of_rank = sums.end() - 1;
    }
    of_rank->ns[part.kind] += part.time.end - part.time.begin;
  }
  std::ranges::stable_sort(sums, std::greater<>(), [](const PathOfRank& sum) { return sum.all(); });
}
namespace {

double us_of_path(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

PathReport report_path(const std::vector<PathOfRank>& sums, std::size_t steps, const CriticalPath& median,
                       std::int64_t step, const std::function<int(int)>& rank_at,
                       const std::function<std::string(int, int)>& name_of) {
  PathReport report;
  report.step = step;
  std::int64_t all = 0;
  for (const PathOfRank& sum : sums) all += sum.all();
  const auto mean = [&](std::int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(steps); };
  for (const PathOfRank& sum : sums) {
    PathRank& one = report.ranks.emplace_back();
    one.rank = rank_at(sum.place);
    one.ms = mean(sum.all());
    one.share_pct = 100 * static_cast<double>(sum.all()) / static_cast<double>(all);
    for (const PathKind kind : kEnumerators<PathKind>) one.kinds_ms[kind] = mean(sum.ns[kind]);
  }
  std::int64_t length = 0, longest = 0;  // of the last segment, and of its longest part that has a name
  for (const PathPart& part : median.parts) {
    const int rank = rank_at(part.place);
    if (report.segments.empty() || report.segments.back().rank != rank || report.segments.back().kind != part.kind) {
      report.segments.push_back({rank, part.kind, us_of_path(part.time.begin - median.step.begin), 0, 0, {}});
      length = longest = 0;
    }
    PathSegment& segment = report.segments.back();
    const std::int64_t ns = part.time.end - part.time.begin;
    length += ns;
    segment.us = us_of_path(length);
    ++segment.parts;
    if (ns <= longest || part.op < 0) continue;
    longest = ns;
    segment.row = name_of(part.place, part.op);
  }
  return report;
}

PathReport report_path(const RunView& run, const plan::Plan& plan) {
  const std::size_t median = middle_steps(run).median;
  std::vector<PathOfRank> sums;
  CriticalPath of_median;
  for (std::size_t s = 0; s < run.steps().size(); ++s) {
    CriticalPath path = find_critical_path(run.steps()[s], plan.groups);
    add_path(path, sums);
    if (s == median) of_median = std::move(path);
  }
  const StepRecords& step = run.steps()[median];
  return report_path(
      sums, run.steps().size(), of_median, step.number(), [&](int place) { return step.rank_at(place); },
      [&](int, int op) { return schedule::op_name(plan, step.schedule().ops[op]); });
}

}  // namespace fsdpbench::account
