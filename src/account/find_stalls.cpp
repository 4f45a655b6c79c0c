#include "account/find_stalls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "account/step_view.h"
#include "base/clock.h"
#include "base/error.h"
#include "clock/collective_kinds.h"

namespace fsdpbench::account {

using schedule::OpKind;
using schedule::Phase;
using schedule::WaitReason;

namespace {

/// Facts of a step that we recorded.
class RecordFacts : public StepFacts {
 public:
  RecordFacts(const StepRecords& step, const StepView& view, const plan::Groups& groups,
              const std::optional<LinkModel>& link, bool prefetches_backward, int rank, const EvenRows& even_rows)
      : step_(step),
        view_(view),
        groups_(groups),
        link_(link),
        prefetches_backward_(prefetches_backward),
        rank_(rank),
        even_rows_(even_rows) {}

  /// The root's and the first unit's gather at the beginning, and their reductions at the end, have nothing beside
  /// them.
  bool at_boundary(int i, bool last_ops) const override {
    const schedule::Op& op = view_.op(i);
    const bool outermost = op.unit <= 1;
    if (op.kind == OpKind::all_gather) return outermost && op.phase == Phase::forward && op.micro == 0;
    return op.kind == OpKind::gather_norm || (outermost && last_ops);
  }

  /// Time by which one rank's link was busy with collective i for longer than all others.
  Excess excess(int i) const override {
    const auto index = static_cast<std::size_t>(i);
    // Steps before the steady one may have other ops.
    if (view_.op(i).exchanges_rows() && even_rows_.size() == step_.schedule().ops.size()) {
      const trace::Record& r = view_.record(i);
      const std::int64_t took = r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns);
      const auto alone = static_cast<double>(took - slowed_by_sharing(i));
      const std::int64_t beyond = whole_ns(std::max(0.0, alone * (1 - even_rows_[index])));
      if (beyond > 0) return {beyond, Cause::expert_imbalance, -1};
    }
    std::vector<std::pair<std::int64_t, int>> links;  // and their ranks
    for (int place = 0; place < step_.ranks(); ++place) {
      if (!groups_.together(view_.op(i).group(), step_.rank_at(rank_), step_.rank_at(place))) continue;
      links.emplace_back(step_.of(place)[index].link_ns, step_.rank_at(place));
    }
    std::ranges::sort(links);
    const int size = groups_.size(view_.op(i).group());
    if (size < 2 || static_cast<int>(links.size()) < size || links.front().first <= 0) return {};
    const auto [longest, slow] = links.back();
    return {longest - links.at(links.size() - 2).first, Cause::slow_link, slow};
  }

  bool mostly_latency(int i) const override {
    if (!link_) return false;
    const clock::CollectiveMessage message = clock::message_of(view_.op(i), groups_);
    return message.seconds_of_latency(*link_) > message.seconds_of_bytes(*link_);
  }

  bool serialised(int i) const override {
    return view_.op(i).kind == OpKind::reduce_scatter && view_.op(i).lane == Lane::compute;
  }

  /// Nanoseconds that transfer i lost to another one that ran beside it.
  std::int64_t slowed_by_sharing(int i) const override {
    if (!link_) return 0;
    const trace::Record& r = view_.record(i);
    const std::int64_t begin = std::max(r.begin_ns, r.peers_arrived_ns);
    bool beside = false;
    for (int j = 0; j < view_.size() && !beside; ++j) {
      if (j == i || view_.op_class(j) != OpClass::communication) continue;
      const trace::Record& other = view_.record(j);
      beside = std::max(other.begin_ns, other.peers_arrived_ns) < r.end_ns && other.end_ns > begin;
    }
    if (!beside) return 0;
    const clock::CollectiveMessage message = clock::message_of(view_.op(i), groups_);
    const std::int64_t alone = whole_ns((message.seconds_of_bytes(*link_) + message.seconds_of_latency(*link_)) * 1e9);
    return std::max<std::int64_t>(0, r.end_ns - begin - alone);
  }

  /// Last rank to arrive; -1 if it is not one of those in view.
  int last_to_arrive(int i) const override {
    const int place = account::last_to_arrive(step_, groups_, rank_, i);
    return place < 0 ? -1 : step_.rank_at(place);
  }

