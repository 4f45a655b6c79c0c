#include "accept/stages/gpu_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "account/gpu_steps.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;

constexpr const char *kGpuRule = "GPU", *kGpus = "GPUs";

/// Nobody is slow for having nothing to do.
bool works(ClockLimits limits) { return (limits & bit(ClockLimit::idle)) == 0; }

std::string throttling_text(const WatchedGpu& gpu) {
  return fmt::format("throttled ({}) in {:.0f} % of the samples{}", account::limits_text(gpu.limits & kThrottles),
                     100 * gpu.throttled, gpu.sm_mhz ? fmt::format(", at {} MHz", *gpu.sm_mhz) : "");
}

}  // namespace

std::optional<WatchedGpu> watched_gpu(const std::optional<GpuHealth>& health) {
  if (!health) return std::nullopt;
  WatchedGpu gpu;
  if (health->samples.empty()) {
    gpu.unknown_because = health->unknown_because.empty() ? "It was never sampled." : health->unknown_because;
    return gpu;
  }
  std::vector<std::int32_t> clocks;
  std::vector<std::int32_t> throttled_clocks;
  std::size_t throttled = 0;
  for (const GpuSample& sample : health->samples) {
    const ClockLimits limits = sample.limits.value_or(0);
    gpu.limits |= limits & ~bit(ClockLimit::idle);
    const bool throttles = (limits & kThrottles) != 0;
    throttled += throttles ? 1 : 0;
    if (!sample.sm_mhz) continue;
    if (throttles) throttled_clocks.push_back(*sample.sm_mhz);
    if (works(limits)) clocks.push_back(*sample.sm_mhz);
  }
  std::vector<std::int32_t>& of = throttled_clocks.empty() ? clocks : throttled_clocks;
  if (!of.empty()) {
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
    std::ranges::nth_element(of, middle);
    gpu.sm_mhz = *middle;
  }
  gpu.throttled = static_cast<double>(throttled) / static_cast<double>(health->samples.size());
  gpu.complaints = account::gpu_complaints(*health);
  return gpu;
}

void add_watched(std::vector<std::optional<WatchedGpu>>& so_far, const std::vector<std::optional<GpuHealth>>& now) {
  if (so_far.size() < now.size()) so_far.resize(now.size());
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    std::optional<WatchedGpu> more = watched_gpu(now[rank]);
    if (!more || (so_far[rank] && !more->unknown_because.empty())) continue;
    std::optional<WatchedGpu>& gpu = so_far[rank];
    if (!gpu || !gpu->unknown_because.empty()) {
      gpu = std::move(more);
      continue;
    }
    gpu->limits |= more->limits;
    if (more->throttled > gpu->throttled) {
      gpu->throttled = more->throttled;
      gpu->sm_mhz = more->sm_mhz;
    }
    for (std::string& complaint : more->complaints) {
      if (std::ranges::find(gpu->complaints, complaint) == gpu->complaints.end()) {
        gpu->complaints.push_back(std::move(complaint));
      }
    }
  }
}

// clang-format off
template <>
Fields<WatchedGpu> declared() {
  using G = WatchedGpu;
  return {"WatchedGpu", "State of a rank's GPU during the run.", "accept/stages/gpu_watch.h", {
    {"unknown_because", &G::unknown_because, "", "why nothing is known of it", if_any},
    {"limits", &G::limits, "", "bits of what held its clocks down"},
    {"throttled", &G::throttled, "", "share of all samples in which it throttled", check_share},
    {"sm_mhz", &G::sm_mhz, "MHz", "its clock then"},
    {"complaints", &G::complaints, "", "what it reported"},
  }};
}
// clang-format on

std::vector<std::pair<std::string, std::string>> gpu_settings(const GpuHealth& health) {
  std::vector<std::pair<std::string, std::string>> all;
  const GpuLimits& l = health.limits;
  if (l.sm_mhz) all.emplace_back("GPU clock at most", fmt::format("{} MHz", *l.sm_mhz));
  if (l.power_mw) all.emplace_back("GPU power limit", fmt::format("{} W", *l.power_mw / 1000));
  if (l.pcie_width && l.pcie_generation) {
    all.emplace_back("GPU PCIe at most", fmt::format("{} lanes, generation {}", *l.pcie_width, *l.pcie_generation));
  }
  if (l.ecc) all.emplace_back("GPU ECC", *l.ecc ? "on" : "off");
  return all;
}

std::vector<Judgement> judge_gpus(const std::vector<std::optional<WatchedGpu>>& gpus,
                                  const std::vector<std::string>& hosts) {
  std::vector<Judgement> all;
  int known = 0;
  std::string unknown;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    if (!gpus[rank]) continue;
    const WatchedGpu& gpu = *gpus[rank];
    if (!gpu.unknown_because.empty()) {
      if (unknown.empty())
        unknown = fmt::format("rank {}: {}", rank, gpu.unknown_because.substr(0, gpu.unknown_because.size() - 1));
      continue;
    }
    const auto add = [&](Verdict verdict, const std::string& what) {
      all.push_back(accept::judged(kGpuRule, kGpus, verdict,
                                   fmt::format("the GPU of rank {} on {} {}", rank, hosts.at(rank), what)));
      all.back().part = fmt::format("rank {}", rank);
      all.back().ranks = {static_cast<int>(rank)};
    };
    for (const std::string& complaint : gpu.complaints) add(Verdict::fail, complaint);
    if (gpu.throttled > 0) {
      add(gpu.throttled > kShortly ? Verdict::fail : Verdict::inconclusive, throttling_text(gpu));
    }
    ++known;
  }
  if (!unknown.empty()) all.push_back(accept::judged(kGpuRule, kGpus, Verdict::unrated, unknown));
  if (known > 0 && all.empty()) {
    all.push_back(accept::judged(kGpuRule, kGpus, Verdict::pass,
                                 fmt::format("{} GPUs throttled nowhere and reported no error", known)));
  }
  return all;
}

void name_throttling(std::vector<accept::Finding>& findings, const std::vector<std::optional<WatchedGpu>>& gpus) {
  for (accept::Finding& finding : findings) {
    const std::size_t rank = finding.element.index;
    if (finding.element.kind != accept::Element::Kind::gpu || rank >= gpus.size() || !gpus[rank]) continue;
    const WatchedGpu& gpu = *gpus[rank];
    if (gpu.throttled > 0) {
      finding.evidence += "; its GPU " + throttling_text(gpu);
      finding.check = "its cooling and power: fans, inlet air, power supplies, the chassis' power limit";
    } else if ((gpu.limits & bit(ClockLimit::power_cap)) != 0) {
      finding.evidence +=
          fmt::format("; its GPU met its power limit{}", gpu.sm_mhz ? fmt::format(", at {} MHz", *gpu.sm_mhz) : "");
    }
  }
}

}  // namespace fsdpbench::app
