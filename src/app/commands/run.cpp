#include "app/commands/run.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/console/progress.h"
#include "app/experiment/load_run.h"
#include "app/experiment/measured_run.h"
#include "app/job/job.h"
#include "app/job/run_rescue.h"
#include "app/report/result_folder.h"
#include "app/report/result_json.h"
#include "app/report/run_table.h"
#include "app/report/trace_files.h"
#include "app/report/write_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/write.h"

namespace fsdpbench::app {

namespace fs = std::filesystem;

int run_command(const RunArguments& arguments, Job* job) {
  std::vector<std::string> overrides = arguments.overrides;
  if (arguments.ranks) overrides.push_back(fmt::format("mesh.ranks={}", *arguments.ranks));
  const int local_ranks = job == nullptr ? 0 : job->session().placement().local_ranks;
  const std::string profile = config::find_profile(arguments.profile);
  std::vector<std::string> notes;
  const PreparedRun prepared = prepare_run(load_run(profile, overrides, job, &notes), local_ranks);
  for (const std::string& note : notes) console().info(note);
  for (const std::string& note : prepared.notes) console().info(note);
  const engine::Setup& setup = prepared.setup;
  const config::RunConfig& config = setup.config;
  const fs::path folder = make_result_folder(config::profile_name(profile), arguments.out);
  write_file(folder / "config.toml", config::to_toml(config));
  if (job != nullptr) forget_old_results(folder);
  console().info(run_headline(setup));

  MeasuredRun run;
  {
    Progress progress(console(), config.train.warmup + config.train.steps, now_ns());
    engine::RunHooks hooks;
    hooks.progress = [&](std::int64_t done, std::optional<double> loss) { progress.update(done, loss, now_ns()); };
    hooks.stop = interrupt_requested;
    run = measure(prepared, hooks, {job, folder, arguments.command_line});
  }
  if (run.report.metrics) write_trace_files(folder, setup, run.result->traces);
  write_file(folder / "result.json", result_json(run.report).dump(2) + "\n");
  console().print(run_table(run.report, folder));
  if (run.result->interrupted) {
    console().warning(fmt::format(
        "interrupted after {} of {} steps; the results above are of the steps done, and {} "
        "says \"complete\": false",
        run.result->steps_done, config.train.warmup + config.train.steps, (folder / "result.json").string()));
    return static_cast<int>(ExitCode::interrupted);
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