  /// When the host had issued op i at the latest: it was at the next op, or op i ran.
  std::int64_t issued_until(int i) const override {
    const trace::Record& r = view_.record(i);
    if (i + 1 >= view_.size()) return r.issued_ns;
    return std::max(r.issued_ns, std::min(view_.record(i + 1).issued_ns, r.begin_ns));
  }

  Cause why_issued_late(int i) const override {
    const int host = view_.host_blocked_before(i);
    if (host < 0) return Cause::host_bound;
    // Ops issued after the host was released and before this one took their time too, but the block came first.
    if (view_.record(host).end_ns - view_.record(host).issued_ns <
        view_.record(i).issued_ns - view_.record(host).end_ns) {
      return Cause::host_bound;
    }
    if (view_.op(host).kind == OpKind::host_sync) return Cause::host_sync;
    const int before = view_.op(host).waits.empty() ? -1 : view_.recorded_by(host, 0);
    if (before < 0) return Cause::all_gather_limit;
    // mesh.expert_sync: it waited for the device's counts of rows.
    if (view_.op(before).exchanges_rows()) return Cause::host_sync;
    if (view_.op(before).is_transfer()) return Cause::pcie;
    return view_.op_class(before) == OpClass::host_update ? Cause::host_update : Cause::all_gather_limit;
  }

  bool prefetches_backward() const override { return prefetches_backward_; }

 private:
  const StepRecords& step_;
  const StepView& view_;
  const plan::Groups& groups_;
  const std::optional<LinkModel>& link_;
  bool prefetches_backward_;
  int rank_;
  const EvenRows& even_rows_;
};

/// Something that kept an op from starting, and until when.
struct Constraint {
  std::int64_t until = 0;
  int op = -1;  ///< that was waited for; -1: the host
  Cause cause = Cause::unknown;
  bool liftable = false;  ///< a knob could take it away
};

class Blame {
 public:
  Blame(const StepView& view, const StepFacts& facts) : view_(view), facts_(facts) {}

  std::vector<Stall> run() {
    std::vector<Interval> computation;
    std::vector<int> order;  // by begin: of several streams, it need not be that of issue
    for (int i = 0; i < view_.size(); ++i) {
      if (view_.op_class(i) != OpClass::computation) continue;
      computation.push_back({view_.record(i).begin_ns, view_.record(i).end_ns});
      order.push_back(i);
    }
    const Interval window{view_.window().begin_ns, view_.window().end_ns};
    const auto begin_of = [&](int op) { return view_.record(op).begin_ns; };
    std::ranges::stable_sort(order, {}, begin_of);
    for (const Interval& gap : subtract({window}, unite(computation))) {
      const auto next = std::ranges::lower_bound(order, gap.end, {}, begin_of);
      low_ = gap.begin;
      cursor_ = gap.end;
      if (next != order.end()) {
        last_ops_ = view_.op(*next).phase == Phase::optimizer;
        walk(*next);
      } else {
        last_ops_ = true;
        walk_tail();
      }
      put(low_, Cause::unknown, -1);
    }
    std::ranges::sort(stalls_, {}, [](const Stall& stall) { return stall.time.begin; });
    return std::move(stalls_);
  }

 private:
  /// Puts [from, cursor) down to `cause` and moves the cursor there.
  void put(std::int64_t from, Cause cause, int op, int late_rank = -1) {
    from = std::max(from, low_);
    if (from >= cursor_) return;
    stalls_.push_back({{from, cursor_}, cause, op, late_rank});
    cursor_ = from;
  }

  /// After the last computation: whatever ended last.
  void walk_tail() {
    const int last = view_.last_to_end();
    if (last < 0) return;
    const std::int64_t end = view_.record(last).end_ns;
    put(std::max(end, view_.window().issued_ns), Cause::unknown,
        last);                          // the host took so long to see that all was done
    put(end, Cause::host_bound, last);  // or was still issuing what has no work
    attribute(last);
    walk(last);
  }

  /// Explains the time before op i began, back to the beginning of the stall.
  void walk(int i) {
    for (int guard = 0; guard < view_.size() && cursor_ > low_; ++guard) {
      const std::vector<Constraint> constraints = constraints_of(i);
      const auto binding = std::max_element(constraints.begin(), constraints.end(),
                                            [](const Constraint& a, const Constraint& b) { return a.until < b.until; });
      // All was there, and the lane took so long to start.
      put(std::max(binding->until, had_no_core_from(i)), Cause::cores_busy, i);
      put(binding->until, Cause::unknown, i);
      const int held = i;
      if (binding->op < 0) {
        const int data = host_waited_for_data(i);
        if (data < 0) {
          issued_late(i, binding->cause);
          return;
        }
        put(view_.done(data), Cause::host_bound, i);  // the host took so long to go on
        attribute(data);
        i = data;
        continue;
      }
      i = binding->op;
      if (binding->liftable) put(view_.record(i).begin_ns, binding->cause, held);
      if (waited_for_buffer_) gave_buffer_back(i);
      attribute(i);
    }
  }

