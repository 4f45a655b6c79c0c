// What tracing costs on a GPU, in training steps of a decoder of 0.3 billion parameters (at most 1.02).
#include "backend/cuda/backend.h"
#include "base/error.h"
#include "shapes.h"
#include "tracing_cost.h"

namespace fsdpbench {
namespace {

using bench::kShrink, bench::kShrinkOfHeads;

config::RunConfig decoder() {
  config::RunConfig c;
  c.model.layers = 12 / kShrinkOfHeads;
  c.model.heads = 16 / kShrinkOfHeads;
  c.model.kv_heads = c.model.heads;
  c.model.width = c.model.heads * 64 / kShrinkOfHeads;
  c.model.ffn_width = 4096 / kShrink;
  c.model.vocab = 32768 / kShrink;
  c.fsdp.strategy = config::Strategy::no_shard;
  c.fsdp.param_dtype = DType::bf16;
  c.train.seq_len = 1024 / kShrink;
  c.train.batch_per_rank = 8 / kShrinkOfHeads;
  c.mesh = {1, 1, 1};
  return c;
}

/// Nanoseconds of `count` steps of a run of its own, after some that do not count.
std::vector<double> step_ns(backend::Backend& cuda, const engine::Setup& p, backend::Timer timer, bool record,
                            std::int64_t count) {
  constexpr std::int64_t kWarmup = bench::repetitions(10);
  const bench::CountingTokens tokens;
  std::vector<double> result;
  backend::BackendOptions options;
  options.ranks = 1;
  options.set<backend::CudaOptions>().timer = timer;
  options.pool_bytes = p.memory.reserved;
  cuda.run(options, [&](backend::RankContext& context) {
    engine::Executor executor(context, p.config, p.plan, p.schedules, *p.model, tokens);
    executor.initialize([&](int parameter, std::int64_t begin, std::span<float> out) {
      model::initialize_parameter(p.plan.shapes.parameters[static_cast<std::size_t>(parameter)], 1, begin,
                                  begin + static_cast<std::int64_t>(out.size()), out.data());
    });
    if (record) executor.start_recording(kWarmup + count);
    for (std::int64_t step = 0; step < kWarmup + count; ++step) {
      executor.run_step(step);
      if (step >= kWarmup) result.push_back(static_cast<double>(executor.last_step_ns()));
    }
  });
  return result;
}

/// Everything that CUPTI does, in a run that records over one before it that does not. The first, as CUPTI is not out
/// of a process again when it was switched off. The runs come one after the other: the clock of the GPU may drift.
void cuda_step_with_cupti_over_without(benchmark::State& state) {
  try {
    const engine::Setup p = engine::set_up(decoder());
    const auto cuda = backend::cuda::make_cuda_backend();
    constexpr std::int64_t kSteps = bench::repetitions(100);
    std::vector<double> without, with, ratios;
    for (auto _ : state) {
      without = step_ns(*cuda, p, backend::Timer::events, false, kSteps);
      with = step_ns(*cuda, p, backend::Timer::cupti, true, kSteps);
    }
    for (std::size_t i = 0; i < with.size(); ++i) ratios.push_back(with[i] / without[i]);
    const metrics::Summary ratio = metrics::summarize(ratios);
    state.counters["ratio"] = ratio.median;
    state.counters["ratio_low"] = ratio.ci_low;
    state.counters["ratio_high"] = ratio.ci_high;
    state.counters["with_us"] = metrics::median(with) / 1000;
    state.counters["without_us"] = metrics::median(without) / 1000;
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK(cuda_step_with_cupti_over_without)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

/// Steps whose ops are stamped over steps without, in turns. CUPTI, where it is the timer, records the device's work in
/// both: this is what our part of it costs.
void cuda_step_with_recording_over_without(benchmark::State& state) {
  try {
    bench::step_with_recording_over_without(state, *backend::cuda::make_cuda_backend(), decoder(),
                                            bench::repetitions(60));
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK(cuda_step_with_recording_over_without)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace
}  // namespace fsdpbench
