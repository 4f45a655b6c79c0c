#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "account/run_metrics.h"
#include "account/statistics.h"
#include "base/enum_table.h"
#include "clock/measured_times.h"
#include "clock/what_if_times.h"
#include "runs/compare_report.h"
#include "runs/finished_run.h"
#include "tune/run_doubt.h"
#include "tune/step_answer.h"

namespace fsdpbench::app {

/// Question about a finished run.
struct WhatIfQuestion {
  std::vector<std::string> overrides;  ///< `key=value`, as for run
  double link_scale = 1;
  double compute_scale = 1;
  bool without_straggler = false;
};

/// All measured steps on the computed clock, each with the times of its own ops.
struct ReplayedRun {
  account::RunMetrics metrics;
  account::Summary exposed_ms;  ///< of a step, mean over ranks
  std::int64_t peak_bytes = 0;
  std::string does_not_fit;  ///< in the GPU that was simulated, or only with retries: a sentence; empty: it fits

  StepAnswer answer() const;
};

struct WhatIf {
  std::string run;  ///< its folder
  WhatIfQuestion question;
  std::vector<DifferingKey> keys;  ///< of the configuration
  std::vector<std::string> notes;  ///< what the user should know of keys and times, sentences without full stop
  std::vector<clock::MeasuredTimes::Link> links;
  clock::MeasuredTimes::Straggler straggler;
  EnumTable<clock::TimeOrigin, int> origins;  ///< ops with work of a step, by where their time is from
  clock::ReachCounts reach{};                 ///< by how far they are from what was measured
  ReplayedRun measured;                       ///< the run itself, without single steps
  ReplayedRun replayed;                       ///< as the run was
  ReplayedRun changed;                        ///< as it would be
  /// Step by step: changed / replayed - 1. Bounds: where what the changed run would measure, over what the run did,
  /// lies 95 times of 100 (run_doubt.h), or of the run's own steps only if `doubt` is not known. So are those of
  /// `changed.metrics.step_ms`.
  account::Summary change;
  double replay_error = 0;  ///< of the unchanged run: replayed / measured - 1
  RunDoubt doubt;
  std::string machine;        ///< whose times answered, if the run was simulated on it; empty: the run's own op times
  bool by_allocator = false;  ///< memory is what PyTorch's allocator reserves, else from the schedule
  std::string disturbed_because;  ///< why_disturbed()
};

/// Answers it from the run's own op times. Throws ConfigError if the question is about something that a replay cannot
/// know: another model, machine or number of ranks.
WhatIf what_if(const FinishedRun& run, const WhatIfQuestion& question);

/// The table for people, with what it rests on.
std::string what_if_text(const WhatIf& answer);

/// The content of what_if.json (docs/what-if.md).
template <>
Fields<WhatIf> declared<WhatIf>();

}  // namespace fsdpbench::app
