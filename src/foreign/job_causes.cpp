#include "foreign/job_causes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "account/step_view.h"
#include "base/lane.h"
#include "base/student.h"
#include "foreign/launch_order.h"
#include "schedule/op.h"
#include "schedule/policy.h"
#include "trace/record.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;
using account::Stall;
using schedule::Phase;

/// Rows are called uneven where a rank has at least this many times the mean.
constexpr double kUneven = 1.1;

std::vector<std::int64_t> kind_and_size(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[row];
  if (device.collective < 0) return {};
  const CollectiveFacts& facts = rank.collectives[device.collective];
  if (facts.elements_in < 0 && facts.elements_out < 0) return {};  // nobody knows what is like it
  const std::int64_t size = facts.group < 0 ? -1 : rank.groups[facts.group].size;
  return {static_cast<std::int64_t>(facts.kind), facts.elements_in, facts.elements_out,
          static_cast<std::int64_t>(bytes_of_dtype(facts.dtype)), size};
}

/// Whose turn it is on a lane: collectives for different things are different lanes, whatever their streams are.
Lane lane_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters: return Lane::all_gather;
    case Purpose::gradients: return Lane::reduce_scatter;
    case Purpose::activations:
    case Purpose::experts: return Lane::tensor;
    case Purpose::replicas:
    case Purpose::scalars:
    case Purpose::pipeline:
    case Purpose::unknown: return Lane::all_reduce;
  }
  return Lane::all_reduce;
}

schedule::OpKind op_kind_of(Purpose purpose) {
  using schedule::OpKind;
  switch (purpose) {
    case Purpose::parameters: return OpKind::all_gather;
    case Purpose::gradients: return OpKind::reduce_scatter;
    case Purpose::activations: return OpKind::tensor_all_reduce;
    case Purpose::experts: return OpKind::expert_dispatch;
    case Purpose::replicas:
    case Purpose::scalars:
    case Purpose::pipeline:
    case Purpose::unknown: return OpKind::all_reduce;
  }
  return OpKind::all_reduce;
}

/// One rank's step as ops with edges. A trace has neither waits nor reasons: they are inferred from what ended when.
class RowStep : public account::StepFacts {
 public:
  RowStep(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched, const JobTypes& types,
          int rank, std::size_t step)
      : job_(job),
        rank_(job.ranks[rank]),
        found_(found.ranks[rank]),
        matched_(matched),
        types_(types),
        place_(rank),
        slack_(types.launch_lag_ns(static_cast<std::size_t>(rank))),
        step_(found_.cut.steps[step]),
        in_order_(found_.uses[step]),
        computation_(intervals_of(rank_, step_).computation),
        computes_on_host_(rank_.computes_on_host() && !computation_.empty()) {
    for (const CollectiveUse& use : found_.uses[step]) uses_[use.row] = &use;
    first_launch_ = launch_at(step_.device.front());
    if (found.schedule) {
      prefetches_backward_ = schedule::prefetches_backward(found.schedule->config.fsdp);
      follows_compute_ = found.schedule->config.fsdp.gathers_follow_compute;
    }
    find_order();
    for (std::size_t i = 0; i < rows_.size(); ++i) add_op(static_cast<int>(i), found.table);
  }

  /// Once; refers to this.
  account::StepView view() {
    const trace::StepWindow window{step_.window.begin, step_.window.end, next_launched_ns()};
    return {ops_, records_, window, std::move(edges_)};
  }

  std::int32_t row_at(int i) const { return rows_[i]; }
  /// The op of a row; -1: it does not run in this step.
  int op_of(std::int32_t row) const {
    const auto at = std::ranges::find(rows_, row);
    return at == rows_.end() ? -1 : static_cast<int>(at - rows_.begin());
  }

