#pragma once

#include <string>
#include <vector>

#include "config/calibration.h"
#include "config/run_config.h"
#include "foreign/adopted_job.h"
#include "foreign/job_trace.h"
#include "foreign/recognise.h"

namespace fsdpbench::app {

/// A traced job as a profile: its settings, and what its ops took.
struct TracedProfile {
  std::string program;              ///< "PyTorch FSDP2 (fully_shard)"
  config::RunConfig config;         ///< on the computed clock; simulate.calibration is for the caller to name
  config::Calibration calibration;  ///< with what a simulation of `config` misses of the traced step
  bool sized = false;               ///< the trace tells how large units are
  double step_ms = 0;               ///< of the traced job: median over its steps, of the slowest rank

  /// "the traced step took 12.345 ms, 1.2 % more than a simulation of this profile says"
  std::string fidelity() const;
};

/// Its lines are such that all ops of a kind together take what they took: a made-up model's parts need not cost what
/// the real one's do, FLOP by FLOP.
TracedProfile traced_profile(const foreign::JobTrace& job, const foreign::Recognition& found,
                             const AdoptedJob& adopted);

/// The profile as TOML, with a line that says what it is of.
std::string profile_text(const TracedProfile& profile);

}  // namespace fsdpbench::app
