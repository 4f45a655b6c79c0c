#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/run_view.h"
#include "account/step_view.h"
#include "base/intervals.h"
#include "base/link_model.h"
#include "plan/plan.h"

namespace fsdpbench::account {

/// One stretch of a step in which a rank computed nothing, and why. `op` is what was waited for (an index into the
/// schedule; -1: nothing), `late_rank` who came last, or whose link is slow (-1: nobody, or a rank that is not in
/// view).
struct Stall {
  Interval time;
  Cause cause = Cause::unknown;
  int op = -1;
  int late_rank = -1;
};

/// Ratios by op of the steady schedule: its time over what it is if all ranks that split experts had as many rows
/// (mesh.expert_imbalance on a computed clock). Empty: nothing is known of an imbalance.
using EvenRows = std::vector<double>;

/// Finds out why the rank in place `rank` did not compute when it did not. The stalls are disjoint, sorted, and cover
/// exactly the step minus the union of computation: exposed communication, exposed copies and idle time together.
/// `link`: absent for real ones. `prefetches_backward`: the policy prefetches in backward, so a gather that was not
/// prefetched was refused.
///
/// [Note: how a cause is found]
/// A stall ends when an op X begins. X began when the last of its constraints was fulfilled: the op before it on its
/// lane, the events it waits for, the host issuing it, and for a collective its communicator and its peers. The stall
/// is walked backwards along these binding constraints: what ran or blocked at each moment is what it is first put
/// down to. A transfer found this way is then asked why it did not start earlier: if a constraint that a knob could
/// lift (a limit, a late prefetch, a busy communicator, a blocked host) held it longer than those that nothing can lift
/// (data, the transfer before it), that much of the transfer is put down to that constraint. What remains is the
/// link's: of the one rank whose own link was busy longest, as far as the others' were done before (ranks' own ends are
/// known of modelled links only: a real ring ends on all its ranks at once, whoever is slow), else of all. In
/// an exchange of rows, the time beyond even rows comes first.
/// Where all was there and a lane had not begun, its wait for a core is told from what nobody can explain.
std::vector<Stall> find_stalls(const StepRecords& step, const plan::Groups& groups,
                               const std::optional<LinkModel>& link, bool prefetches_backward, int rank,
                               const EvenRows& even_rows = {});

/// Throws a check_failed Error that names `where` ("rank 3, step 7") unless the stalls are disjoint, sorted, and add up
/// to `stalled_ns`.
void check_partition(const std::vector<Stall>& stalls, std::int64_t stalled_ns, const std::string& where);

/// Facts about a step that are not in its edges: it differs between our own records and another program's rows.
class StepFacts {
 public:
  virtual ~StepFacts() = default;
  /// The rank that came last to collective i; -1: nobody, or a rank that is not in view.
  virtual int last_to_arrive(int i) const = 0;
  /// Time by which collective i took longer than it should have: by one rank's link, or beyond others of its kind.
  struct Excess {
    std::int64_t ns = 0;
    Cause cause = Cause::slow_link;
    int rank = -1;
  };
  virtual Excess excess(int i) const = 0;
  /// Most of collective i's time is latency.
  virtual bool mostly_latency(int i) const = 0;
  /// Computation that was ready never runs beside collectives like i.
  virtual bool serialised(int) const { return false; }
  /// Nanoseconds that transfer i lost to another one that ran beside it.
  virtual std::int64_t slowed_by_sharing(int i) const = 0;
  /// When the host had issued op i at the latest.
  virtual std::int64_t issued_until(int i) const = 0;
  /// Why it was no sooner.
  virtual Cause why_issued_late(int i) const = 0;
  /// The op whose end the host had waited for before it issued op i, where the records tell it and no op of the host
  /// does; -1: none.
  virtual int host_waited_for(int) const { return -1; }
  /// Collective i has nothing beside it, being at an end of the step. `last_ops`: no forward or backward follows.
  virtual bool at_boundary(int i, bool last_ops) const = 0;
  /// The policy prefetches in backward, so a gather that was not prefetched was refused.
  virtual bool prefetches_backward() const = 0;
};

/// The stalls of any step.
std::vector<Stall> find_stalls(const StepView& view, const StepFacts& facts);

}  // namespace fsdpbench::account
