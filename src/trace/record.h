#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/lane.h"
#include "base/memory_space.h"
#include "trace/event_reader.h"
#include "trace/fields.h"

namespace fsdpbench::trace {

/// Times of one op of the schedule on one rank, in base/clock.h nanoseconds.
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

/// Records of one rank, step by step.
struct RankTrace {
  int rank = 0;
  std::vector<StepWindow> steps;
  std::vector<Record> records;  ///< in issue order
  std::vector<MemorySample> memory;
  std::vector<Activity> activities;  ///< the device's own records, where it has a profiler; step after step
  std::vector<std::string> activity_names;
};

/// Writes facts of an op's record beside its begin and end as args of the event that is open.
inline void write_record_args(EventStream& events, const Record& record) {
  if (record.peers_arrived_ns > 0) {
    events.arg_duration(field::kWaitedForPeers, std::max<std::int64_t>(0, record.peers_arrived_ns - record.begin_ns));
  }
  if (record.link_ns > 0) events.arg_duration(field::kOwnLink, record.link_ns);
  if (record.core_wait_ns > 0) events.arg_duration(field::kWaitedForCore, record.core_wait_ns);
}

/// The tracks of a process in trace.json, as FORMAT.md has them.
inline constexpr int kHostTid = 1;  // tracks 2… are lanes; Perfetto takes 0 for the process itself
inline constexpr int kFirstLanes = 5;
inline constexpr int kExposedTid = kHostTid + 1 + kFirstLanes;
inline constexpr int kBoundTid = kExposedTid + 1;

/// Lanes that came later have numbers beyond all others', so that these stay.
constexpr int tid_of(Lane lane) {
  const auto index = static_cast<int>(index_of(lane));
  return index < kFirstLanes ? kHostTid + 1 + index : kBoundTid + 1 + index - kFirstLanes;
}

}  // namespace fsdpbench::trace
