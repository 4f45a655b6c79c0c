// How large a unit should be: one, two, four or eight blocks gathered together, on an emulated cluster whose link has
// latency. Small units pay latency, large ones memory and the ends of the step. Then what the host pays for schedules:
// building them, proving them free of races, walking their memory.
#include <benchmark/benchmark.h>

#include "account/run_details.h"
#include "account/run_metrics.h"
#include "backend/cpu/backend.h"
#include "engine/run.h"
#include "schedule/build_schedules.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"

namespace fsdpbench {
namespace {

class NoTokens : public engine::BatchSource {
 public:
  void tokens(std::int64_t, std::span<std::int32_t>) const override {}
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}
};

config::RunConfig decoder(std::int64_t layers, int ranks) {
  config::RunConfig c;
  c.model.layers = layers;
  c.model.width = 1024;
  c.model.heads = c.model.kv_heads = 16;
  c.model.ffn_width = 2816;
  c.mesh = {ranks, ranks, 1};
  c.train.seq_len = 256;
  c.train.batch_per_rank = 1;
  c.train.steps = 5;
  c.train.warmup = 1;
  return c;
}

void bucket_size(benchmark::State& state) {
  config::RunConfig c = decoder(16, 4);
  c.fsdp.wrap = {config::Wrap::Mode::blocks, state.range(0), 0};
  c.emulate.compute_tflops = 2;
  c.emulate.link_gb_per_s = 20;
  c.emulate.link_latency_us = 400;
  const engine::Setup p = engine::set_up(c);
  const LinkModel link{*c.emulate.link_gb_per_s * 1e9, c.emulate.link_latency_us * 1e-6};
  for (auto _ : state) {
    const engine::Measurement result = engine::run(*backend::cpu::make_cpu_backend(), p, NoTokens());
    const account::RunView run(p.schedules, result.traces);
    const account::RunMetrics m = account::run_metrics(run, p.plan.groups, 1);
    const account::RunDetails details = account::run_details(run, p.plan, link);
    state.SetIterationTime(m.step_ms.median / 1000);
    state.counters["overlap_pct"] = m.overlap_pct.value();
    state.counters["exposed_ms"] = m.exposed_comm_ms;
    state.counters["peak_MiB"] = static_cast<double>(result.memory.front().peak_occupied_total) / (1 << 20);
    state.counters["busbw_GB/s"] = details.collectives.at(1).busbw_gb_s;
    state.counters["gather_MiB"] = static_cast<double>(details.collectives.at(1).message_bytes) / (1 << 20);
  }
}
BENCHMARK(bucket_size)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseManualTime()->Iterations(3)->Unit(benchmark::kMillisecond);

void build_schedules(benchmark::State& state) {
  const engine::Setup p = engine::set_up(decoder(state.range(0), 8));
  for (auto _ : state) {
    benchmark::DoNotOptimize(schedule::build_schedules(p.plan, p.policy, p.sizes));
  }
  state.counters["ops"] = static_cast<double>(p.schedules.steady().ops.size());
}
BENCHMARK(build_schedules)->Arg(32)->Arg(126)->Unit(benchmark::kMicrosecond);

void memory_walk(benchmark::State& state) {
  const engine::Setup p = engine::set_up(decoder(state.range(0), 8));
  for (auto _ : state) benchmark::DoNotOptimize(schedule::memory_walk(p.schedules, 4));
}
BENCHMARK(memory_walk)->Arg(32)->Arg(126)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace fsdpbench
