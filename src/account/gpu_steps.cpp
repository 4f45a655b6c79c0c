#include "account/gpu_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "account/caveats.h"
#include "account/statistics.h"
#include "base/median.h"

namespace fsdpbench::account {
namespace {

constexpr ClockLimits kByCap = bit(ClockLimit::power_cap) | bit(ClockLimit::sync_boost);

/// The upper of the middle ones; absent of none.
std::optional<std::int32_t> middle(std::vector<std::int32_t> values) {
  if (values.empty()) return std::nullopt;
  return upper_median(std::move(values));
}

template <class T>
void lower(std::optional<T>& least, const std::optional<T>& value) {
  if (value) least = least ? std::min(*least, *value) : *value;
}

GpuStep step_of(const GpuHealth& health, const trace::StepWindow& window) {
  GpuStep step;
  std::vector<std::int32_t> clocks;
  std::vector<std::int32_t> power;
  for (const GpuSample& sample : health.samples) {
    if (sample.until_ns < window.begin_ns || sample.time_ns >= window.end_ns) continue;
    ++step.samples;
    if (sample.sm_mhz) clocks.push_back(*sample.sm_mhz);
    if (sample.power_mw) power.push_back(*sample.power_mw);
    if (sample.temperature_c)
      step.temperature_c = std::max(step.temperature_c.value_or(INT32_MIN), *sample.temperature_c);
    lower(step.pcie_width, sample.pcie_width);
    lower(step.pcie_generation, sample.pcie_generation);
    step.limits |= sample.limits.value_or(0);
  }
  step.sm_mhz = middle(std::move(clocks));
  step.power_mw = middle(std::move(power));
  return step;
}

/// The steps in which one of `limits` held this rank's GPU, against those in which none did.
std::optional<Throttling> held_by(ClockLimits limits, const GpuHealth& health, const trace::RankTrace& trace) {
  Throttling found;
  found.rank = trace.rank;
  found.most_sm_mhz = health.limits.sm_mhz;
  std::vector<std::int32_t> clocks;
  std::vector<std::int32_t> other_clocks;
  std::vector<double> lengths;
  std::vector<double> other_lengths;
  const std::int32_t first = trace.records.empty() ? 0 : trace.records.front().step;
  const std::vector<GpuStep> steps = gpu_steps(health, trace.steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const GpuStep& step = steps[i];
    if (step.samples == 0) continue;
    ++found.seen;
    const bool held = (step.limits & limits) != 0;
    if (held) found.steps.push_back(first + static_cast<std::int32_t>(i));
    found.why |= step.limits & limits;
    if (step.sm_mhz) (held ? clocks : other_clocks).push_back(*step.sm_mhz);
    (held ? lengths : other_lengths).push_back(static_cast<double>(trace.steps[i].end_ns - trace.steps[i].begin_ns));
  }
  if (found.steps.empty()) return std::nullopt;
  found.sm_mhz = middle(std::move(clocks));
  found.other_sm_mhz = middle(std::move(other_clocks));
  if (lengths.size() >= kFewestOfEither && other_lengths.size() >= kFewestOfEither) {
    found.longer_pct = 100 * (median(std::move(lengths)) / median(std::move(other_lengths)) - 1);
  }
  return found;
}

}  // namespace

std::vector<GpuStep> gpu_steps(const GpuHealth& health, const std::vector<trace::StepWindow>& steps) {
  std::vector<GpuStep> all;
  for (const trace::StepWindow& window : steps) all.push_back(step_of(health, window));
  return all;
}

std::string limits_text(ClockLimits limits) {
  constexpr std::pair<ClockLimit, const char*> kNames[] = {
      {ClockLimit::power_cap, "power cap"},
      {ClockLimit::sync_boost, "clocks of its partners"},
      {ClockLimit::hardware_slowdown, "hardware slowdown"},
      {ClockLimit::software_thermal, "software thermal slowdown"},
      {ClockLimit::hardware_thermal, "hardware thermal slowdown"},
      {ClockLimit::power_brake, "power brake"},
      {ClockLimit::application_clocks, "application clocks"},
      {ClockLimit::display_clocks, "display clocks"},
  };
  std::vector<const char*> names;
  for (const auto& [limit, name] : kNames) {
    if ((limits & bit(limit)) != 0) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<Throttling> find_throttling(const std::vector<std::optional<GpuHealth>>& health,
                                        const std::vector<trace::RankTrace>& traces) {
  std::vector<Throttling> all;
  for (std::size_t rank = 0; rank < std::min(health.size(), traces.size()); ++rank) {
    if (!health[rank]) continue;
    if (auto throttled = held_by(kThrottles, *health[rank], traces[rank])) all.push_back(std::move(*throttled));
    auto capped = held_by(kByCap, *health[rank], traces[rank]);
    if (capped && capped->longer_pct.value_or(0) > kNoisyPct) all.push_back(std::move(*capped));
  }
  return all;
}

std::string to_string(const Throttling& t) {
  constexpr std::size_t kMostNamed = 8;
  std::string text = fmt::format("the GPU of rank {} {} ({}) in {} of {} steps", t.rank,
                                 (t.why & kThrottles) != 0 ? "throttled" : "was held down", limits_text(t.why),
                                 t.steps.size(), t.seen);
  if (t.steps.size() <= kMostNamed && static_cast<int>(t.steps.size()) < t.seen) {
    text += fmt::format(" ({})", fmt::join(t.steps, ", "));
  }
  if (t.sm_mhz) {
    text += fmt::format(": {} MHz", *t.sm_mhz);
    if (t.other_sm_mhz) text += fmt::format(" there, {} MHz in the others", *t.other_sm_mhz);
    if (t.most_sm_mhz) text += fmt::format(", of at most {}", *t.most_sm_mhz);
  }
  if (t.longer_pct) {
    text += fmt::format("; {} took {:.0f} % {}", t.steps.size() == 1 ? "it" : "they", std::abs(*t.longer_pct),
                        *t.longer_pct < 0 ? "less" : "longer");
  }
  return text;
}

}  // namespace fsdpbench::account
