#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fsdpbench::account {

/// How unevenly the rows of a training came to the ranks that split its experts, as mesh.expert_imbalance counts it:
/// those of the busiest rank over the mean, the mean over blocks. `rows`: [block][expert], summed over steps
/// (engine::Measurement::expert_rows); `ranks` have neighbouring experts each, as many; 1: each expert counts as a
/// rank. Single exchanges are less even than their sum. Absent where there are no rows.
std::optional<double> expert_imbalance(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t ranks);

}  // namespace fsdpbench::account
