#include <algorithm>

#include "engine/run.h"
#include "schedule/build_schedules.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"

namespace fsdpbench::engine {

Preparation prepare(const config::RunConfig& config) {
  Preparation p;
  p.config = config;
  p.plan = plan::make_plan(config);
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  p.model = model::make_model(config.model, p.plan.shapes,
                              {config.train.batch_per_rank, decoder ? config.train.seq_len : 1, config.fsdp.param_dtype});
  p.sizes = p.model->sizes();
  p.schedules = schedule::build_schedules(p.plan, schedule::make_policy(config), p.sizes);
  // Packing the range may take a few steps to settle; more than these have not been seen to change anything.
  constexpr std::int64_t kMostSteps = 32;
  p.memory = schedule::memory_walk(p.schedules,
                                   static_cast<int>(std::min(config.train.warmup + config.train.steps, kMostSteps)));
  return p;
}

}  // namespace fsdpbench::engine
