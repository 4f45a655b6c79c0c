#include "replay/op_times.h"

#include <algorithm>

namespace fsdpbench::replay {

bool too_long(const OpTimes& times) {
  constexpr double kLongest_ns = 9007199254740992.0;  // 2^53
  const auto slowest = [](const std::vector<double>& factors) {
    return factors.empty() ? 1.0 : *std::ranges::max_element(factors);
  };
  const double run = slowest(times.compute_factor), link = slowest(times.link_factor);
  return std::ranges::any_of(times.steps, [&](const StepCosts& costs) {
    double sum = 0;
    for (const OpCost& cost : costs) sum += cost.run_ns * run + cost.link_ns * link;
    return !(sum <= kLongest_ns);
  });
}

}  // namespace fsdpbench::replay
