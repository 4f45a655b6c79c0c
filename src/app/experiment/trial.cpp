#include "app/experiment/trial.h"

#include <nlohmann/json.hpp>

#include "app/console/interrupt.h"
#include "app/experiment/measured_run.h"
#include "app/job/job.h"
#include "app/report/result_folder.h"
#include "app/report/result_json.h"
#include "app/report/trace_files.h"
#include "app/report/write_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/write.h"

namespace fsdpbench::app {

nlohmann::json run_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep) {
  const std::int64_t begin = now_ns();
  const PreparedRun prepared = prepare_run(config, job == nullptr ? 0 : job->session().placement().local_ranks);
  engine::RunHooks hooks;
  hooks.stop = interrupt_requested;
  const MeasuredRun run = measure(prepared, hooks, {job, {}, {}});
  if (run.result->interrupted) throw Interrupted();

  const nlohmann::json result = result_json(run.report);
  nlohmann::json trial;
  for (const char* part : {"metrics", "memory", "comm", "causes", "world"}) {
    if (result.contains(part)) trial[part] = result[part];
  }
  trial["memory"].erase("timeline");  // long, and the same in every trial
  trial["steps_ms"] = run.report.metrics.value().steps_ms;
  trial["seconds"] = static_cast<double>(now_ns() - begin) * 1e-9;
  if (!keep.empty()) {
    const std::filesystem::path folder = make_result_folder("", keep.string());
    write_file(folder / "config.toml", config::to_toml(prepared.setup.config));
    write_trace_files(folder, prepared.setup, run.result->traces);
    write_file(folder / "result.json", result.dump(2) + "\n");
  }
  return trial;
}

}  // namespace fsdpbench::app
