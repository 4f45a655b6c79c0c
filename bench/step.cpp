// Whole training steps. What the engine makes of the machine: a decoder step's FLOP/s beside the raw GEMM rate of the
// same thread, taken in turns; the measured step beside the max-plus bound of its own op durations; and what
// prefetching hides on a balanced link. Times are those of the slowest rank.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "account/run_metrics.h"
#include "backend/cpu/backend.h"
#include "backend/cpu/kernels/cpu_kernels.h"
#include "base/clock.h"
#include "engine/run.h"

namespace fsdpbench {
namespace {

/// Any token will do: what is measured does not depend on the text.
class CountingTokens : public engine::BatchSource {
 public:
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>((static_cast<std::uint64_t>(sample) * 131 + i * 7) % 256);
    }
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}
};

config::RunConfig decoder(int ranks, std::int64_t layers, std::int64_t width) {
  config::RunConfig c;
  c.model.layers = layers;
  c.model.width = width;
  c.model.heads = width / 64;
  c.model.kv_heads = c.model.heads;
  c.model.ffn_width = width * 11 / 4;
  c.mesh = {ranks, ranks, 1};
  if (ranks == 1) c.fsdp.strategy = config::Strategy::no_shard;
  c.train.warmup = 1;
  return c;
}

account::RunMetrics measure(const engine::Setup& p) {
  const engine::Measurement result = engine::run(*backend::cpu::make_cpu_backend(), p, CountingTokens());
  const config::Train& t = p.config.train;
  return account::run_metrics({p.schedules, result.traces}, p.plan.groups,
                              static_cast<double>(p.config.mesh.ranks * t.batch_per_rank * t.seq_len));
}

/// FLOP/s of one thread's matrix products of size 1024, the median of a few.
double gemm_rate(DType dtype) {
  constexpr std::int64_t kSize = 1024;
  const auto kernels = backend::cpu::make_cpu_kernels();
  const auto count = static_cast<std::size_t>(kSize * kSize * size_of(dtype));
  std::vector<std::byte> a(count), b(count), c(count);
  for (std::size_t i = 0; i < count; i += 2) a[i] = b[i] = std::byte{0x11};  // small and not zero in either dtype
  backend::Gemm gemm;
  gemm.a = a.data();
  gemm.b = b.data();
  gemm.c = c.data();
  gemm.m = gemm.n = gemm.k = kSize;
  gemm.transpose_b = true;
  gemm.input_dtype = gemm.output_dtype = dtype;
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    const std::int64_t begin = now_ns();
    kernels->gemm(gemm);
    rates.push_back(2.0 * kSize * kSize * kSize / (static_cast<double>(now_ns() - begin) * 1e-9));
  }
  return account::median(rates);
}

void decoder_step(benchmark::State& state, DType dtype) {
  config::RunConfig c = decoder(1, 2, 1024);
  c.train.seq_len = 512;
  c.train.batch_per_rank = 2;
  c.train.steps = 2;
  c.fsdp.param_dtype = dtype;
  const engine::Setup p = engine::set_up(c);
  double flops = 0;
  for (const plan::ModuleSizes& s : p.sizes) flops += s.forward_flops + s.backward_flops;
  std::vector<double> ratios;
  double rate = 0;
  for (auto _ : state) {
    const double before = gemm_rate(dtype);
    const double seconds = measure(p).step_ms.median / 1000;
    const double after = gemm_rate(dtype);
    rate = flops / seconds;
    ratios.push_back(rate / ((before + after) / 2));
    state.SetIterationTime(seconds);
  }
  state.counters["GFLOP/s"] = rate / 1e9;
  state.counters["ratio_to_gemm"] = account::median(ratios);
}
BENCHMARK_CAPTURE(decoder_step, fp32, DType::f32)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decoder_step, bf16, DType::bf16)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);

void report(benchmark::State& state, const engine::Setup& p) {
  std::vector<double> bound, exposed, overlap;
  for (auto _ : state) {
    const account::RunMetrics m = measure(p);
    state.SetIterationTime(m.step_ms.median / 1000);
    bound.push_back(m.bound_ratio.value());
    exposed.push_back(m.exposed_comm_ms);
    overlap.push_back(m.overlap_pct.value());
  }
  state.counters["step_over_bound"] = account::median(bound);
  state.counters["exposed_ms"] = account::median(exposed);
  state.counters["overlap_pct"] = account::median(overlap);
}

/// Real computation over a modelled link as long as it.
void step_over_bound(benchmark::State& state) {
  config::RunConfig c = decoder(static_cast<int>(state.range(0)), 4, 256);
  c.train.seq_len = 256;
  c.train.batch_per_rank = 1;
  c.train.steps = 8;
  c.emulate.link_gb_per_s = 1.0;
  c.emulate.link_latency_us = 20;
  report(state, engine::set_up(c));
}
BENCHMARK(step_over_bound)->Arg(1 + 1)->Arg(4)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);

/// Emulated computation too: any number of ranks on any machine.
void emulated_step(benchmark::State& state, config::Prefetch::Mode backward) {
  config::RunConfig c = decoder(static_cast<int>(state.range(0)), 8, 1024);
  c.train.seq_len = 256;
  c.train.batch_per_rank = 1;
  c.train.steps = 5;
  c.emulate.compute_tflops = 2;
  c.emulate.link_gb_per_s = 15;
  c.emulate.link_latency_us = 5;
  c.fsdp.backward_prefetch.mode = backward;
  report(state, engine::set_up(c));
}
BENCHMARK_CAPTURE(emulated_step, backward_prefetch_pre, config::Prefetch::Mode::pre)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emulated_step, backward_prefetch_none, config::Prefetch::Mode::none)
    ->Arg(8)
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdpbench
