#pragma once

#include <optional>
#include <string>

#include "account/cause_advice.h"
#include "account/counterfactual.h"
#include "foreign/adopted_job.h"
#include "foreign/explain.h"
#include "foreign/job_trace.h"
#include "tune/answer.h"
#include "tune/search.h"

namespace fsdpbench::app {

/// What the replay of a job's op times may promise of its traced step.
///
/// [Note: gains of a traced step]
/// A replay has no gaps between the kernels of an op and knows nothing of what the host does beside issuing ops, so it
/// misses the traced step. A gain is therefore the difference of two replays, taken from the traced step; and what the
/// replay misses of that step, and what its steps scatter, are part of the gain's interval, in squares. No setting
/// makes the step shorter than what some rank does on its own: its kernels, and the time in which it waits for its
/// host or its data.
struct TracedStep {
  double step_ms = 0;      ///< median
  double replayed_ms = 0;  ///< the replay of the same ops
  double scatter_ms = 0;   ///< half of the median's interval
  double computed_ms = 0;  ///< kernels of the rank that has most of them
  double least_ms = 0;     ///< what some rank does on its own
  double miss_ms() const { return step_ms > replayed_ms ? step_ms - replayed_ms : replayed_ms - step_ms; }
};
/// The job has a typical step.
TracedStep traced_step(const foreign::Explanation& explanation, const AdoptedJob& adopted);

/// Makes a gain of replays one of the traced step, which cannot become shorter than `least_ms`.
void count_from_trace(const TracedStep& step, double least_ms, account::Counterfactual& gain);
/// The same of all steps that a search computed, and of its answer.
void count_from_trace(const TracedStep& step, tune::SearchResult& result);
void count_from_trace(const TracedStep& step, tune::Answer& answer);

/// What another valid configuration of the same training would gain. Throws an Error if it cannot be replayed.
account::Counterfactual gain_of_setting(const AdoptedJob& adopted, const TracedStep& step,
                                        const config::RunConfig& other);

/// A sentence about the rank for which the others wait for more than half of their exposed communication; empty: there
/// is none. What settings gain then says nothing: the others wait all the same.
std::string held_up_because(const foreign::JobTrace& job, const foreign::Explanation& explanation);

/// "a replay of its op times takes 94.300 ms, 5.7 % less than the traced step (100.000 ms, median): …"
std::string replay_error_sentence(const TracedStep& step);

}  // namespace fsdpbench::app
