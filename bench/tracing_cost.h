#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/executor.h"
#include "engine/run.h"
#include "metrics/statistics.h"
#include "model/initialize.h"

namespace fsdpbench::bench {

class CountingTokens : public engine::BatchSource {
 public:
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>((static_cast<std::uint64_t>(sample) * 131 + i * 7) % 256);
    }
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}
};

/// Two engines on the same ranks, one recording, one not; their steps in turns, each pair in the other order than the
/// one before. The ratio is the median over the pairs with its 95 % interval. Time: of rank 0, which waits for the
/// others in its collectives. A device that settles its stamps after the step does so outside the timed part.
inline void step_with_recording_over_without(benchmark::State& state, backend::Backend& backend,
                                             const config::RunConfig& config, std::int64_t pairs) {
  const engine::Setup p = engine::set_up(config);
  const CountingTokens tokens;
  std::vector<double> ratios, with, without;
  for (auto _ : state) {
    backend::BackendOptions options;
    options.ranks = static_cast<int>(config.mesh.ranks);
    options.pool_bytes = 2 * p.memory.reserved;
    backend.run(options, [&](backend::RankContext& context) {
      engine::Executor on(context, p.config, p.plan, p.schedules, *p.model, tokens);
      engine::Executor off(context, p.config, p.plan, p.schedules, *p.model, tokens);
      const auto fill = [&](int parameter, std::int64_t begin, std::span<float> out) {
        model::initialize_parameter(p.plan.shapes.parameters[static_cast<std::size_t>(parameter)], parameter, 1, begin,
                                    begin + static_cast<std::int64_t>(out.size()), out.data());
      };
      on.initialize(fill);
      off.initialize(fill);
      const auto timed = [&](engine::Executor& executor, std::int64_t step) {
        context.world.barrier();
        executor.run_step(step);
        return static_cast<double>(executor.last_step_ns());
      };
      for (std::int64_t step = 0; step < 5; ++step) {
        timed(on, step);
        timed(off, step);
      }
      on.start_recording(pairs);
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        double a = 0, b = 0;
        if (pair % 2 == 0) a = timed(on, 5 + pair);
        b = timed(off, 5 + pair);
        if (pair % 2 == 1) a = timed(on, 5 + pair);
        if (context.rank != 0) continue;
        ratios.push_back(a / b);
        with.push_back(a);
        without.push_back(b);
      }
    });
  }
  const metrics::Summary ratio = metrics::summarize(ratios);
  state.counters["ratio"] = ratio.median;
  state.counters["ratio_low"] = ratio.ci_low;
  state.counters["ratio_high"] = ratio.ci_high;
  state.counters["with_us"] = metrics::median(with) / 1000;
  state.counters["without_us"] = metrics::median(without) / 1000;
  state.counters["records/step"] = static_cast<double>(p.schedules.steady().ops.size());
}

}  // namespace fsdpbench::bench
