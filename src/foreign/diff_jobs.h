#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foreign/explain.h"
#include "foreign/job_trace.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// A job with all that is known of it. Refers to the trace: it must live on.
struct ReadJob {
  const JobTrace& job;
  const Recognition& found;
  const Explanation& explained;
};

/// Difference in one part of a step: B minus A, means over ranks and steps.
struct PartChange {
  std::string cause;  ///< "computation", or why nothing was computed; of the whole step "step"
  std::string op;     ///< the kernel, collective or copy; empty: all
  double a_ms = 0, b_ms = 0;
  std::int64_t change_ns = 0;             ///< those of all parts add up to the step's, to the nanosecond
  std::optional<double> low_ms, high_ms;  ///< 95 % interval of the change; absent: one step is no sample
  bool found = false;                     ///< larger than kLeastChange of the step, and not by chance
};

struct JobDiff {
  PartChange step;
  std::vector<PartChange> causes;  ///< computation and the causes; the largest change first
  std::vector<PartChange> ops;     ///< the same by op
  int steps_a = 0, steps_b = 0;    ///< that all ranks have
  bool by_units = false;           ///< collectives were aligned by the units of the schedule; else by names
  std::vector<std::string> notes;  ///< a sentence each
};

/// Causes for which the step of B is longer or shorter than that of A.
///
/// [Note: how two jobs are compared]
/// Each moment of a rank's step belongs to one part: the row that computes, or, while none does, why none does and
/// what was waited for (job_causes.h). So the parts of a step add up to it, and the changes of the parts to its change.
/// Parts of both jobs are the same if they have one name: collectives by kind, unit and phase, everything else by the
/// name of its row and its phase. A change counts as found if its interval, at a level divided by the number of parts,
/// leaves 0 out (Welch's interval of means over steps), and it is at least kLeastChange of A's step: of many parts that
/// do not differ some would seem to. Steps of one job share its luck, so all this speaks of two recorded jobs.
JobDiff diff_jobs(const ReadJob& a, const ReadJob& b);
inline constexpr double kLeastChange = 0.005;
/// Least change that counts where a job has only one step, which has no interval.
inline constexpr double kLeastChangeOfOne = 0.02;

}  // namespace fsdpbench::foreign