  /// The last op that the host had waited for before it launched op i; all of them for i = the number of ops, when
  /// `done_ns` tells when that was.
  account::PathStep::Release released_before(int i, std::int64_t done_ns) const {
    const bool at_end = i == static_cast<int>(rows_.size());
    if (!at_end && device(row_at(i)).launch < 0 && !computes_on_host_) return {};
    const std::int64_t launched = at_end ? done_ns : launch_at(row_at(i));
    const auto end_of = [&](int other) { return device(row_at(other)).end_ns; };
    const auto ended_by = [&](std::int64_t ns, bool computation) {
      auto at = std::ranges::upper_bound(by_end_, ns, {}, end_of);
      while (at != by_end_.begin()) {
        const int other = *--at;
        if (other != i && (!computation || device(row_at(other)).kind != Activity::collective)) return other;
      }
      return -1;
    };
    if (computes_on_host_) {
      const int before = ended_by(launched, !at_end);
      return {before, before < 0 ? 0 : end_of(before)};
    }
    constexpr std::int64_t kRounding = 1000;  // profilers write microseconds
    const auto wait_end = [&](std::int32_t wait) { return rank_.host[wait].end_ns; };
    for (auto at = std::ranges::upper_bound(found_.cut.waits, launched, {}, wait_end);
         at != found_.cut.waits.begin() && wait_end(*(at - 1)) > step_.window.begin; --at) {
      const HostRow& wait = rank_.host[*(at - 1)];
      const int before = ended_by(wait.end_ns + kRounding, false);
      if (before >= 0 && end_of(before) > wait.begin_ns) return {before, wait.end_ns};  // else it did not wait
    }
    return {};
  }
  bool computes_on_host() const { return computes_on_host_; }

  std::vector<Stall> find() {
    const account::StepView view = this->view();
    const std::pair<Cause, IntervalSet> of_host[] = {{Cause::data_loading, clip(found_.cut.loads, step_.window)},
                                                     {Cause::host_update, clip(found_.cut.updates, step_.window)}};
    std::vector<Stall> stalls;
    std::map<int, std::int64_t> of_rows;  // by op, what of the wait for a late rank is for its rows
    for (Stall stall : account::find_stalls(view, *this)) {
      if (stall.cause == Cause::straggler && stall.op >= 0) {
        const auto left = of_rows.try_emplace(stall.op, late_by_rows_ns(stall.op, stall.late_rank)).first;
        const std::int64_t ns = std::min(left->second, stall.time.end - stall.time.begin);
        if (ns > 0) {
          left->second -= ns;
          const std::int64_t from = stall.time.end - ns;
          stalls.push_back({{from, stall.time.end}, Cause::expert_imbalance, row_at(stall.op), -1});
          stall.time.end = from;
          if (stall.time.begin == from) continue;
        }
      }
      if (stall.op >= 0) stall.op = rows_[stall.op];
      // Without computation nothing tells what should have run meanwhile, but who came last is seen all the same.
      if (computation_.empty() && stall.cause != Cause::straggler) stall.cause = Cause::unknown;
      // Where the host computes itself, what it does between its ops is its own.
      if (computes_on_host_ && stall.cause == Cause::unknown) stall.cause = Cause::host_bound;
      IntervalSet left{stall.time};
      // The host, or nobody knows.
      if (stall.cause == Cause::host_bound || stall.cause == Cause::late_prefetch || stall.cause == Cause::unknown) {
        for (const auto& [cause, times] : of_host) {
          for (const Interval& part : intersect(left, times)) stalls.push_back({part, cause, stall.op, -1});
          left = subtract(left, times);
        }
      }
      for (const Interval& part : left) stalls.push_back({part, stall.cause, stall.op, stall.late_rank});
    }
    std::ranges::sort(stalls, {}, [](const Stall& stall) { return stall.time.begin; });
    return stalls;
  }

  int last_to_arrive(int i) const override { return matched_.last_arrival(place_, row_at(i)).late_rank; }

  Excess excess(int i) const override {
    if (const std::int64_t more = of_more_rows_ns(i); more > 0) return {more, Cause::expert_imbalance, -1};
    const std::int64_t usual = types_.usual_transfer_ns(rank_, row_at(i)), took = transfer_ns(i);
    if (usual <= 0 || took * 4 <= usual * 5) return {};
    return {took - usual, Cause::slow_transfer, -1};
  }

  bool mostly_latency(int i) const override { return types_.mostly_latency(rank_, row_at(i), transfer_ns(i)); }
  bool serialised(int i) const override { return found_.serialised.contains(row_at(i)); }
  std::int64_t slowed_by_sharing(int) const override { return 0; }  // nobody knows what it takes alone
  std::int64_t issued_until(int i) const override { return records_[i].issued_ns; }

