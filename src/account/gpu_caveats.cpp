#include "account/gpu_caveats.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "hardware/xid.h"

namespace fsdpbench::account {
namespace {

/// The narrowest while it was watched.
std::optional<std::int32_t> width_of(const GpuHealth& health) {
  std::optional<std::int32_t> width;
  for (const GpuSample& sample : health.samples) {
    if (sample.pcie_width) width = width ? std::min(*width, *sample.pcie_width) : *sample.pcie_width;
  }
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
