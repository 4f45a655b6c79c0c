#include "metrics/expert_load.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace fsdpbench::metrics {

std::optional<double> expert_imbalance(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t ranks) {
  double sum = 0;
  for (const std::vector<std::int64_t>& block : rows) {
    const std::size_t parts = ranks == 1 ? block.size() : static_cast<std::size_t>(ranks);
    std::vector<std::int64_t> of_rank(parts);
    for (std::size_t e = 0; e < block.size(); ++e) of_rank[e / (block.size() / parts)] += block[e];
    const std::int64_t all = std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0});
    if (all == 0) return std::nullopt;
    sum += static_cast<double>(std::ranges::max(of_rank)) * static_cast<double>(parts) / static_cast<double>(all);
  }
  if (rows.empty()) return std::nullopt;
  return sum / static_cast<double>(rows.size());
}

}  // namespace fsdpbench::metrics
