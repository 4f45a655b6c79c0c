#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "account/statistics.h"
#include "backend/backend.h"
#include "engine/executor.h"
#include "engine/run.h"
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

/// CPU time of all threads together.
inline double process_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// One engine on all ranks: a step that it records, one that it does not, and another such one, in turns and in all six
/// orders. The ratios, of the first and of the third over the second, are medians over the rounds with their 95 %
/// intervals: what recording costs, and what a step differs from its like. One engine, because two have different
/// memory, and one of them may be luckier with it. Time: of rank 0, which waits for the others in its collectives. A
/// device that settles its stamps after the step does so outside the timed part. The same ratios of the processor's
/// time, all threads together and settling included, say it where other processes take turns with this one.
inline void step_with_recording_over_without(benchmark::State& state, backend::Backend& backend,
                                             const config::RunConfig& config, std::int64_t rounds) {
  const engine::Setup p = engine::set_up(config);
  const CountingTokens tokens;
  std::vector<double> ratios, same, cpu_ratios, cpu_same, with, without;
  for (auto _ : state) {
    backend::BackendOptions options;
    options.ranks = static_cast<int>(config.mesh.ranks);
    options.pool_bytes = p.memory.reserved;
    backend.run(options, [&](backend::RankContext& context) {
      engine::Executor engine(context, p.config, p.plan, p.schedules, *p.model, tokens);
      engine.initialize([&](int parameter, std::int64_t begin, std::span<float> out) {
        model::initialize_parameter(p.plan.shapes.parameters[static_cast<std::size_t>(parameter)], 1, begin,
                                    begin + static_cast<std::int64_t>(out.size()), out.data());
      });
      std::int64_t step = 0;
      double cpu_ns = 0;  // of the last step
      const auto timed = [&](bool recorded) {
        engine.pause_recording(!recorded);
        context.world.barrier();
        const double before = process_cpu_ns();
        engine.run_step(step++);
        context.world.barrier();
        cpu_ns = process_cpu_ns() - before;
        return static_cast<double>(engine.last_step_ns());
      };
      engine.start_recording(rounds + 5);
      for (int i = 0; i < 5; ++i) {
        timed(true);
        timed(false);
      }
      std::array<std::size_t, 3> order{0, 1, 2};
      for (std::int64_t round = 0; round < rounds; ++round) {
        std::array<double, 3> ns{}, cpu{};
        for (const std::size_t which : order) {
          ns[which] = timed(which == 0);
          cpu[which] = cpu_ns;
        }
        std::ranges::next_permutation(order);
        if (context.rank != 0) continue;
        ratios.push_back(ns[0] / ns[1]);
        same.push_back(ns[2] / ns[1]);
        cpu_ratios.push_back(cpu[0] / cpu[1]);
        cpu_same.push_back(cpu[2] / cpu[1]);
        with.push_back(ns[0]);
        without.push_back(ns[1]);
      }
    });
  }
  const auto show = [&](const std::string& name, const std::vector<double>& values) {
    const account::Summary summary = account::summarize(values);
    state.counters[name] = summary.median;
    state.counters[name + "_low"] = summary.ci_low;
    state.counters[name + "_high"] = summary.ci_high;
  };
  show("ratio", ratios);
  show("same", same);
  show("cpu_ratio", cpu_ratios);
  show("cpu_same", cpu_same);
  state.counters["with_us"] = account::median(with) / 1000;
  state.counters["without_us"] = account::median(without) / 1000;
  state.counters["records/step"] = static_cast<double>(p.schedules.steady().ops.size());
}

}  // namespace fsdpbench::bench
