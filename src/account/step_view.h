#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "account/run_view.h"
#include "account/step_breakdown.h"
#include "plan/plan.h"
#include "schedule/op.h"
#include "trace/record.h"

namespace fsdpbench::account {

/// Identity of an op in the schedules of different steps, where its index differs: what it does to what,
/// and how many equal ones came before it in its step.
struct OpKey {
  schedule::OpKind kind = schedule::OpKind::forward;
  schedule::Group group = schedule::Group::none;
  schedule::Phase phase = schedule::Phase::forward;
  int unit = -1;
  int module = -1;
  int micro = 0;
  bool prefetch = false;
  int occurrence = 0;
  auto operator<=>(const OpKey&) const = default;
};

/// The key of every op of a schedule, by index; no two are equal.
std::vector<OpKey> op_keys(const schedule::Schedule& schedule);

/// Edges that a list of ops does not show: who ran before whom, who recorded what; by op, -1 is none.
struct StepEdges {
  std::vector<int> lane_before, communicator_before, host_before;
  std::vector<std::vector<int>> recorders;  ///< by wait
};

/// One rank's step as an explanation sees it: its ops, when each ran, and what had to be over before. Ops and edges are
/// those of a schedule, or were inferred from rows of another program's trace (foreign/job_causes.h).
class StepView {
 public:
  StepView(const StepRecords& step, int rank);
  /// `ops` and `records` must live on.
  StepView(std::span<const schedule::Op> ops, std::span<const trace::Record> records, const trace::StepWindow& window,
           StepEdges edges);

  const schedule::Op& op(int i) const { return ops_[i]; }
  const trace::Record& record(int i) const { return records_[i]; }
  OpClass op_class(int i) const { return classes_[i]; }
  int size() const { return static_cast<int>(ops_.size()); }
  const trace::StepWindow& window() const { return window_; }

  /// The op before op i on its lane, ops without work included; -1 if it is the first.
  int lane_before(int i) const { return edges_.lane_before[i]; }
  /// The collective before collective i on its communicator, whatever its lane; -1 if it is the first.
  int communicator_before(int i) const { return edges_.communicator_before[i]; }
  /// The op that recorded the event which wait w of op i refers to; -1: recorded in an earlier step, or never.
  int recorded_by(int i, std::size_t w) const { return edges_.recorders[i][w]; }
  /// The last op at which the host blocked before it issued op i; -1: it did not block in this step.
  int host_blocked_before(int i) const { return edges_.host_before[i]; }
  /// When op i was over: its end, or for an op without work when all it had to wait for was over.
  std::int64_t done(int i) const { return done_[i]; }
  /// The op with work that ended last; -1: none has work.
  int last_to_end() const;

 private:
  std::span<const schedule::Op> ops_;
  std::span<const trace::Record> records_;
  trace::StepWindow window_;
  std::vector<OpClass> classes_;
  StepEdges edges_;
  std::vector<std::int64_t> done_;
};

/// Place of the rank that came last to collective `op` of the rank in `place`; -1: it is not in view.
int last_to_arrive(const StepRecords& step, const plan::Groups& groups, int place, int op);

/// For each op of the schedule that is a collective, the op that it was issued for: the first one in issue order,
/// a computation, an update on the host or another collective, that reads what it gave, be it through copies and casts.
/// -1 of all other ops, and where no op of the same step reads it.
std::vector<int> needed_by(const schedule::Schedule& schedule);

/// Where a device could not know when the last rank of a collective had arrived (Record::peers_arrived_ns is 0), it is
/// the latest begin of the same op among the ranks of its group, but never outside the record itself. Times of all
/// ranks must be on one line. Throws as RunView does if the ranks have not the same steps.
void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Groups& groups,
                        std::vector<trace::RankTrace>& traces);

}  // namespace fsdpbench::account
