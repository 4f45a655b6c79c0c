#include "replay/uncertainty.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fsdpbench::replay {

std::string_view to_string(Reach reach) {
  constexpr std::array<std::string_view, kReachCount> kNames{"measured", "interpolated", "extrapolated"};
  return kNames.at(static_cast<std::size_t>(reach));
}

Reach least_sure(const ReachCounts& ops) {
  std::size_t reach = kReachCount - 1;
  while (reach > 0 && ops[reach] == 0) --reach;
  return static_cast<Reach>(reach);
}

Bounds interval_around(double predicted, double walked, const std::vector<double>& draws, double miss) {
  const auto [least, greatest] = std::ranges::minmax(draws);
  const double middle = predicted + (least + greatest) / 2 - walked, half = std::hypot((greatest - least) / 2, miss);
  return {std::max(0.0, middle - half), middle + half};
}

double next_within(const std::vector<double>& values) {
  // Of 97.5 %, by degrees of freedom; beyond the table its last value errs on the safe side.
  static constexpr std::array<double, 30> kStudent{
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
      2.120,  2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  double squares = 0;
  for (const double value : values) squares += value * value;
  return kStudent.at(std::min(values.size(), kStudent.size()) - 1) *
         std::sqrt(squares / static_cast<double>(values.size()));
}

OpTimes drawn(OpTimes times, const Uncertainty& uncertainty, int draw) {
  const auto number = static_cast<std::size_t>(draw);
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    for (std::size_t op = 0; op < times.steps[step].size(); ++op) {
      const int source = uncertainty.source[step][op];
      if (source < 0) continue;
      const double ratio = uncertainty.ratios[static_cast<std::size_t>(source)][number];
      OpCost& cost = times.steps[step][op];
      cost.run_ns = std::nearbyint(cost.run_ns * ratio);
      cost.link_ns = std::nearbyint(cost.link_ns * ratio);
    }
  }
  if (uncertainty.host.empty()) return times;
  for (double HostCosts::*cost :
       {&HostCosts::issue_ns, &HostCosts::launch_ns, &HostCosts::gap_ns, &HostCosts::wake_ns}) {
    times.host.*cost = std::max(0.0, std::nearbyint(times.host.*cost + uncertainty.host[number].*cost));
  }
  return times;
}

}  // namespace fsdpbench::replay
