// How fast schedules are replayed: the largest jobs with jitter, growth with the number of ranks, links that are
// shared, and how many policies a minute go from configuration to step time. Peak memory of the process beside it.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>

#include "clock/emulated_times.h"
#include "clock/op_times.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"

namespace fsdpbench {
namespace {

/// `shard` 0: all ranks are one shard group.
config::RunConfig job(const char* model, std::int64_t ranks, std::int64_t shard = 0) {
  config::RunConfig c;
  c.model.preset = model;
  c = config::presets_of(c);
  c.mesh = {ranks, shard == 0 ? ranks : shard, shard == 0 ? 1 : ranks / shard};
  if (shard != 0) c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.train.seq_len = 8192;
  c.train.batch_per_rank = 1;
  c.fsdp.param_dtype = DType::bf16;
  c.emulate.compute_tflops = 400;
  c.emulate.link_gb_per_s = 50;
  return c;
}

clock::OpTimes times_of(const engine::Setup& p) {
  return clock::emulated_times(p, {*p.config.emulate.compute_tflops * 1e12, *p.config.emulate.link()});
}

double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

/// One step of all ranks, each with jitter of its own, from schedules and times to the end of the step.
void step_with_jitter(benchmark::State& state, const char* model, std::int64_t shard) {
  const engine::Setup p = engine::set_up(job(model, state.range(0), shard));
  clock::OpTimes times = times_of(p);
  times.jitter = clock::Jitter(1, {clock::Jitter::lognormal(0.02)}, 1e-5, 1e6);
  double step_ms = 0;
  for (auto _ : state) {
    const auto walk = clock::make_replay(p.schedules, p.plan.groups, times);
    walk->step({});
    step_ms = *std::ranges::max_element(walk->last_step().end_ns) * 1e-6;
  }
  const auto op_ranks = static_cast<double>(p.schedules.steps.front().ops.size()) * static_cast<double>(state.range(0));
  state.counters["step_ms"] = step_ms;
  state.counters["units"] = static_cast<double>(p.plan.units.size());
  state.counters["op_ranks/s"] = benchmark::Counter(op_ranks, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak_mb"] = peak_mb();
}
BENCHMARK_CAPTURE(step_with_jitter, llama3_8b, "llama3-8b", 0)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step_with_jitter, llama3_405b, "llama3-405b", 0)
    ->Arg(1000)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond);
// Reductions within groups and between them meet on the link, so ranks go on one by one in the order of time.
BENCHMARK_CAPTURE(step_with_jitter, llama3_8b_hybrid, "llama3-8b", 8)
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step_with_jitter, llama3_405b_hybrid, "llama3-405b", 8)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(16'384)
    ->Unit(benchmark::kMillisecond);

/// From a policy to its step: plan, schedules, memory, replay; 8 ranks of an 8B model.
void policies(benchmark::State& state) {
  config::RunConfig c = job("llama3-8b", 8);
  std::int64_t depth = 0;
  for (auto _ : state) {
    c.fsdp.forward_prefetch = {config::Prefetch::Mode::explicit_, static_cast<int>(1 + depth++ % 4)};
    const engine::Setup p = engine::set_up(c);
    const clock::OpTimes times = times_of(p);
    const auto walk = clock::make_replay(p.schedules, p.plan.groups, times);
    walk->step({});
    benchmark::DoNotOptimize(walk->last_step().end_ns.front());
  }
  state.counters["a_minute"] =
      benchmark::Counter(60.0 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(policies)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdpbench
