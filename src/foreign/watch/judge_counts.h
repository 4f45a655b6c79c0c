#pragma once

#include <string>
#include <vector>

#include "foreign/watch/accusation.h"
#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// What the counts of NCCL's RAS say. They are of collectives that hosts have handed over. So equal counts do not say
/// that a job is well, and never lead to `clean`.
///
/// *Silent*: RAS considers the process of a rank dead, or has not reached it for hang_ns. *Hang*: no count of the job
/// has moved for hang_ns, and some ranks of a communicator have handed over fewer collectives than others of it.
/// *Late*: at each look for hang_ns a rank had handed over fewer than half of the others had at the look before; so it
/// does not matter in which order RAS asks its processes. A rank that is ahead in another such communicator waits
/// there, and is not named. Nobody is accused in a communicator that a rank has begun to end.
struct CountFindings {
  std::vector<Accusation> all;
  std::vector<std::string> unknown;  ///< sentences: what the counts leave open
  std::vector<std::string> notes;
};
CountFindings judge_counts(const JobView& job, const JudgeOptions& options);

}  // namespace fsdpbench::watch
