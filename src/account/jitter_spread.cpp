#include "account/jitter_spread.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fsdpbench::account {

JitterSpread jitter_spread(std::vector<double> steps_ms, double without_jitter_ms) {
  std::ranges::sort(steps_ms);
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(steps_ms.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, steps_ms.size() - 1);
    return std::lerp(steps_ms[low], steps_ms[high], at - static_cast<double>(low));
  };
  return {quantile(0.5), quantile(0.95), quantile(0.99), without_jitter_ms};
}

}  // namespace fsdpbench::account
