// Costs of tracing on a GPU, in training steps of a decoder of 0.3 billion parameters (at most 1.02), and what
// watching the GPU costs.
#include <array>
#include <vector>

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

backend::CudaOptions timed_by(backend::Timer timer, bool monitor = true) {
  backend::CudaOptions options;
  options.timer = timer;
  options.monitor = monitor;
  return options;
}

/// Nanoseconds of `count` steps of a run of its own, after some that do not count.
std::vector<double> step_ns(backend::Backend& cuda, const engine::Setup& p, const backend::CudaOptions& how,
                            bool record, std::int64_t count) {
  constexpr std::int64_t kWarmup = bench::repetitions(10);
  const bench::CountingTokens tokens;
  std::vector<double> result;
  backend::BackendOptions options;
  options.ranks = 1;
  options.set<backend::CudaOptions>() = how;
  options.pool_bytes = p.pool_bytes;
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

/// The median of `one` over `other`, step by step, with its 95 % interval.
void show_ratio(benchmark::State& state, const std::string& name, const std::vector<double>& one,
                const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < one.size(); ++i) ratios.push_back(one[i] / other[i]);
  const account::Summary ratio = account::summarize(ratios);
  state.counters[name] = ratio.median;
  state.counters[name + "_low"] = ratio.ci_low;
  state.counters[name + "_high"] = ratio.ci_high;
}

/// Everything that CUPTI does, in a run that records over one before it that does not. The first, as CUPTI is not out
/// of a process again when it was switched off. The runs come one after the other: the clock of the GPU may drift.
void cuda_step_with_cupti_over_without(benchmark::State& state) {
  try {
    const engine::Setup p = engine::set_up(decoder());
    const auto cuda = backend::cuda::make_cuda_backend();
    constexpr std::int64_t kSteps = bench::repetitions(100);
    std::vector<double> without, with;
    for (auto _ : state) {
      without = step_ns(*cuda, p, timed_by(backend::Timer::events), false, kSteps);
      with = step_ns(*cuda, p, timed_by(backend::Timer::cupti), true, kSteps);
    }
    show_ratio(state, "ratio", with, without);
    state.counters["with_us"] = account::median(with) / 1000;
    state.counters["without_us"] = account::median(without) / 1000;
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

/// Cost for a step of a thread that asks NVML for the GPU's clocks, power and errors every 20 ms (device.monitor),
/// and as "same" the last run over the first, which is noise. Four runs: without, with, with, without, so that a clock
/// that drifts meets both alike.
void cuda_step_watched_over_unwatched(benchmark::State& state) {
  try {
    const engine::Setup p = engine::set_up(decoder());
    const auto cuda = backend::cuda::make_cuda_backend();
    std::array<std::vector<double>, 4> runs;
    for (auto _ : state) {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const bool watched = i == 1 || i == 2;
        runs[i] = step_ns(*cuda, p, timed_by(backend::Timer::events, watched), false, bench::repetitions(40));
      }
    }
    const auto both = [](std::vector<double> first, const std::vector<double>& second) {
      first.insert(first.end(), second.begin(), second.end());
      return first;
    };
    show_ratio(state, "ratio", both(runs[1], runs[2]), both(runs[0], runs[3]));
    show_ratio(state, "same", runs[3], runs[0]);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK(cuda_step_watched_over_unwatched)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace
}  // namespace fsdpbench