  /// Computation waited for reduction i only to have its input back.
  void gave_buffer_back(int i) {
    const trace::Record& r = view_.record(i);
    const std::int64_t waited = std::max<std::int64_t>(0, r.peers_arrived_ns - r.begin_ns);
    put(std::max(cursor_ - waited, r.begin_ns), Cause::straggler, i, facts_.last_to_arrive(i));
    // The root's gradients wait for the first unit's: at the end of a step that is no matter of buffers.
    put(r.begin_ns, facts_.at_boundary(i, last_ops_) ? Cause::step_boundary : Cause::reduce_scatter_buffers, i);
  }

  /// The host came late to op i: it was blocked, or it was slow.
  void issued_late(int i, Cause cause) {
    put(view_.record(i).issued_ns, Cause::host_bound, i);  // issuing it took so long
    put(low_, cause, i);
  }

  /// The cursor is inside op i, or at its end: puts its run down to what it is.
  void attribute(int i) {
    const trace::Record& r = view_.record(i);
    switch (view_.op_class(i)) {
      case OpClass::copy: put(r.begin_ns, cause_of_copy(i), i); return;
      case OpClass::host_update: put(r.begin_ns, Cause::host_update, i); return;
      case OpClass::communication:
        transfer(i);
        put(r.begin_ns, Cause::straggler, i, facts_.last_to_arrive(i));
        return;
      case OpClass::computation:
      case OpClass::none: return;
    }
  }

  /// The transfer of collective i, from the moment its peers had arrived.
  void transfer(int i) {
    const trace::Record& r = view_.record(i);
    const std::int64_t begin = std::max({r.begin_ns, r.peers_arrived_ns, low_});
    // From the constraint that held it longest downwards: each one that could be lifted is charged with what it held
    // the transfer beyond the next one; the first that cannot be lifted ends this.
    std::vector<Constraint> held = start_constraints_of(i);
    if (r.peers_arrived_ns > r.begin_ns) held.push_back({r.peers_arrived_ns, i, Cause::straggler, true});
    held_by_start(i, held);  // later than everything that is known to have held it
    held.push_back({view_.window().begin_ns});
    // The last of equals is charged: one that cannot be lifted stands first and ends this, what is not known before
    // what is.
    std::ranges::stable_sort(held, [](const Constraint& x, const Constraint& y) {
      if (x.until != y.until) return x.until > y.until;
      if (x.liftable != y.liftable) return !x.liftable;
      return x.cause == Cause::unknown && y.cause != Cause::unknown;
    });
    for (std::size_t k = 0; held[k].liftable; ++k) {
      const bool late = held[k].cause == Cause::straggler;
      put(std::max(begin, cursor_ - (held[k].until - held[k + 1].until)), held[k].cause, i,
          late ? facts_.last_to_arrive(held[k].op) : -1);
    }
    const StepFacts::Excess slow = facts_.excess(i);
    put(std::max(begin, cursor_ - slow.ns), slow.cause, i, slow.rank);
    // A slow link's bytes share it, too; more rows are told from what shares their link.
    const std::int64_t of_both = slow.cause == Cause::expert_imbalance ? 0 : slow.ns;
    put(std::max(begin, cursor_ - facts_.slowed_by_sharing(i) + of_both), Cause::contention, i);
    put(begin,
        view_.op(i).exchanges_rows()       ? Cause::expert_exchange
        : view_.op(i).exchanges_parts()    ? Cause::tensor_group
        : facts_.serialised(i)             ? Cause::serialised
        : facts_.at_boundary(i, last_ops_) ? Cause::step_boundary
        : facts_.mostly_latency(i)         ? Cause::inefficient_collective
                                           : Cause::link_bound,
        i);
  }

  Cause cause_of_copy(int i) const { return view_.op(i).is_transfer() ? Cause::pcie : Cause::copy; }