  Cause why_issued_late(int i) const override {
    const std::int32_t row = row_at(i);
    if (device(row).launch < 0) return Cause::host_bound;
    const std::int64_t launched = launch_at(row);
    if (const auto blocked = blocked_before(launched)) return of_wait(*blocked);
    if (launched <= first_launch_) return Cause::host_bound;  // nothing could be launched before the step began
    if (host_waited_for(i) >= 0) return Cause::host_bound;    // it went on as soon as it could
    const bool gathers = ops_[i].kind == schedule::OpKind::all_gather;
    const bool behind = !computes_on_host_ && host_behind(launched);
    return !gathers || behind ? Cause::host_bound : Cause::late_prefetch;
  }

  /// A host that computes itself is blocked by the collectives of its loop, which sums its tokens or its loss over all
  /// ranks: the one that ended last before it launched this one, if it only copied in between, and for less time than
  /// it was blocked.
  int host_waited_for(int i) const override {
    if (!computes_on_host_ || device(row_at(i)).kind != Activity::collective) return -1;
    const std::int64_t launched = launch_at(row_at(i));
    const auto end_of = [&](int other) { return device(row_at(other)).end_ns; };
    for (auto at = std::ranges::upper_bound(by_end_, launched, {}, end_of); at != by_end_.begin(); --at) {
      const DeviceRow& before = device(row_at(*(at - 1)));
      if (before.kind == Activity::computation) return -1;
      if (*(at - 1) == i || before.kind != Activity::collective) continue;
      const Purpose purpose = purpose_of(*(at - 1));
      const bool of_loop = purpose != Purpose::parameters && purpose != Purpose::gradients;
      return of_loop && launched - before.end_ns <= before.end_ns - before.begin_ns ? *(at - 1) : -1;
    }
    return -1;
  }

  bool at_boundary(int i, bool) const override {
    const schedule::Op& op = ops_[i];
    if (computation_.empty()) return true;
    const DeviceRow& row = device(row_at(i));
    if (op.phase == Phase::forward && row.begin_ns < computation_.front().begin) return true;
    return row.end_ns >= computation_.back().end ||
           (op.kind != schedule::OpKind::all_gather && nothing_follows(row_at(i)));
  }

  bool prefetches_backward() const override { return prefetches_backward_; }

 private:
  const DeviceRow& device(std::int32_t row) const { return rank_.device[row]; }
  std::int64_t launch_at(std::int32_t row) const { return found_.cut.launched[row]; }
  std::int64_t transfer_ns(int i) const {
    return device(row_at(i)).end_ns - matched_.last_arrival(place_, row_at(i)).at_ns;
  }

  /// Time that an exchange takes longer because this rank has more of its rows than the mean: in proportion to them.
  std::int64_t of_more_rows_ns(int i) const {
    const MatchedCollective* one = exchange(row_at(i));
    if (one == nullptr) return 0;
    double ratio = 1;
    for (const bool receives : {true, false}) {
      const std::vector<double> rows = exchanged_rows(job_, *one, receives);
      for (std::size_t p = 0; p < rows.size(); ++p) {
        if (one->parts[p].rank == place_) ratio = std::max(ratio, rows[p]);
      }
    }
    if (ratio < kUneven) return 0;
    return static_cast<std::int64_t>(static_cast<double>(transfer_ns(i)) * (1 - 1 / ratio));
  }

