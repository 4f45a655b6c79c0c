#include "foreign/adopted_job.h"

#include <fmt/format.h>

#include <utility>

#include "account/run_view.h"
#include "base/error.h"
#include "config/validate.h"
#include "foreign/adopt.h"
#include "foreign/matched_collectives.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::app {

AdoptedJob adopt_job(const foreign::JobTrace& job, const foreign::Recognition& found) {
  if (!found.is_fsdp()) {
    throw ConfigError(
        fmt::format("This is {}: only sharded training follows a schedule that is known here.", found.name));
  }
  if (!found.schedule || !found.schedule->exact()) {
    throw ConfigError(fmt::format("The order of collectives is not one of the schedules that are known here: {}.",
                                  found.schedule
                                      ? fmt::format("{} of them are elsewhere than {} has them",
                                                    found.schedule->collectives_off, found.schedule->config.fsdp.preset)
                                      : "none is possible with these units"));
  }
  config::RunConfig config = found.schedule->config;
  if (static_cast<std::int64_t>(job.ranks.size()) != config.mesh.ranks) {
    throw ConfigError(fmt::format("There are files of {} ranks, and the job has {}: a file of each is needed.",
                                  job.ranks.size(), config.mesh.ranks));
  }
  // Its times are given: no link and no arithmetic is modelled.
  config.device.backend = config::BackendKind::cpu;
  config.emulate = {};
  config::validate(config);
  AdoptedJob adopted;
  adopted.setup = engine::set_up(config);
  const foreign::MatchedCollectives matched(job);
  foreign::AdoptedRun run = foreign::adopt(job, found, matched, adopted.setup.schedules, adopted.setup.sizes);
  if (run.traces.empty()) throw ConfigError("No step of the trace follows the schedule on all ranks.");
  adopted.traces = std::move(run.traces);
  adopted.left_out = run.left_out;
  const engine::Setup& s = adopted.setup;
  const account::RunView view(s.schedules, adopted.traces);
  const double tokens = static_cast<double>(config.train.batch_per_rank * config.train.seq_len *
                                            config.train.accumulate * config.mesh.ranks);
  adopted.metrics = account::run_metrics(view, s.plan.groups, tokens);
  adopted.causes = account::report_causes(view, s, adopted.metrics);
  return adopted;
}

}  // namespace fsdpbench::app
