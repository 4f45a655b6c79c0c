#include "app/commands/trace_to_profile.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/console/console.h"
#include "app/report/result_folder.h"
#include "app/report/traced_profile.h"
#include "base/error.h"
#include "config/calibration.h"
#include "foreign/kineto_reader.h"

namespace fsdpbench::app {

int trace_to_profile_command(const TraceToProfileArguments& arguments) {
  refuse_old_file(arguments.calibration, arguments.overwrite, "--calibration");
  const foreign::JobTrace job = foreign::read_job(arguments.traces);
  const foreign::Recognition found = foreign::recognise(job);
  TracedProfile profile = traced_profile(job, found, adopt_job(job, found));
  write_file(arguments.calibration, config::to_toml(profile.calibration));
  profile.config.simulate.calibration = std::filesystem::absolute(arguments.calibration).string();
  console().print(profile_text(profile));
  console().info(profile.fidelity());
  console().info(fmt::format("calibration  {}", arguments.calibration));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