  /// So much of what exchange i waits for rank `late` is for the rows that came to it in the exchange before: by so
  /// much it computed longer than this rank since then. 0 where fewer came to it than kUneven of the mean.
  std::int64_t late_by_rows_ns(int i, int late) const {
    const MatchedCollective* here = exchange(row_at(i));
    const auto use = std::ranges::find(in_order_, row_at(i), &CollectiveUse::row);
    if (here == nullptr || late < 0 || use == in_order_.end()) return 0;
    auto before = use;
    while (before != in_order_.begin() && (before == use || before->purpose != Purpose::experts)) --before;
    if (before == use || before->purpose != Purpose::experts) return 0;
    const MatchedCollective* gave = exchange(before->row);
    if (gave == nullptr) return 0;
    const std::vector<double> rows = exchanged_rows(job_, *gave, true);
    const auto part_of = [](const MatchedCollective& one, int rank) {
      return static_cast<std::size_t>(std::ranges::find(one.parts, rank, &MatchedCollective::Part::rank) -
                                      one.parts.begin());
    };
    const std::size_t then = part_of(*gave, late), now = part_of(*here, late);
    if (rows.empty() || then == gave->parts.size() || now == here->parts.size()) return 0;
    if (rows[then] < kUneven) return 0;
    return std::max<std::int64_t>(0, computed_ns(late, gave->parts[then].row, here->parts[now].row) -
                                         computed_ns(place_, before->row, row_at(i)));
  }

  /// The exchange of rows that `row` is a part of; null: it is none, or nothing tells.
  const MatchedCollective* exchange(std::int32_t row) const {
    const auto use = uses_.find(row);
    if (use == uses_.end() || use->second->purpose != Purpose::experts) return nullptr;
    const int one = matched_.of_row(place_, row);
    return one < 0 ? nullptr : &matched_.all()[one];
  }

  /// Computation of a rank between two of its collectives.
  std::int64_t computed_ns(int place, std::int32_t after, std::int32_t before) const {
    const std::vector<DeviceRow>& rows = job_.ranks[place].device;
    const std::int64_t begin = rows[after].end_ns;
    const std::int64_t end = rows[before].begin_ns;
    IntervalSet computing;
    for (auto at = std::ranges::lower_bound(rows, begin, {}, &DeviceRow::begin_ns);
         at != rows.end() && at->begin_ns < end; ++at) {
      if (at->kind == Activity::computation) computing.push_back({at->begin_ns, std::min(at->end_ns, end)});
    }
    return length(unite(std::move(computing)));
  }

  /// Until when the host kept the device waiting after the step's last row: until it had launched what runs next. The
  /// end of the step where that began right after its launch, and where nothing follows in the trace.
  std::int64_t next_launched_ns() const {
    const auto next = std::ranges::lower_bound(rank_.device, step_.window.end, {}, &DeviceRow::begin_ns);
    if (next == rank_.device.end() || computes_on_host_) return step_.window.end;
    if (next->launch < 0) return step_.window.begin;  // nothing says that it was late
    const std::int64_t launched = rank_.host[next->launch].end_ns;
    if (next->begin_ns - launched <= slack_) return step_.window.end;
    return std::clamp(launched, step_.window.begin, step_.window.end);
  }

