#include "app/commands/accept.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/acceptance/acceptance_files.h"
#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/job/config_message.h"
#include "app/job/job_run.h"
#include "app/report/result_folder.h"
#include "base/error.h"
#include "config/acceptance.h"
#include "config/find_file.h"

namespace fsdpbench::app {
namespace {

constexpr const char* kMeasuring = "measuring for an acceptance";

AcceptanceEffort effort_of(const config::Acceptance& wanted, bool full) {
  AcceptanceEffort effort;
  effort.matrix = wanted.matrix;
  effort.memory_bytes = wanted.memory_mib << 20;
  if (full) effort.iterations = 200;
  if (full) effort.arm_rounds = 30;
  return effort;
}

/// All stages without training; the others of a job take part.
constexpr const char* kStageOfParts = "arms";
constexpr const char* kStageOfMachine = "machine";

/// The parts of a step, alone and together; the others of a job take part.
void measure_parts(const Cell& cell, const AcceptanceEffort& effort, Job* job, AcceptanceMeasurements& measured) {
  if (cell.setup.config.mesh.ranks < 2) return;
  console().info(fmt::format("computation alone, communication alone and both: {} rounds of {} steps",
                             effort.arm_rounds, kStepsOfARound));
  if (job != nullptr) {
    order_service(*job, kAcceptanceService,
                  {{"stage", kStageOfParts}, {"config", to_message(cell.setup.config)}, {"rounds", effort.arm_rounds}});
    job->watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  }
  const engine::Setup arms = set_up_arms(cell.setup.config, effort.arm_rounds);
  const engine::Measurement brought = run_arms(arms, *cell.data, job == nullptr ? nullptr : &job->session());
  const metrics::RunView run(arms.schedules, brought.traces);
  for (accept::Arrivals& step : accept::arrivals_of(run)) measured.arrivals.push_back(std::move(step));
  measured.arms = arm_rounds(run);
  std::vector<CollectiveRow> alone = measured.ladder;
  alone.insert(alone.end(), measured.scales.rows.begin(), measured.scales.rows.end());
  measured.predicted = predict_step(arms, run, alone);
}

AcceptanceMeasurements measured_by_all(const Cell& cell, const AcceptanceEffort& effort, Job* job) {
  if (job != nullptr) {
    order_service(*job, kAcceptanceService,
                  {{"stage", kStageOfMachine},
                   {"config", to_message(cell.setup.config)},
                   {"matrix", effort.matrix},
                   {"memory_bytes", effort.memory_bytes},
                   {"device_rounds", effort.device_rounds},
                   {"iterations", effort.iterations},
                   {"pair_bytes", effort.pair_bytes}});
    job->watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  }
  return measure_acceptance(cell.setup, effort, job == nullptr ? nullptr : &job->session(),
                            [](const std::string& stage) { console().info(stage); });
}

}  // namespace

int accept_command(const AcceptArguments& arguments, Job* job) {
  const std::string path = config::find_acceptance(arguments.profile);
  const config::Acceptance wanted = config::read_acceptance(path);
  const config::RunConfig config =
      load_config(config::find_profile(wanted.run), arguments.overrides, placement_of(job));
  if (config.device.backend == config::BackendKind::virtual_) {
    throw ConfigError("accept measures a machine; device.backend = \"virtual\" is none. Use \"cpu\" or \"cuda\".");
  }
  const Cell cell = open_cell(config, local_ranks(job));
  const AcceptanceEffort effort = effort_of(wanted, arguments.full);
  const ResultFolder folder("accept-" + config::profile_name(path), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  AcceptanceMeasurements measured = measured_by_all(cell, effort, job);
  console().info(fmt::format("training steps of {}", wanted.run));
  const Trial trial = whole_trial(config, job);
  measured.arrivals = accept::arrivals_of({cell.setup.schedules, trial.measurement.traces});
  measure_parts(cell, effort, job, measured);
  if (job != nullptr) job->watch().doing("judging and writing results");

  const AcceptanceReport report = judge_acceptance(wanted, measured, &trial);
  console().print(acceptance_table(report));
  World world = trial.world;
  world.command_line = arguments.command_line;
  write_file(folder.path() / "result.json", json_text(acceptance_json(report, measured, world)));
  write_file(folder.path() / "junit.xml", acceptance_junit(report));
  write_file(folder.path() / "summary.md", acceptance_markdown(report));
  write_file(folder.path() / "metrics.prom", acceptance_metrics(report));
  console().info(fmt::format("written to {}", folder.path().string()));
  return report.exit_code();
}

void serve_acceptance(Job& job, const JsonPart& order) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const Cell cell = open_cell(config_from_message(order.at("config").text()), job.session().placement().local_ranks);
  job.watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  if (order.at("stage").text() == kStageOfParts) {
    const auto rounds = static_cast<int>(order.at("rounds").whole(1, kMost));
    run_arms(set_up_arms(cell.setup.config, rounds), *cell.data, &job.session());
    return;
  }
  AcceptanceEffort effort;
  effort.matrix = static_cast<int>(order.at("matrix").whole(1, 1 << 16));
  effort.memory_bytes = order.at("memory_bytes").whole(4, std::int64_t{1} << 40);
  effort.device_rounds = static_cast<int>(order.at("device_rounds").whole(1, kMost));
  effort.iterations = static_cast<int>(order.at("iterations").whole(1, kMost));
  effort.pair_bytes = order.at("pair_bytes").whole(4, kMost);
  measure_acceptance(cell.setup, effort, &job.session(), [](const std::string&) {});
}

}  // namespace fsdpbench::app
