#include "engine/root_clock.h"

#include <initializer_list>

namespace fsdpbench::engine {

void move_to_root_clock(trace::RankTrace& trace, const launch::ClockCorrection& clock) {
  if (clock.same_clock()) return;
  const auto move = [&](std::initializer_list<std::int64_t*> times) {
    for (std::int64_t* time : times) {
      if (*time != 0) *time = clock.to_root(*time);
    }
  };
  for (trace::StepWindow& w : trace.steps) move({&w.begin_ns, &w.end_ns, &w.issued_ns});
  for (trace::Record& r : trace.records) move({&r.issued_ns, &r.begin_ns, &r.end_ns, &r.peers_arrived_ns});
  for (trace::MemorySample& s : trace.memory) move({&s.time_ns});
  for (Activity& a : trace.activities) move({&a.begin_ns, &a.end_ns, &a.launch_begin_ns, &a.launch_end_ns});
}

}  // namespace fsdpbench::engine