  /// Ops in the order of their launches, and what ended when.
  void find_order() {
    rows_ = step_.running;
    std::ranges::stable_sort(rows_, {}, [&](std::int32_t row) { return launch_at(row); });
    ops_.resize(rows_.size());
    records_.resize(rows_.size());
    for (std::vector<int>* edge : {&edges_.lane_before, &edges_.communicator_before, &edges_.host_before}) {
      edge->assign(rows_.size(), -1);
    }
    edges_.recorders.resize(rows_.size());
    std::vector<int> by_begin;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      by_begin.push_back(static_cast<int>(i));
      if (device(rows_[i]).kind == Activity::collective) collectives_.push_back(static_cast<int>(i));
    }
    const auto begin_of = [&](int i) { return device(row_at(i)).begin_ns; };
    std::ranges::stable_sort(by_begin, {}, begin_of);
    std::ranges::stable_sort(collectives_, {}, begin_of);
    for (int i : collectives_) longest_ = std::max(longest_, device(row_at(i)).end_ns - begin_of(i));
    std::map<std::int32_t, int> last;  // by stream
    for (int i : by_begin) {
      const DeviceRow& row = device(row_at(i));
      if (row.kind != Activity::collective) {
        if (const auto before = last.find(row.stream); before != last.end()) edges_.lane_before[i] = before->second;
      }
      last[row.stream] = i;
    }
    by_end_ = by_begin;
    std::ranges::stable_sort(by_end_, {}, [&](int i) { return device(row_at(i)).end_ns; });
  }

  void add_op(int i, const UnitTable& table) {
    const auto at = static_cast<std::size_t>(i);
    const DeviceRow& row = device(rows_[at]);
    schedule::Op& op = ops_[at];
    trace::Record& record = records_[at];
    record.op = i;
    record.begin_ns = std::clamp(row.begin_ns, step_.window.begin, step_.window.end);
    record.end_ns = std::clamp(row.end_ns, step_.window.begin, step_.window.end);
    std::int64_t free_since = step_.window.begin;
    if (row.kind == Activity::collective) {
      const auto use = uses_.find(rows_[at]);
      const Purpose purpose = use == uses_.end() ? Purpose::unknown : use->second->purpose;
      op.kind = op_kind_of(purpose);
      op.lane = lane_of(purpose);
      op.work = schedule::Collective{};
      op.phase = use == uses_.end() ? Phase::forward : use->second->phase;
      op.micro = use == uses_.end() ? 0 : use->second->micro;
      op.unit = use == uses_.end() || use->second->unit < 0 ? -1 : plan_unit(table, use->second->unit);
      op.prefetch = purpose == Purpose::parameters && !launched_on_demand(rows_[at]);
      const auto arrival = matched_.last_arrival(place_, rows_[at]);
      // Ranks that come within a hundredth of a transfer of each other do not wait for each other.
      if (arrival.late_rank >= 0 && (arrival.at_ns - row.begin_ns) * 50 > row.end_ns - row.begin_ns) {
        record.peers_arrived_ns = arrival.at_ns;
      }
      if (const int other = collective_before(i); other >= 0) {
        free_since = device(row_at(other)).end_ns;
        (lane_of(purpose_of(other)) == op.lane ? edges_.lane_before : edges_.communicator_before)[at] = other;
      }
      wait_for_event(i, free_since);
    } else {
      op.lane = row.stream == found_.compute_stream ? Lane::compute : Lane::copy;
      op.kind = row.kind == Activity::computation ? schedule::OpKind::forward : schedule::OpKind::copy_in;
      const int before = edges_.lane_before[at];
      if (before >= 0) free_since = device(row_at(before)).end_ns;
      wait_for_last(i, free_since);
    }
    // Nothing says that a row whose launch is not known was late. A launch may take a while, and only then can
    // its row begin; what begins within so much of it was launched late, not held back by the device.
    // Where the host computes itself, nothing is launched: its next op was late for what it waited for.
    const bool host_waits = computes_on_host_ && row.kind != Activity::collective;
    const std::int64_t launched = row.launch < 0 || host_waits ? step_.window.begin : rank_.host[row.launch].end_ns;
    const bool late = row.launch >= 0 && launched > free_since && row.begin_ns - launched <= slack_;
    record.issued_ns = late ? record.begin_ns : std::clamp(launched, step_.window.begin, record.begin_ns);
  }

  Purpose purpose_of(int i) const {
    const auto use = uses_.find(row_at(i));
    return use == uses_.end() ? Purpose::unknown : use->second->purpose;
  }

  void wait_for(int i, int before, schedule::WaitReason reason) {
    const auto at = static_cast<std::size_t>(i);
    ops_[at].waits.push_back({schedule::kNoEvent, reason});
    edges_.recorders[at].push_back(before);
  }

  /// A row that computes, or copies, waited for what ended last on another stream since its own was free.
  void wait_for_last(int i, std::int64_t free_since) {
    constexpr std::int64_t kRounding = 1000;  // profilers write microseconds
    const DeviceRow& own = device(row_at(i));
    const auto end_of = [&](int other) { return device(row_at(other)).end_ns; };
    for (auto at = std::ranges::upper_bound(by_end_, own.begin_ns + kRounding, {}, end_of);
         at != by_end_.begin() && end_of(*(at - 1)) > free_since; --at) {
      const DeviceRow& other = device(row_at(*(at - 1)));
      if (*(at - 1) == i || other.stream == own.stream || other.begin_ns >= own.begin_ns) continue;
      wait_for(i, *(at - 1), schedule::WaitReason::data);
      return;
    }
  }

  /// A collective that was launched early, with its stream free, waited for an event: for its data, what ended last.
  /// Parameters depend on no computation, so theirs is one after which there is memory to gather them, or after which
  /// the program lets them be gathered.
  void wait_for_event(int i, std::int64_t free_since) {
    const std::int64_t begin = device(row_at(i)).begin_ns;
    const auto end_of = [&](int other) { return device(row_at(other)).end_ns; };
    for (auto at = std::ranges::upper_bound(by_end_, begin + 1000, {}, end_of);
         at != by_end_.begin() && end_of(*(at - 1)) > std::max(free_since, begin - slack_); --at) {
      const schedule::Op& op = ops_[i];
      const bool gathers = op.kind == schedule::OpKind::all_gather;
      const DeviceRow& other = device(row_at(*(at - 1)));
      if (*(at - 1) == i || other.begin_ns >= begin || (gathers && other.kind != Activity::computation)) continue;
      const bool limited = op.phase == Phase::backward || follows_compute_;
      wait_for(i, *(at - 1),
               !gathers  ? schedule::WaitReason::data
               : limited ? schedule::WaitReason::reuse
                         : schedule::WaitReason::limit);
      return;
    }
  }

  /// The collective that ended last before collective i began, on its stream or its communicator; -1: none.
  int collective_before(int i) const {
    const DeviceRow& own = device(row_at(i));
    int found = -1;
    const auto begin_of = [&](int other) { return device(row_at(other)).begin_ns; };
    for (auto at = std::ranges::lower_bound(collectives_, own.begin_ns, {}, begin_of); at != collectives_.begin();) {
      const DeviceRow& other = device(row_at(*--at));
      if (*at == i || other.end_ns > own.begin_ns + slack_) continue;
      if (other.stream != own.stream && !same_group(other, own)) continue;
      if (found >= 0 && other.end_ns <= device(row_at(found)).end_ns) {
        if (other.begin_ns + longest_ < device(row_at(found)).end_ns) break;
        continue;
      }
      found = *at;
    }
    return found;
  }

  /// No more collectives are launched after this one but reductions, of its own unit and one more: the last of
  /// backward.
  bool nothing_follows(std::int32_t row) const {
    const auto at = std::ranges::find(step_.device, row);
    if (at == step_.device.end()) return false;
    const auto& own = uses_.find(row);
    std::set<int> later;  // units that are reduced after it
    for (auto next = at + 1; next != step_.device.end(); ++next) {
      const auto use = uses_.find(*next);
      if (use != uses_.end()) {
        if (use->second->purpose == Purpose::parameters && use->second->phase != Phase::optimizer) return false;
        if (own != uses_.end() && use->second->unit != own->second->unit &&
            use->second->purpose == Purpose::gradients && device(*next).begin_ns > device(row).end_ns) {
          later.insert(use->second->unit);
          if (later.size() > 1) return false;  // the outermost two units', as in a run of this program
        }
      }
    }
    return true;
  }

  /// Whether all that was launched after the gather waited for it: of what is gathered ahead, other units compute
  /// meanwhile.
  bool launched_on_demand(std::int32_t row) const {
    const auto at = std::ranges::find(step_.device, row);
    for (auto next = at; next != step_.device.end(); ++next) {
      const DeviceRow& d = device(*next);
      if (d.kind == Activity::computation && d.stream == found_.compute_stream) return d.begin_ns >= device(row).end_ns;
    }
    return false;
  }

  bool same_group(const DeviceRow& a, const DeviceRow& b) const {
    if (a.collective < 0 || b.collective < 0) return false;
    const std::int32_t group = rank_.collectives[a.collective].group;
    return group >= 0 && group == rank_.collectives[b.collective].group;
  }

  /// The host's wait that ended just before `launched`: nothing else was launched between.
  std::optional<std::int32_t> blocked_before(std::int64_t launched) const {
    const auto end_of = [&](std::int32_t i) { return rank_.host[i].end_ns; };
    auto at = std::ranges::upper_bound(found_.cut.waits, launched, {}, end_of);
    for (; at != found_.cut.waits.begin(); --at) {
      const HostRow& wait = rank_.host[*(at - 1)];
      if (wait.end_ns <= first_launch_ || launched - wait.end_ns > slack_) break;
      if (wait.end_ns - wait.begin_ns > 1000) return *(at - 1);
    }
    return std::nullopt;
  }

  Cause of_wait(std::int32_t row) const {
    const HostRow& wait = rank_.host[row];
    return rank_.names[wait.name].find("Event") != std::string::npos ? Cause::all_gather_limit : Cause::host_sync;
  }

  /// Whether computation before `launched` was launched late, too: the device had nothing queued.
  bool host_behind(std::int64_t launched) const {
    int seen = 0, late = 0;
    const std::int64_t slack = slack_;
    for (auto at = step_.running.rbegin(); at != step_.running.rend() && seen < 8; ++at) {
      const DeviceRow& row = device(*at);
      if (row.kind != Activity::computation || row.begin_ns >= launched || row.launch < 0) continue;
      ++seen;
      late += row.begin_ns - launch_at(*at) <= slack;
    }
    return seen > 0 && late * 2 > seen;
  }

  const JobTrace& job_;
  const RankRows& rank_;
  const RecognisedRank& found_;
  const MatchedCollectives& matched_;
  const JobTypes& types_;
  int place_;
  std::int64_t slack_;
  const JobStep& step_;
  const std::vector<CollectiveUse>& in_order_;
  IntervalSet computation_;
  bool computes_on_host_;
  std::map<std::int32_t, const CollectiveUse*> uses_;
  bool prefetches_backward_ = true, follows_compute_ = false;
  std::int64_t first_launch_ = 0, longest_ = 0;
  std::vector<std::int32_t> rows_;         // by op, of the device
  std::vector<int> collectives_, by_end_;  // ops, as they begin; as they end
  std::vector<schedule::Op> ops_;
  std::vector<trace::Record> records_;
  account::StepEdges edges_;
};

