// Costs of the CPU device itself: issuing an op to a busy lane (should be at most 2 us), events, and how well
// modelled transfers and emulated compute meet their times (transfers should be within 2 % from 100 us up).

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/lane_worker.h"
#include "base/clock.h"

namespace fsdpbench::backend {
namespace {

cpu::CpuBackend make_backend() {
  return cpu::CpuBackend([] { return std::make_unique<cpu::EmulatedKernels>(1e12); });
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

/// Nanoseconds a call, over as many calls as a lane's queue holds while `busy` keeps it from draining.
template <class Call>
double ns_per_call(Device& device, Call call) {
  constexpr int kCalls = cpu::LaneWorker::kCapacity / 2;
  std::atomic<bool> release{false};
  device.enqueue(
      Lane::compute, "busy",
      [&](Kernels&) {
        while (!release) std::this_thread::yield();
      },
      nullptr);
  const std::int64_t begin = now_ns();
  for (int i = 0; i < kCalls; ++i) call(i);
  const std::int64_t end = now_ns();
  release = true;
  device.synchronize();
  return static_cast<double>(end - begin) / kCalls;
}

template <class Measure>
void report_ns_per_call(benchmark::State& state, Measure measure) {
  std::vector<double> samples;
  for (auto _ : state) {
    BackendOptions options;
    make_backend().run(options, [&](RankContext& rank) { samples.push_back(measure(rank.device)); });
    state.SetIterationTime(samples.back() * 1e-9);
  }
  state.counters["median_ns"] = quantile(samples, 0.5);
  state.counters["p90_ns"] = quantile(samples, 0.9);
}

/// As large a capture as an executor's op needs, which the std::function must allocate.
void issue_to_busy_lane(benchmark::State& state) {
  report_ns_per_call(state, [](Device& device) {
    std::vector<Stamp> stamps(cpu::LaneWorker::kCapacity);
    return ns_per_call(device, [&](int i) {
      const std::int64_t a = i;
      const std::int64_t b = 2 * i;
      const std::int64_t c = 3 * i;
      device.enqueue(
          Lane::compute, "op", [a, b, c](Kernels&) { benchmark::DoNotOptimize(a + b + c); },
          &stamps[static_cast<std::size_t>(i)]);
    });
  });
}

void record_and_wait(benchmark::State& state) {
  report_ns_per_call(state, [](Device& device) {
    return ns_per_call(device, [&](int i) {
      device.record(i, Lane::compute);
      device.wait(Lane::all_gather, i);
    });
  });
}

void allocate_and_free(benchmark::State& state) {
  report_ns_per_call(state, [](Device& device) {
    return ns_per_call(device, [&](int) {
      device.free(device.allocate(1 << 20, MemoryCategory::activations, Lane::compute), Lane::compute);
    });
  });
}

void set_error_counters(benchmark::State& state, const std::vector<double>& took_us, double expected_us) {
  std::vector<double> error_percent;
  for (const double us : took_us) error_percent.push_back((us / expected_us - 1.0) * 100.0);
  state.counters["expected_us"] = expected_us;
  state.counters["error_pct_median"] = quantile(error_percent, 0.5);
  state.counters["error_pct_p10"] = quantile(error_percent, 0.1);
  state.counters["error_pct_p90"] = quantile(error_percent, 0.9);
}

/// An all-gather from the moment all ranks have arrived to the end on the slowest; both emulated, so that nothing but
/// the link is measured. Half of the time is latency.
void modelled_link(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const double expected_us = static_cast<double>(state.range(1));
  constexpr int kWarmUps = 20;
  constexpr int kRounds = 200;
  constexpr std::int64_t kCount = 1 << 20;
  BackendOptions options;
  options.ranks = ranks;
  options.set<CpuOptions>().compute_flops_per_s = 1e12;
  options.set<CpuOptions>().link =
      LinkModel{.bytes_per_second = static_cast<double>(4 * kCount * (ranks - 1)) / (expected_us * 0.5e-6),
                .latency_seconds = expected_us * 0.5e-6 / (ranks - 1)};
  std::vector<std::vector<Stamp>> stamps(static_cast<std::size_t>(ranks), std::vector<Stamp>(kWarmUps + kRounds));
  std::vector<double> took_us;      // until the slowest rank
  std::vector<double> any_rank_us;  // each rank on its own
  for (auto _ : state) {
    make_backend().run(options, [&](RankContext& rank) {
      for (Stamp& stamp : stamps[static_cast<std::size_t>(rank.rank)]) {
        rank.world.all_gather(Lane::all_gather, nullptr, nullptr, kCount, DType::f32, &stamp);
      }
      rank.device.synchronize();
    });
    for (std::size_t i = kWarmUps; i < kWarmUps + kRounds; ++i) {
      std::int64_t end = 0;
      for (const auto& of_rank : stamps) {
        end = std::max(end, of_rank[i].end_ns);
        any_rank_us.push_back(static_cast<double>(of_rank[i].end_ns - of_rank[i].peers_arrived_ns) * 1e-3);
      }
      took_us.push_back(static_cast<double>(end - stamps[0][i].peers_arrived_ns) * 1e-3);
    }
    state.SetIterationTime(quantile(took_us, 0.5) * 1e-6);
  }
  set_error_counters(state, took_us, expected_us);
  state.counters["error_pct_any_rank"] = (quantile(any_rank_us, 0.5) / expected_us - 1.0) * 100.0;
}

void emulated_compute(benchmark::State& state) {
  const auto expected_us = static_cast<double>(state.range(0));
  BackendOptions options;
  options.set<CpuOptions>().compute_flops_per_s = 1e9;
  std::vector<Stamp> stamps(200);
  std::vector<double> took_us;
  for (auto _ : state) {
    make_backend().run(options, [&](RankContext& rank) {
      for (Stamp& stamp : stamps) {
        rank.device.enqueue(
            Lane::compute, "gemm", [&](Kernels& kernels) { kernels.gemm({.m = state.range(0) * 500, .n = 1, .k = 1}); },
            &stamp);
      }
      rank.device.synchronize();
    });
    for (const Stamp& stamp : stamps) took_us.push_back(static_cast<double>(stamp.end_ns - stamp.begin_ns) * 1e-3);
    state.SetIterationTime(quantile(took_us, 0.5) * 1e-6);
  }
  set_error_counters(state, took_us, expected_us);
}

BENCHMARK(issue_to_busy_lane)->UseManualTime()->Iterations(20);
BENCHMARK(record_and_wait)->UseManualTime()->Iterations(20);
BENCHMARK(allocate_and_free)->UseManualTime()->Iterations(20);
BENCHMARK(modelled_link)
    ->ArgNames({"ranks", "us"})
    ->ArgsProduct({{2, 4, 8}, {100, 1000, 10000}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(emulated_compute)
    ->ArgNames({"us"})
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10000)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace fsdpbench::backend
