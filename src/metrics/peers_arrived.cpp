#include "metrics/peers_arrived.h"

#include <algorithm>
#include <cstdint>

namespace fsdpbench::metrics {

void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Groups& groups,
                        std::vector<trace::RankTrace>& traces) {
  std::vector<std::int64_t> latest;  // begin, by group
  for (std::size_t i = 0; i < traces.front().records.size(); ++i) {
    const trace::Record& any = traces.front().records[i];
    const schedule::Op& op =
        schedules.of_step(static_cast<std::size_t>(any.step)).ops[static_cast<std::size_t>(any.op)];
    if (!op.is_collective()) continue;
    latest.assign(static_cast<std::size_t>(groups.count(op.group())), 0);
    const auto of = [&](std::size_t rank) -> std::int64_t& {
      return latest[static_cast<std::size_t>(groups.number(op.group(), static_cast<int>(rank)))];
    };
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      of(rank) = std::max(of(rank), traces[rank].records[i].begin_ns);
    }
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      trace::Record& r = traces[rank].records[i];
      if (r.peers_arrived_ns == 0) r.peers_arrived_ns = std::clamp(of(rank), r.begin_ns, r.end_ns);
    }
  }
}

}  // namespace fsdpbench::metrics
