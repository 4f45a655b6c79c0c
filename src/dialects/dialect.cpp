#include "dialects/dialect.h"

#include <algorithm>
#include <iterator>

namespace fsdpbench::dialects {

std::vector<KeyFate> Export::with(Fate fate) const {
  std::vector<KeyFate> found;
  std::ranges::copy_if(keys, std::back_inserter(found), [&](const KeyFate& key) { return key.said.fate == fate; });
  return found;
}

std::vector<int> ExportSource::blocks_of_units() const {
  std::vector<int> counts;
  for (std::size_t u = 1; u < plan.units.size(); ++u) {
    if (plan.units[u].label() != "T") counts.push_back(static_cast<int>(plan.units[u].members.modules.size()));
  }
  return counts;
}

std::int64_t ExportSource::largest_unit() const {
  std::int64_t largest = 0;
  for (std::size_t u = plan.units.size() > 1 ? 1 : 0; u < plan.units.size(); ++u) {
    std::int64_t elements = 0;
    for (const int p : plan.units[u].members.parameters) {
      elements += plan.shapes.parameters[static_cast<std::size_t>(p)].numel();
    }
    largest = std::max(largest, elements);
  }
  return largest;
}

}  // namespace fsdpbench::dialects
