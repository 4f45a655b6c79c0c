#include "app/commands/measure.h"

#include <utility>

#include "app/console/interrupt.h"
#include "app/job/job_run.h"
#include "app/report/result_folder.h"
#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::app {

const launch::Placement* placement_of(const Job* job) { return job == nullptr ? nullptr : &job->session().placement(); }

int local_ranks(const Job* job) { return job == nullptr ? 0 : placement_of(job)->local_ranks; }

Trial measure(const Cell& cell, const engine::RunHooks& hooks, Job* job, const std::filesystem::path& folder,
              std::vector<std::string> command_line) {
  const launch::Session* session = job == nullptr ? nullptr : &job->session();
  World world = current_world(cell.setup.config, session, std::move(command_line));
  const Train train = job == nullptr ? Train(train_on_threads) : train_on_job(*job, folder, world);
  return run_trial(cell, hooks, std::move(world), train);
}

Trial whole_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep) {
  const std::int64_t begin = now_ns();
  const Cell cell = open_cell(config, local_ranks(job));
  engine::RunHooks hooks;
  hooks.stop = interrupt_requested;
  Trial trial = measure(cell, hooks, job, {}, {});
  if (trial.interrupted) throw Interrupted();
  trial.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  if (!keep.empty()) {
    const ResultFolder folder("", keep.string(), OldResult::overwrite);
    write_result(folder.path(), cell.setup, trial);
  }
  return trial;
}

}  // namespace fsdpbench::app
