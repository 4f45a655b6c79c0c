#include "runs/job.h"

#include <fmt/format.h>

#include "launch/interrupt.h"
#include "launch/join.h"
#include "runs/build_info.h"

namespace fsdpbench::app {

Job::Job(const launch::Placement& placement)
    : session_(launch::join(placement, {.version = version_line()})), watch_(session_->control()) {
  obey_launcher();
}

Job::~Job() {
  // The watch goes last: leaving may wait for others.
  watch_.leave();
  session_.reset();
}

std::string Job::headline() const {
  return fmt::format(
      "{} ranks: one process each, as {} says; messages go by {}; rank 0 took them in at {}, each "
      "with proof of the job's secret",
      ranks(), session_->placement().source, session_->transport(), session_->door());
}

}  // namespace fsdpbench::app
