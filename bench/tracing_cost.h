#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
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

/// One engine on all ranks: a step that it records, one that it does not, and another such one, in turns and in all six
/// orders. The ratios, of the first and of the third over the second, are medians over the rounds with their 95 %
/// intervals: what recording costs, and what a step differs from its like. One engine, because two have different
/// memory, and one of them may be luckier with it. Time: of rank 0, which waits for the others in its collectives. A
/// device that settles its stamps after the step does so outside the timed part.
inline void step_with_recording_over_without(benchmark::State& state, backend::Backend& backend,
                                             const config::RunConfig& config, std::int64_t rounds) {
  const engine::Setup p = engine::set_up(config);
  const CountingTokens tokens;
  std::vector<double> ratios, same, with, without;
  for (auto _ : state) {
    backend::BackendOptions options;
    options.ranks = static_cast<int>(config.mesh.ranks);
    options.pool_bytes = p.memory.reserved;
    backend.run(options, [&](backend::RankContext& context) {
      engine::Executor engine(context, p.config, p.plan, p.schedules, *p.model, tokens);
      engine.initialize([&](int parameter, std::int64_t begin, std::span<float> out) {
        model::initialize_parameter(p.plan.shapes.parameters[static_cast<std::size_t>(parameter)], parameter, 1, begin,
                                    begin + static_cast<std::int64_t>(out.size()), out.data());
      });
      std::int64_t step = 0;
      const auto timed = [&](bool recorded) {
        engine.pause_recording(!recorded);
        context.world.barrier();
        engine.run_step(step++);
        return static_cast<double>(engine.last_step_ns());
      };
      engine.start_recording(rounds + 5);
      for (int i = 0; i < 5; ++i) {
        timed(true);
        timed(false);
      }
      std::array<std::size_t, 3> order{0, 1, 2};
      for (std::int64_t round = 0; round < rounds; ++round) {
        std::array<double, 3> ns{};
        for (const std::size_t which : order) ns[which] = timed(which == 0);
        std::ranges::next_permutation(order);
        if (context.rank != 0) continue;
        ratios.push_back(ns[0] / ns[1]);
        same.push_back(ns[2] / ns[1]);
        with.push_back(ns[0]);
        without.push_back(ns[1]);
      }
    });
  }
  const metrics::Summary ratio = metrics::summarize(ratios), like = metrics::summarize(same);
  state.counters["ratio"] = ratio.median;
  state.counters["ratio_low"] = ratio.ci_low;
  state.counters["ratio_high"] = ratio.ci_high;
  state.counters["same"] = like.median;
  state.counters["same_low"] = like.ci_low;
  state.counters["same_high"] = like.ci_high;
  state.counters["with_us"] = metrics::median(with) / 1000;
  state.counters["without_us"] = metrics::median(without) / 1000;
  state.counters["records/step"] = static_cast<double>(p.schedules.steady().ops.size());
}

}  // namespace fsdpbench::bench
