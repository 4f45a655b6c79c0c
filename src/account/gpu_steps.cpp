#include "account/gpu_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "account/caveats.h"
#include "account/statistics.h"
#include "base/student.h"
#include "hardware/gpu_health.h"

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
    text += fmt::format("; they took {:.0f} % {}", std::abs(*t.longer_pct), *t.longer_pct < 0 ? "less" : "longer");
  }
  return text;
}
namespace {

/// The narrowest while it was watched.
std::optional<std::int32_t> width_of(const GpuHealth& health) {
  std::optional<std::int32_t> width;
  for (const GpuSample& sample : health.samples) lower(width, sample.pcie_width);
  return width;
}

}  // namespace

std::vector<std::string> gpu_complaints(const GpuHealth& health) {
  std::vector<std::string> all;
  // One that was never asked is no complaint about the GPU.
  if (!health.samples.empty() && !health.unknown_because.empty()) {
    all.push_back("is lost: the driver has no answer from it");
  }
  std::map<std::uint64_t, int> times;
  for (const GpuXid& xid : health.xids) ++times[xid.code];
  for (const auto& [code, count] : times) all.push_back("reported " + xid_text(code, count));
  const auto counted = [&](const std::optional<std::uint64_t>& count, const char* what) {
    if (count.value_or(0) > 0) all.push_back(fmt::format("counted {} {}", *count, what));
  };
  counted(health.errors.ecc_uncorrected, "uncorrected memory errors (ECC)");
  counted(health.errors.nvlink_recoveries, "recoveries of NVLinks");
  counted(health.errors.nvlink_replays, "replays on NVLinks");
  counted(health.errors.nvlink_crc, "checksum errors on NVLinks");
  const std::optional<std::int32_t> width = width_of(health);
  if (width && health.limits.pcie_width && *width < *health.limits.pcie_width) {
    all.push_back(fmt::format("has a PCIe link of {} lanes where {} are possible", *width, *health.limits.pcie_width));
  }
  return all;
}

std::vector<std::string> gpu_caveats(const std::vector<std::optional<GpuHealth>>& health,
                                     const std::vector<Throttling>& throttled) {
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < health.size(); ++rank) {
    if (!health[rank]) continue;
    for (const std::string& complaint : gpu_complaints(*health[rank])) {
      all.push_back(fmt::format("the GPU of rank {} {}", rank, complaint));
    }
  }
  for (const Throttling& t : throttled) all.push_back("throttled: " + to_string(t));
  return all;
}

std::vector<std::string> clock_caveats(const std::vector<std::int64_t>& early_ns) {
  const auto worst = std::ranges::max_element(early_ns);
  if (worst == early_ns.end() || *worst <= 0) return {};
  return {fmt::format(
      "the clocks of host and GPU differ: ops and kernels seemed to begin up to {:.1f} us before they were issued "
      "(rank {}), and are taken to begin when they were; what is shorter than that says nothing of waiting",
      static_cast<double>(*worst) / 1e3, worst - early_ns.begin())};
}

}  // namespace fsdpbench::account
