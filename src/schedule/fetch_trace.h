#pragma once

#include <cstdint>
#include <vector>

#include "plan/communication.h"
#include "schedule/policy.h"

namespace fsdpbench::schedule {

/// The learned order in which a microbatch uses units (the root, the others; backward, the root and the others in
/// reverse), what a prefetch at a rate takes from it, and which units are kept because they are used again soon.
/// DeepSpeed's coordinator, with units for parameters.
///
/// Each hook takes its own unit out of the queue of coming uses, then (fsdp.forward_prefetch = "rate:N") units until
/// those that are missing hold N elements, fewer if fsdp.max_live_parameters leaves less; what it takes is asked for
/// before it is added, so that the last one overshoots. A unit that the queue has lost for a later use than the next
/// stays gathered: nobody would fetch it again.
class FetchTrace {
 public:
  FetchTrace(const Policy& policy, const plan::Plan& plan);

  /// A microbatch begins.
  void begin();
  /// The next hook, which is `unit`'s: its parameters are gathered. Returns what to gather now: missing units, in order
  /// of use. `missing[u]`: unit u is not gathered. `live`: elements gathered.
  std::vector<int> next(int unit, const std::vector<bool>& missing, std::int64_t live);
  /// Whether `unit`, whose use is over, is to stay gathered.
  bool keeps(int unit) const;

 private:
  const Policy& policy_;
  const plan::Plan& plan_;
  std::vector<int> uses_;   // units
  std::size_t at_ = 0;      // the next hook's use
  std::size_t queue_ = 0;   // the first use that nothing has taken
  std::vector<int> taken_;  // by unit: its last use that was taken, -1 for none
};

/// How many gathers each unit needs in a microbatch of the steady state: 0 where it is never freed, 1 or 2.
std::vector<int> gathers_a_microbatch(const Policy& policy, const plan::Plan& plan);

/// Which units are gathered more than once in the steady state, as plan/communication.h wants it. For backward those
/// that reshard, unless they stay because they are used again soon (FetchTrace::keeps). Left over is what
/// prefetches_across_microbatches() gathers in the last microbatch.
plan::Regathers regathers(const Policy& policy, const plan::Plan& plan);

}  // namespace fsdpbench::schedule
