#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/experiment/measured_run.h"
#include "app/job/job.h"
#include "app/job/run_rescue.h"

namespace fsdpbench::app {

/// One run on all processes of a job, from its start to its end.
class JobRun {
 public:
  /// Rank 0: gives the run to all others and waits until they are ready for it. Throws the Error of the first rank that
  /// is not; then nobody has begun, and the job can go on with another run. `folder` and `frame` as in RunRescue.
  static void announce(Job& job, const PreparedRun& prepared, const std::filesystem::path& folder,
                       const nlohmann::json& frame);
  /// Rank 0: the job is over, with this exit code. The others leave.
  static void announce_end(Job& job, int code);

  /// From now on the steps done are saved if the job fails. `prepared` must outlive this.
  JobRun(Job& job, const PreparedRun& prepared, std::filesystem::path folder, nlohmann::json frame);
  ~JobRun();
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  engine::DoneSteps& done() { return rescue_.done(); }
  /// The run itself has ended well: nothing needs to be saved any more.
  void ended() { rescue_.close(); }

 private:
  Job& job_;
  RunRescue rescue_;
};

/// The part of every rank but 0: prepares and measures what rank 0 announces, until it announces the end. Returns the
/// exit code that it gave.
int serve(Job& job);

}  // namespace fsdpbench::app
