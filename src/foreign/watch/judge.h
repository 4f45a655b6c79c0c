#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/watch/job_view.h"
#include "foreign/watch/judge_counts.h"

namespace fsdpbench::watch {

struct Judgement {
  Verdict verdict = Verdict::unknown;
  std::string sentence;            ///< the first accusation's, or why there is none
  std::vector<Accusation> all;     ///< in the order of Verdict
  std::vector<std::string> notes;  ///< what could not be judged, and why
};

/// What the job's records say as of `now_ns`, Unix time: the newest record, or the clock of whoever reads. A pure
/// function: no clock is read here.
///
/// [Note: what watch() accuses of]
/// *Hang*: an operation that some ranks of a communicator have entered has not ended for hang_ns by their own records,
/// or was given up by the library. Named are the ranks that have not come to it and wait for nobody themselves; not
/// those that wait. If all have come, a rank whose records have stopped is named; if there is none, only the
/// communicator is. *Silent*: nothing is heard of a rank while others were active for hang_ns (Signs::active_after_ns).
/// *Late*: in a collective everybody waits for the last one. Of each collective that all ranks have ended the lateness
/// of a rank is how much later than the first it came, or how much shorter than the longest it waited.
/// account/late_ranks.h decides, at a level of kChance (a watcher asks every second for weeks), and the lower end of
/// the interval is above kLeastShare of the time. Windows of three lengths end now, since a rank may be late once a
/// step only. Clocks of hosts differ: where ranks are not known to share one, what a rank is always late by counts as
/// its clock's. *Slow communicator*: its collectives take longer than those of its siblings, of equal name, bytes,
/// ranks and nodes, each as its last rank saw it, which waits for nobody. *GPU trouble*: judge_gpus.h; what is
/// found on the host of a rank that is named is said with it. Everything else is unknown, or clean if all
/// that was needed was there.
Judgement judge(const JobView& job, std::int64_t now_ns, const JudgeOptions& options = {});

inline constexpr double kChance = 1e-6;         ///< of accusing one rank of equal ones, each time somebody asks
inline constexpr double kLeastShare = 0.1;      ///< of the time, that the others wait for a late rank
inline constexpr double kLeastSlowness = 1.25;  ///< of a communicator's collectives, beside its siblings'

}  // namespace fsdpbench::watch
