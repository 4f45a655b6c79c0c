#include "engine/setup.h"

#include "base/bytes.h"
#include "engine/executor.h"
#include "engine/masters.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::engine {

Setup set_up(const config::RunConfig& config) {
  Setup s;
  static_cast<schedule::Training&>(s) = schedule::make_training(config, [&](const plan::Plan& plan) {
    s.model = model::make_model(config, plan.shapes);
    return s.model->sizes();
  });
  const std::int64_t steps = config.train.warmup + config.train.steps;
  s.memory = schedule::memory_walk(s.schedules, steps);
  s.host_memory = schedule::memory_walk(s.schedules, steps, MemorySpace::host);
  s.pool_bytes = checked_sum(s.memory.reserved, Masters::collection_bytes(s.plan));
  s.host_bytes = Executor::recording_bytes(s.schedules, config.train.steps);
  if (!config.emulate.compute_tflops) {
    s.host_bytes +=
        Masters::staging_bytes(s.plan) + Masters::whole_bytes(s.plan) + Masters::saving_bytes(config);
  }
  return s;
}

}  // namespace fsdpbench::engine
