#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdpbench::bench {

inline constexpr int kWarmUps = 3;
inline constexpr int kRounds = 15;

/// Seconds of a collective, and of plain work on as many bytes before and after each; empty elsewhere than at rank 0.
struct Measured {
  std::vector<double> collective_s;
  std::vector<double> plain_s;
  std::vector<double> plain_again_s;  ///< the limit against itself: the noise of the ratio
};

/// Median; 0 of no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// target = the sum of 2 or 4 sources.
inline void plain_sum(std::span<const float* const> sources, float* target, std::int64_t count) {
  const float* a = sources[0];
  const float* b = sources[1];
  if (sources.size() == 2) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) target[i] = a[i] + b[i];
  } else {
    const float* c = sources[2];
    const float* d = sources[3];
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) target[i] = a[i] + b[i] + c[i] + d[i];
  }
}

/// Plain work, collective, plain work again, in rounds; `timed(work, seconds, keep)` runs one and keeps its time. Each
/// goes once unmeasured before: what it finds in the caches is then its own, not what the other side left there.
template <class Timed, class Plain, class Collective>
void measure_rounds(const Timed& timed, const Plain& plain, const Collective& collective, Measured& measured) {
  for (int round = 0; round < kWarmUps + kRounds; ++round) {
    timed(plain, measured.plain_s, false);
    timed(plain, measured.plain_s, round >= kWarmUps);
    timed(collective, measured.collective_s, false);
    timed(collective, measured.collective_s, round >= kWarmUps);
    timed(plain, measured.plain_again_s, false);
    timed(plain, measured.plain_again_s, round >= kWarmUps);
  }
}

/// Time and bus bandwidth of a collective of `bytes` a rank, and the limit over it.
template <class Measure>
void report_against_plain(benchmark::State& state, int ranks, std::int64_t bytes, const Measure& measure) {
  std::vector<double> ratios;
  std::vector<double> noise;
  for (auto _ : state) {
    const Measured m = measure();
    state.SetIterationTime(median(m.collective_s));
    for (std::size_t i = 0; i < m.collective_s.size(); ++i) {
      ratios.push_back((m.plain_s[i] + m.plain_again_s[i]) / 2 / m.collective_s[i]);
      noise.push_back(m.plain_s[i] / m.plain_again_s[i]);
    }
    state.counters["busbw_GB_s"] = static_cast<double>(bytes * (ranks - 1)) / median(m.collective_s) * 1e-9;
  }
  state.counters["ratio_to_plain"] = median(ratios);
  state.counters["plain_to_itself"] = median(noise);
}

}  // namespace fsdpbench::bench
