#include "account/expert_load.h"

#include <iterator>

#include "config/run_config.h"

namespace fsdpbench::account {

std::optional<double> expert_imbalance(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t ranks) {
  double sum = 0;
  for (const std::vector<std::int64_t>& block : rows) {
    const std::vector<double> visits(block.begin(), block.end());
    const double imbalance = config::busiest_over_mean(visits, ranks == 1 ? std::ssize(visits) : ranks);
    if (imbalance == 0) return std::nullopt;
    sum += imbalance;
  }
  if (rows.empty()) return std::nullopt;
  return sum / static_cast<double>(rows.size());
}

}  // namespace fsdpbench::account
