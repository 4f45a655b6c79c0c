#include "foreign/traced_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "clock/calibration.h"
#include "clock/measured_host.h"
#include "clock/op_work.h"
#include "config/write.h"
#include "runs/build_info.h"
#include "runs/steady_step.h"

namespace fsdpbench::app {

namespace {

/// Stretches each line so that the ops of the steady step that it is for take as long in all as they did, mean over
/// ranks and steps.
void keep_totals(const schedule::Training& training, const clock::MeasuredTimes& measured,
                 config::Calibration& calibration) {
  const schedule::Schedule& steady = training.schedules.steady();
  const clock::StepCosts costs = clock::calibrated_times(calibration, training).times.steps.back();
  const auto runs = static_cast<double>(measured.steps() * measured.ranks());
  struct Totals {
    double measured_ns = 0, line_ns = 0;
  };
  std::map<std::tuple<std::string, std::string, int>, Totals> totals;
  for (std::size_t i = 0; i < steady.ops.size(); ++i) {
    const schedule::Op& op = steady.ops[i];
    if (!op.has_work()) continue;
    const clock::OpWork work = clock::work_of(op, steady, training.plan.groups, training.sizes);
    Totals& total = totals[{std::string(to_string(op.kind)), std::string(to_string(work.unit)),
                            op.is_collective() ? training.plan.groups.size(op.group()) : 0}];
    total.line_ns += costs[i].run_ns + costs[i].link_ns;
    for (std::size_t step = 0; step < measured.steps(); ++step) {
      for (std::size_t rank = 0; rank < measured.ranks(); ++rank) {
        total.measured_ns += static_cast<double>(std::max<std::int64_t>(0, measured.ns(step, rank)[i])) / runs;
      }
    }
  }
  for (config::CalibrationLine& line : calibration.lines) {
    const Totals& total = totals[{line.kind, line.unit, line.ranks}];
    if (total.line_ns <= 0 || total.measured_ns <= 0) continue;
    const double stretch = total.measured_ns / total.line_ns;
    line.fixed_ns *= stretch;
    line.ns_per_amount *= stretch;
  }
}

}  // namespace

TracedProfile traced_profile(const foreign::JobTrace& job, const foreign::Recognition& found,
                             const AdoptedJob& adopted) {
  const engine::Setup& setup = adopted.setup;
  const clock::MeasuredTimes measured(setup, adopted.traces, std::nullopt, false);
  clock::Calibrator calibrator;
  calibrator.add(measured, clock::measured_host(setup.schedules, adopted.traces, {}));
  TracedProfile profile{found.name, setup.config, calibrator.result(), found.facts.unit_elements > 0,
                        adopted.metrics.step_ms.median};
  keep_totals(setup, measured, profile.calibration);
  profile.calibration.misses = {miss_of(profile.calibration, setup, adopted.metrics)};
  const std::string& device = job.ranks.front().device_model;
  profile.calibration.machine = fmt::format("{} of {}", device.empty() ? "the device" : device, found.name);
  profile.calibration.revision = build_info().git_revision;
  profile.config.device.backend = config::BackendKind::virtual_;
  return profile;
}

std::string TracedProfile::fidelity() const {
  const double miss = calibration.misses.front().step;
  return fmt::format("the traced step took {:.3f} ms, {:.1f} % {} than a simulation of this profile says", step_ms,
                     std::abs(100 * miss), miss >= 0 ? "more" : "less");
}

std::string profile_text(const TracedProfile& profile) {
  return fmt::format("# {}, as its trace has it. {}\n", profile.program,
                     profile.sized ? "Sizes of the model's parts are such that its units are as large."
                                   : "Its trace has no sizes of collectives, so those of the model's parts are made up.") +
         config::to_toml(profile.config);
}

}  // namespace fsdpbench::app
