#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/advice.h"
#include "account/critical_path.h"
#include "foreign/explain.h"
#include "foreign/job_trace.h"
#include "foreign/kernel_times.h"
#include "foreign/recognise.h"
#include "foreign/traced_profile.h"
#include "foreign/unused_gathers.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {

// Fields of explain.json beside those in job_json.cpp.
template <>
Fields<foreign::UnusedGathers> declared();

/// All that is known of a job from its traces. Refers to the trace: it must live on.
struct ExplainedJob {
  const foreign::JobTrace& job;
  foreign::Recognition recognition;
  foreign::Explanation explanation;             ///< each cause with what would help
  std::optional<TracedStep> replay;             ///< of the job's op times; absent: there was none
  std::vector<account::ReplayedKnob> replayed;  ///< that gain more than the noise, the most first
  std::string not_replayed_because;             ///< a sentence; empty: the job's op times were replayed
  foreign::UnusedGathersFound unused;           ///< all-gathers that nobody used
};

/// Kernels of one kind, or of one kind and name. `x` has them, and at least one step.
struct KernelsOfJob {
  KernelsOfJob(const foreign::KernelSum& of, const foreign::Explanation& x);
  const foreign::KernelSum* sum;
  double total_ms = 0;        ///< of all ranks and steps
  double ms = 0, a_step = 0;  ///< time and launches, means over ranks and steps
  double share_pct = 0;       ///< of the time of all kernels
};

/// One or two sentences: the setting of the job's own that gains more than is in doubt, or that none does, and what
/// would help.
std::string headline(const ExplainedJob& explained);

/// For people: what the job is and how that was found out, where a step's time went, what was exposed most and why,
/// what would help, what nothing tells.
std::string job_report(const ExplainedJob& explained);

/// The critical path of a job; absent where it has no step of all ranks, or the path was not asked for.
std::optional<account::PathReport> path_of_job(const ExplainedJob& explained);

}  // namespace fsdpbench::app
