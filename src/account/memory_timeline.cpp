#include "account/memory_timeline.h"

#include <algorithm>

#include "account/step_view.h"

namespace fsdpbench::account {

std::vector<MemoryLevel> memory_timeline(const StepRecords& step, int rank) {
  const StepView view(step, rank);
  const std::vector<schedule::Buffer>& buffers = step.schedule().buffers;
  struct Change {
    std::int64_t time_ns;
    MemoryCategory category;
    std::int64_t bytes;
  };
  std::vector<Change> changes;
  const auto change = [&](std::int64_t time_ns, schedule::BufferId id, int sign) {
    const schedule::Buffer& b = buffers[static_cast<std::size_t>(id)];
    changes.push_back({time_ns, b.category, sign * b.bytes});
  };
  for (int i = 0; i < view.size(); ++i) {
    for (const schedule::BufferId id : view.op(i).allocates) change(view.record(i).begin_ns, id, 1);
    for (const schedule::BufferId id : view.op(i).frees) change(view.done(i), id, -1);
  }
  std::ranges::stable_sort(changes, {}, &Change::time_ns);

  std::vector<MemoryLevel> levels(1);
  for (const schedule::Buffer& b : buffers) {
    if (b.persistent) levels.front().live[index_of(b.category)] += b.bytes;
  }
  for (const Change& c : changes) {
    MemoryLevel level = levels.back();
    level.time_ns = c.time_ns - view.window().begin_ns;
    level.live[index_of(c.category)] += c.bytes;
    levels.push_back(level);
  }
  return levels;
}

}  // namespace fsdpbench::account