  /// The host issued op i only after it had waited for data, by a copy to its memory or where it computes itself, which
  /// is no fault of the host's; else -1.
  int host_waited_for_data(int i) const {
    if (const int told = facts_.host_waited_for(i); told >= 0) return view_.record(told).end_ns > low_ ? told : -1;
    const int last = view_.host_blocked_before(i);
    if (last < 0 || view_.record(last).end_ns <= low_) return -1;
    // After several such waits in a row, one per unit, the host went on after the copy that came last.
    int latest = -1;
    for (int host = last; host >= 0 && view_.op(host).is_host(); --host) {
      const std::vector<schedule::Wait>& waits = view_.op(host).waits;
      if (waits.empty() || waits.front().reason != WaitReason::data) break;
      const int before = view_.recorded_by(host, 0);
      if (before >= 0 && (latest < 0 || view_.done(before) > view_.done(latest))) latest = before;
    }
    return latest;
  }

  /// Since when op i's lane had lacked nothing but a core.
  std::int64_t had_no_core_from(int i) const { return view_.record(i).begin_ns - view_.record(i).core_wait_ns; }

  /// Delay of op i by its start, cores included.
  void held_by_start(int i, std::vector<Constraint>& result) const {
    if (view_.record(i).core_wait_ns > 0) result.push_back({view_.record(i).begin_ns, i, Cause::cores_busy, true});
    result.push_back({had_no_core_from(i), i, Cause::unknown, true});
  }

  /// Everything that had to be over before op i could begin, as it stands in the schedule.
  std::vector<Constraint> constraints_of(int i) {
    std::vector<Constraint> result;
    const schedule::Op& op = view_.op(i);
    waited_for_buffer_ = false;
    result.push_back({facts_.issued_until(i), -1, facts_.why_issued_late(i)});
    const auto add = [&](int before) {
      if (before >= 0) result.push_back({view_.done(before), before});
    };
    add(view_.lane_before(i));
    if (const int other = behind_on_communicator(i); other >= 0) result.push_back(behind_another_kind(i, other));
    for (std::size_t w = 0; w < op.waits.size(); ++w) {
      const int before = view_.recorded_by(i, w);
      add(before);
      // Waiting for a reduction only to get its buffer back.
      if (before >= 0 && op.waits[w].reason == WaitReason::reuse && op.kind == OpKind::release &&
          op.lane == Lane::compute && op.phase == Phase::backward && view_.op_class(before) == OpClass::communication) {
        waited_for_buffer_ = waited_for_buffer_ || view_.done(before) >= view_.done(i);
      }
    }
    return result;
  }

  /// Why collective i did not start earlier, through the casts and copies that lead to it.
  std::vector<Constraint> start_constraints_of(int i) const {
    std::vector<Constraint> result;
    collect(i, i, result, 0);
    return result;
  }

  void collect(int i, int collective, std::vector<Constraint>& result, int depth) const {
    if (depth > 4) return;
    const schedule::Op& op = view_.op(i);
    const bool gather = view_.op(collective).kind == OpKind::all_gather;
    result.push_back({facts_.issued_until(i), -1, Cause::host_bound, true});
    result.push_back({view_.record(i).issued_ns, -1, facts_.why_issued_late(i), true});
    // A cast or a copy, or an op without work, passes on what held it up.
    const auto through = [&](int before) {
      return !view_.op(before).has_work() ||
             (view_.op_class(before) == OpClass::copy && view_.op(before).lane != Lane::compute);
    };
    const auto pass_through = [&](int before) {
      if (view_.op(before).has_work()) {
        const trace::Record& r = view_.record(before);
        if (r.end_ns > r.begin_ns) result.push_back({r.end_ns, before, cause_of_copy(before), true});
        held_by_start(before, result);
      }
      collect(before, collective, result, depth + 1);
    };
    if (const int before = view_.lane_before(i); before >= 0) {
      if (through(before)) {
        pass_through(before);
      } else if (view_.op_class(before) == OpClass::communication) {
        behind_transfer(before, result);
      } else if (!gather || reads_from(i, before)) {
        result.push_back({view_.done(before), before});  // its data
      } else if (op.lane == Lane::compute) {
        result.push_back({view_.done(before), before, Cause::late_prefetch, true});  // no lane of its own
      }
    }
    if (const int before = behind_on_communicator(i); before >= 0) {
      const Constraint c = behind_another_kind(i, before);
      if (c.liftable) {
        result.push_back(c);
      } else {
        behind_transfer(before, result);
      }
    }
    for (std::size_t w = 0; w < op.waits.size(); ++w) {
      const int before = view_.recorded_by(i, w);
      if (before < 0) continue;
      const WaitReason reason = op.waits[w].reason;
      if (reason == WaitReason::limit && op.is_transfer()) {
        pass_through(before);  // the copy that stands before it in PyTorch's stream
      } else if (reason == WaitReason::limit && view_.op(before).is_transfer()) {
        result.push_back({view_.done(before), before, Cause::pcie, true});
      } else if (reason == WaitReason::limit) {
        const bool after_forward = view_.op(before).kind == OpKind::forward;
        result.push_back(
            {view_.done(before), before, after_forward ? Cause::late_prefetch : Cause::all_gather_limit, true});
      } else if (reason == WaitReason::reuse && gather) {
        result.push_back({view_.done(before), before, Cause::all_gather_limit, true});  // FSDP2's two buffers
      } else if (through(before)) {
        pass_through(before);
      } else {
        result.push_back({view_.done(before), before});  // data
      }
    }
  }