/// One step of all ranks of a trace; rows of a rank become a view when the path gets there.
class PathOfRows : public account::PathStep {
 public:
  PathOfRows(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched, const JobTypes& types,
             std::size_t step)
      : job_(job), found_(found), matched_(matched), types_(types), step_(step) {}

  int slowest() const override {
    std::size_t longest = 0;
    for (std::size_t r = 1; r < job_.ranks.size(); ++r) {
      if (length_of(r) > length_of(longest)) longest = r;
    }
    return static_cast<int>(longest);
  }
  const account::StepView& view(int place) const override { return part(place).view; }
  std::int64_t offset_ns(int place) const override { return matched_.offset_ns(place); }

  At last_to_arrive(const At& at) const override {
    const std::int32_t row = part(at.place).rows.row_at(at.op);
    const int late = matched_.last_arrival(at.place, row).late_rank, one = matched_.of_row(at.place, row);
    if (late < 0 || one < 0) return at;
    for (const MatchedCollective::Part& of : matched_.all()[one].parts) {
      if (of.rank != late) continue;
      const int op = part(late).rows.op_of(of.row);
      return op < 0 ? At{} : At{late, op};  // it runs in another of that rank's steps
    }
    return {};
  }

  std::int64_t issued_until(const At& at) const override { return part(at.place).rows.issued_until(at.op); }
  Release released(const At& at) const override {
    const Part& of = part(at.place);
    return of.rows.released_before(at.op, of.view.window().issued_ns);
  }
  account::PathKind gap(const At& at) const override {
    const Part& of = part(at.place);
    const bool hosts = of.rows.computes_on_host() && !of.view.op(at.op).is_collective();
    return hosts ? account::PathKind::host : account::PathKind::unknown;
  }

