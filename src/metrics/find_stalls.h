#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/intervals.h"
#include "base/link_model.h"
#include "metrics/cause.h"
#include "metrics/run_view.h"
#include "plan/groups.h"

namespace fsdpbench::metrics {

/// One stretch of a step in which a rank computed nothing, and why. `op` is what was waited for (an index into the
/// schedule; -1: nothing), `late_rank` who came last, or whose link is slow (-1: nobody, or a rank that is not in
/// view).
struct Stall {
  Interval time;
  Cause cause = Cause::unknown;
  int op = -1;
  int late_rank = -1;
};

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
/// known of modelled links only: a real ring ends on all its ranks at once, whoever is slow), else of all.
/// Where all was there and a lane had not begun, its wait for a core is told from what nobody can explain.
std::vector<Stall> find_stalls(const StepRecords& step, const plan::Groups& groups,
                               const std::optional<LinkModel>& link, bool prefetches_backward, int rank);

}  // namespace fsdpbench::metrics
