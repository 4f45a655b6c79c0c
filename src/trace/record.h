#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/activity.h"
#include "base/lane.h"
#include "base/memory_category.h"

namespace fsdpbench::trace {

/// When one op of the schedule ran on one rank. Times are base/clock.h nanoseconds.
struct Record {
  std::int32_t step = 0;
  std::int32_t op = 0;                ///< index into that step's schedule
  std::int64_t issued_ns = 0;         ///< the host began to issue it
  std::int64_t begin_ns = 0;          ///< 0 for host ops and ops without work
  std::int64_t end_ns = 0;            ///< host ops: the wait was over
  std::int64_t peers_arrived_ns = 0;  ///< collectives: the last rank had arrived; else 0
  std::int64_t core_wait_ns = 0;      ///< so long before begin_ns its lane was ready and had no core; 0: not known
  std::int64_t link_ns = 0;           ///< collectives: so long from peers_arrived_ns its own link took; 0: not known
};

/// Live bytes in issue order, sampled after every op that allocates or frees.
struct MemorySample {
  std::int64_t time_ns = 0;
  CategoryBytes live{};
  std::int64_t reserved = 0;
};

struct StepWindow {
  std::int64_t begin_ns = 0;   ///< the host began to issue the step
  std::int64_t end_ns = 0;     ///< every lane was idle again
  std::int64_t issued_ns = 0;  ///< the host had issued the whole step; 0: not known
};

/// What one rank did, step by step.
struct RankTrace {
  int rank = 0;
  std::vector<StepWindow> steps;
  std::vector<Record> records;  ///< in issue order
  std::vector<MemorySample> memory;
  std::vector<Activity> activities;  ///< the device's own records, where it has a profiler; step after step
  std::vector<std::string> activity_names;
};

}  // namespace fsdpbench::trace