  /// Whether op i reads what op `before` has written.
  bool reads_from(int i, int before) const {
    const schedule::Operands mine = view_.op(i).operands(), theirs = view_.op(before).operands();
    return std::ranges::any_of(
        mine.reads, [&](schedule::BufferId id) { return std::ranges::find(theirs.writes, id) != theirs.writes.end(); });
  }

  /// Behind a transfer on the same link: without a late rank it would have been over that much sooner.
  void behind_transfer(int before, std::vector<Constraint>& result) const {
    const trace::Record& r = view_.record(before);
    const std::int64_t waited = std::max<std::int64_t>(0, r.peers_arrived_ns - r.begin_ns);
    result.push_back({view_.done(before) - waited, before});
    result.push_back({view_.done(before), before, Cause::straggler, true});
  }

  /// Collective before op i on its communicator that is on another lane; -1: none.
  int behind_on_communicator(int i) const {
    const int before = view_.op(i).is_collective() ? view_.communicator_before(i) : -1;
    return before >= 0 && view_.op(before).lane != view_.op(i).lane ? before : -1;
  }

  /// Collective i stood behind `before` on their communicator, though on another lane.
  Constraint behind_another_kind(int i, int before) const {
    const schedule::Op& op = view_.op(i);
    Constraint c{view_.done(before), before, Cause::communicator_serialisation, true};
    if (op.kind == OpKind::all_gather && op.phase == Phase::backward && !op.prefetch) {
      // A prefetch would have stood before it; if one was asked for, the limit has refused it.
      c.cause = facts_.prefetches_backward() ? Cause::all_gather_limit : Cause::late_prefetch;
    } else if (!facts_.mostly_latency(before)) {
      // The one before was busy sending: a communicator of its own would only have shared the same link.
      c.liftable = false;
    }
    return c;
  }

  const StepView& view_;
  const StepFacts& facts_;
  std::vector<Stall> stalls_;

  // The stall being explained.
  std::int64_t low_ = 0;
  std::int64_t cursor_ = 0;
  bool last_ops_ = false;
  bool waited_for_buffer_ = false;
};

}  // namespace

std::vector<Stall> find_stalls(const StepRecords& step, const plan::Groups& groups,
                               const std::optional<LinkModel>& link, bool prefetches_backward, int rank,
                               const EvenRows& even_rows) {
  const StepView view(step, rank);
  return find_stalls(view, RecordFacts(step, view, groups, link, prefetches_backward, rank, even_rows));
}

void check_partition(const std::vector<Stall>& stalls, std::int64_t stalled_ns, const std::string& where) {
  std::int64_t sum = 0, end = std::numeric_limits<std::int64_t>::min();
  bool disjoint = true;
  for (const Stall& s : stalls) {
    sum += s.time.end - s.time.begin;
    disjoint = disjoint && s.time.begin >= end;
    end = s.time.end;
  }
  if (disjoint && sum == stalled_ns) return;
  throw Error(fmt::format("{}: the causes do not partition the time without computation ({} ns of {}); these "
                          "measurements must not be used",
                          where, sum, stalled_ns),
              ExitCode::check_failed);
}

std::vector<Stall> find_stalls(const StepView& view, const StepFacts& facts) { return Blame(view, facts).run(); }

}  // namespace fsdpbench::account
