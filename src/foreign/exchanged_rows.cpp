#include "foreign/exchanged_rows.h"

#include <algorithm>

namespace fsdpbench::foreign {

std::optional<ExchangedRows> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives) {
  ExchangedRows rows;
  std::int64_t sum = 0;
  for (const MatchedCollective::Part& part : one.parts) {
    const RankRows& rank = job.ranks[static_cast<std::size_t>(part.rank)];
    const std::int32_t facts = rank.device[static_cast<std::size_t>(part.row)].collective;
    if (facts < 0) return std::nullopt;
    const CollectiveFacts& told = rank.collectives[static_cast<std::size_t>(facts)];
    const std::int64_t size =
        told.group < 0 ? rank.world_size.value_or(0) : rank.groups[static_cast<std::size_t>(told.group)].size;
    const std::int64_t elements = receives ? told.elements_out : told.elements_in;
    if (elements < 0 || size != static_cast<std::int64_t>(one.parts.size())) return std::nullopt;
    sum += elements;
    rows.by_part.push_back(elements);
  }
  rows.busiest = static_cast<std::size_t>(std::ranges::max_element(rows.by_part) - rows.by_part.begin());
  rows.mean = static_cast<double>(sum) / static_cast<double>(one.parts.size());
  return rows;
}

}  // namespace fsdpbench::foreign
