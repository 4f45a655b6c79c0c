#include "app/commands/trace_to_profile.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "app/console/console.h"
#include "app/experiment/prediction_interval.h"
#include "app/machine/build_info.h"
#include "app/report/adopted_job.h"
#include "app/report/result_folder.h"
#include "base/error.h"
#include "base/paths.h"
#include "config/calibration.h"
#include "config/write.h"
#include "foreign/kineto_reader.h"
#include "replay/calibration.h"
#include "replay/measured_host.h"

namespace fsdpbench::app {

int trace_to_profile_command(const TraceToProfileArguments& arguments) {
  if (path_exists(arguments.calibration) && !arguments.overwrite) {
    throw OutputError(
        fmt::format("{} exists; --overwrite replaces it, or name another file (--calibration)", arguments.calibration));
  }
  const foreign::JobTrace job = foreign::read_job(arguments.traces);
  const foreign::Recognition found = foreign::recognise(job);
  const AdoptedJob adopted = adopt_job(job, found);
  const engine::Setup& setup = adopted.setup;
  replay::Calibrator calibrator;
  calibrator.add(
      replay::MeasuredTimes({setup.schedules, setup.plan.groups, setup.sizes}, adopted.traces, std::nullopt, false),
      replay::measured_host(setup.schedules, adopted.traces, {}));
  config::Calibration calibration = calibrator.result();
  const config::Calibration::Miss miss = miss_of(calibration, setup, adopted.metrics);
  calibration.misses = {miss};
  const std::string& device = job.ranks.front().device_model;
  calibration.machine = fmt::format("{} of {}", device.empty() ? "the device" : device, found.name);
  calibration.revision = build_info().git_revision;
  write_file(arguments.calibration, config::to_toml(calibration));

  config::RunConfig config = setup.config;
  config.device.backend = config::BackendKind::virtual_;
  config.simulate.calibration = std::filesystem::absolute(arguments.calibration).string();
  console().print(
      fmt::format("# {}, as its trace has it. Sizes of the model's parts are such that its units are as large.\n",
                  found.name) +
      config::to_toml(config));
  console().info(fmt::format("the traced step took {:.3f} ms, {:.1f} % {} than a simulation of this profile says",
                             adopted.metrics.step_ms.median, std::abs(100 * miss.step),
                             miss.step >= 0 ? "more" : "less"));
  console().info(fmt::format("calibration  {}", arguments.calibration));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