  std::int32_t row(const account::PathPart& of) const { return part(of.place).rows.row_at(of.op); }

 private:
  struct Part {
    Part(const PathOfRows& of, int place)
        : rows(of.job_, of.found_, of.matched_, of.types_, place, of.step_), view(rows.view()) {}
    RowStep rows;
    account::StepView view;
  };
  const Part& part(int place) const {
    std::unique_ptr<Part>& known = parts_[place];
    if (!known) known = std::make_unique<Part>(*this, place);
    return *known;
  }
  std::int64_t length_of(std::size_t r) const {
    const Interval& window = found_.ranks[r].cut.steps[step_].window;
    return window.end - window.begin;
  }

  const JobTrace& job_;
  const Recognition& found_;
  const MatchedCollectives& matched_;
  const JobTypes& types_;
  std::size_t step_;
  mutable std::map<int, std::unique_ptr<Part>> parts_;
};

}  // namespace

account::StepIntervals intervals_of(const RankRows& rank, const JobStep& step) {
  account::StepRuns runs;
  for (const std::int32_t index : step.running) {
    const DeviceRow& row = rank.device[index];
    const Interval time{std::max(row.begin_ns, step.window.begin), std::min(row.end_ns, step.window.end)};
    (row.kind == Activity::computation  ? runs.computation
     : row.kind == Activity::collective ? runs.communication
                                        : runs.copies)
        .push_back(time);
  }
  return account::intervals_of(step.window, std::move(runs));
}

