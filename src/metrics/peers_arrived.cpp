#include "metrics/peers_arrived.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "metrics/peers.h"

namespace fsdpbench::metrics {
namespace {

using schedule::Group;

/// By rank, the first rank of its group.
std::vector<std::size_t> first_members(Group group, const plan::Mesh& mesh, int reshard_group, std::size_t ranks) {
  std::vector<std::size_t> first(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    while (!same_group(group, mesh, reshard_group, static_cast<int>(first[rank]), static_cast<int>(rank))) ++first[rank];
  }
  return first;
}

}  // namespace

void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Mesh& mesh, int reshard_group,
                        std::vector<trace::RankTrace>& traces) {
  const std::size_t ranks = traces.size();
  std::array<std::vector<std::size_t>, schedule::kGroupCount> first;  // found when needed: a plan may lack a group
  std::vector<std::int64_t> latest(ranks);
  for (std::size_t i = 0; i < traces.front().records.size(); ++i) {
    const trace::Record& any = traces.front().records[i];
    const schedule::Op& op =
        schedules.of_step(static_cast<std::size_t>(any.step)).ops[static_cast<std::size_t>(any.op)];
    if (!op.is_collective()) continue;
    std::vector<std::size_t>& members = first[static_cast<std::size_t>(op.group)];
    if (members.empty()) members = first_members(op.group, mesh, reshard_group, ranks);
    std::fill(latest.begin(), latest.end(), 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::int64_t& group_latest = latest[members[rank]];
      group_latest = std::max(group_latest, traces[rank].records[i].begin_ns);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      trace::Record& r = traces[rank].records[i];
      if (r.peers_arrived_ns == 0) r.peers_arrived_ns = std::clamp(latest[members[rank]], r.begin_ns, r.end_ns);
    }
  }
}

}  // namespace fsdpbench::metrics
