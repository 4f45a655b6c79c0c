#include "account/peers_arrived.h"

#include <algorithm>
#include <cstdint>

#include "account/run_view.h"

namespace fsdpbench::account {

void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Groups& groups,
                        std::vector<trace::RankTrace>& traces) {
  std::vector<std::int64_t> latest;  // begin, by group
  std::size_t first = 0;             // record of the step
  const RunView run(schedules, traces);
  for (const StepRecords& step : run.steps()) {
    const std::vector<schedule::Op>& ops = step.schedule().ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const schedule::Op& op = ops[i];
      if (!op.is_collective()) continue;
      latest.assign(static_cast<std::size_t>(groups.count(op.group())), 0);
      const auto of = [&](std::size_t rank) -> std::int64_t& {
        return latest[static_cast<std::size_t>(groups.number(op.group(), static_cast<int>(rank)))];
      };
      for (std::size_t rank = 0; rank < traces.size(); ++rank) {
        of(rank) = std::max(of(rank), traces[rank].records[first + i].begin_ns);
      }
      for (std::size_t rank = 0; rank < traces.size(); ++rank) {
        trace::Record& r = traces[rank].records[first + i];
        if (r.peers_arrived_ns == 0) r.peers_arrived_ns = std::clamp(of(rank), r.begin_ns, r.end_ns);
      }
    }
    first += ops.size();
  }
}

}  // namespace fsdpbench::account
