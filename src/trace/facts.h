#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/record.h"

namespace fsdpbench::trace {

/// A communicator as one of its ranks sees it.
struct ProcessGroup {
  std::string name;         ///< unique among the communicators of a run
  std::string description;  ///< "shard", "replicate" …
  std::vector<int> ranks;   ///< empty: the run has no such communicator
};

/// Who wrote a rank's file.
struct RankFacts {
  int rank = 0;
  int world_size = 1;
  std::string backend;  ///< "cpu"
  std::vector<ProcessGroup> groups;
  bool profiled = false;  ///< the device told its activities: the steps have them
};

/// The time line that all files of a run share.
struct TimeBase {
  std::int64_t origin_ns = 0;       ///< base/clock.h time that is written as 0
  std::int64_t origin_unix_ns = 0;  ///< the same moment on the wall clock; 0: not known
};

/// One step of a trace.
struct StepView {
  std::int32_t number = 0;
  StepWindow window;
  std::span<const Record> records;
  std::span<const MemorySample> memory;
  std::span<const Activity> activities;
  std::span<const std::string> names;  ///< that the activities refer to, of all steps
};

/// Cuts a rank's trace into its steps: records and activities by their step's number, memory samples by time. What was
/// sampled after the last window's end belongs to the last step.
std::vector<StepView> steps_of(const RankTrace& trace);

/// When the earliest step of any rank began; 0 without steps.
std::int64_t first_begin(const std::vector<RankTrace>& traces);

/// When the host went on after the step's last record: the window's end, or later if ops without work were issued
/// after the device had become idle.
std::int64_t host_end(const StepView& step);

}  // namespace fsdpbench::trace
