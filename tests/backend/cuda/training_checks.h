#pragma once

// Results that a training on the CUDA backend must have, on imagined GPUs and on real ones.

#include <gtest/gtest.h>

#include <vector>

#include "account/run_metrics.h"
#include "engine/run.h"
#include "schedule/memory_walk.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {

/// A decoder that trains in seconds on emulated GPUs, with sizes for whole packs and a remainder in the feed-forward
/// part.
inline config::RunConfig tiny_training(int ranks) {
  config::RunConfig c = testing::tiny_decoder();
  c.model.width = 32;
  c.model.layers = 2;
  c.mesh.ranks = ranks;
  c.train.steps = 2;
  c.train.batch_per_rank = 1;
  c.device.backend = config::BackendKind::cuda;
  c.device.timer = config::Timer::events;
  c.inject.poison_freed_memory = true;
  return testing::settled(c);
}

inline void expect_same_training(const Measurement& cuda, const Measurement& cpu, double tolerance) {
  ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(cuda.losses[i], cpu.losses[i], tolerance * cpu.losses[i]) << "step " << i;
  }
  ASSERT_EQ(cuda.parameters.size(), cpu.parameters.size());
  for (std::size_t p = 0; p < cpu.parameters.size(); ++p) {
    for (std::size_t i = 0; i < cpu.parameters[p].size(); ++i) {
      ASSERT_NEAR(cuda.parameters[p][i], cpu.parameters[p][i], 20 * tolerance) << "parameter " << p << ", " << i;
    }
  }
}

inline void expect_memory_of_the_schedule(const config::RunConfig& config, const Measurement& result) {
  const auto steps = static_cast<int>(config.train.warmup + config.train.steps);
  const PoolStatistics expected = schedule::memory_walk(set_up(config).schedules, steps);
  ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(config.mesh.ranks));
  for (const PoolStatistics& memory : result.memory) {
    EXPECT_EQ(memory.peak_occupied_total, expected.peak_occupied_total);
    EXPECT_EQ(memory.peak_occupied, expected.peak_occupied);
    EXPECT_EQ(memory.reserved, expected.reserved);
  }
}

/// Times of all ops fit together: run_metrics checks every identity and throws where one does not hold.
inline void expect_whole_trace(const config::RunConfig& config, const Measurement& result) {
  const Setup p = set_up(config);
  const account::RunMetrics m = account::run_metrics({p.schedules, result.traces}, p.plan.groups, 1.0);
  EXPECT_GT(m.step_ms.median, 0);
  EXPECT_GT(m.compute_ms, 0);
  for (const trace::RankTrace& trace : result.traces) {
    EXPECT_EQ(trace.steps.size(), static_cast<std::size_t>(config.train.steps));
    for (const trace::Record& record : trace.records) {
      if (record.begin_ns == 0) continue;  // no work: only events, or memory given back
      EXPECT_LE(record.issued_ns, record.begin_ns);
      EXPECT_LE(record.begin_ns, record.end_ns);
    }
  }
}

}  // namespace fsdpbench::engine