JobTypes::JobTypes(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched) {
  std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> transfers;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    std::vector<std::int64_t> lags;
    for (std::size_t i = 0; i < rank.device.size(); ++i) {
      const DeviceRow& row = rank.device[i];
      const auto index = static_cast<std::int32_t>(i);
      if (row.launch >= 0) lags.push_back(std::max<std::int64_t>(0, row.begin_ns - launched_ns(rank, index)));
      if (row.collective < 0) continue;
      const auto arrival = matched.last_arrival(static_cast<int>(r), index);
      transfers[kind_and_size(rank, index)].push_back(row.end_ns - arrival.at_ns);
    }
    // A launch takes what the quickest ones take: twice that is not yet late, and clocks are good for microseconds.
    // Where the host is far ahead even the quickest have waited for others.
    constexpr std::int64_t kLongestLaunch = 100'000;
    std::ranges::sort(lags);
    lag_.push_back(5000 + (lags.empty() ? 0 : 2 * std::min(kLongestLaunch, lags[lags.size() / 20])));
  }
  constexpr std::size_t kFewest = 4;
  for (auto& [key, values] : transfers) {
    if (!key.empty() && values.size() >= kFewest) usual_.emplace_back(key, upper_median(std::move(values)));
  }
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    for (const auto& uses : found.ranks[r].uses) {
      for (const CollectiveUse& use : uses) {
        // With what it waited: some rank came last and did not, and clocks that are off make no transfer fast.
        const DeviceRow& row = job.ranks[r].device[use.row];
        best_rate_ = std::max(best_rate_, rate(job.ranks[r], use.row, row.end_ns - row.begin_ns));
      }
    }
  }
}

double JobTypes::rate(const RankRows& rank, std::int32_t row, std::int64_t transfer_ns) {
  const DeviceRow& device = rank.device[row];
  if (device.collective < 0 || transfer_ns <= 0) return 0;
  const CollectiveFacts& facts = rank.collectives[device.collective];
  const double bytes =
      static_cast<double>(std::max(facts.elements_in, facts.elements_out)) * bytes_of_dtype(facts.dtype);
  return bytes / static_cast<double>(transfer_ns);
}

bool JobTypes::mostly_latency(const RankRows& rank, std::int32_t row, std::int64_t transfer_ns) const {
  const double own = rate(rank, row, transfer_ns);
  return own > 0 && own * 2 < best_rate_;
}

std::int64_t JobTypes::usual_transfer_ns(const RankRows& rank, std::int32_t row) const {
  const std::vector<std::int64_t> key = kind_and_size(rank, row);
  const auto at = std::ranges::lower_bound(usual_, key, {}, [](const auto& entry) { return entry.first; });
  return at == usual_.end() || at->first != key ? -1 : at->second;
}

std::vector<Stall> find_job_stalls(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                                   const JobTypes& types, int rank, std::size_t step) {
  return RowStep(job, found, matched, types, rank, step).find();
}

account::CriticalPath find_job_path(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                                    const JobTypes& types, std::size_t step) {
  const PathOfRows rows(job, found, matched, types, step);
  account::CriticalPath path = account::find_critical_path(rows);
  for (account::PathPart& part : path.parts) {
    if (part.op >= 0) part.op = rows.row(part);
  }
  return path;
}

}  // namespace fsdpbench::foreign
