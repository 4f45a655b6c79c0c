#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/intervals.h"
#include "base/lane.h"
#include "base/memory_space.h"
#include "hardware/gpu_health.h"
#include "trace/record.h"

namespace fsdpbench::trace {

/// A stretch in which a rank computed nothing, and why.
struct ExposedSpan {
  Interval time;
  std::string_view cause;   ///< one word
  std::int32_t op = -1;     ///< what was waited for, by its number in the schedule; -1: nothing
  int late_rank = -1;       ///< who came last; -1: nobody
  std::string_view advice;  ///< a sentence; may be empty
};

/// Live bytes from a moment on.
struct LiveBytes {
  std::int64_t time_ns = 0;
  CategoryBytes live{};
};

/// The least time in which a rank's ops can run as they depend on each other.
struct StepBound {
  std::int64_t ns = 0;
  Lane lane = Lane::compute;  ///< that has most of the chain of ops which takes so long
  std::int64_t lane_ns = 0;   ///< what it has of it
};

/// Facts about one rank's step beyond its records. Texts and samples must live as long as the writer.
struct StepExplanation {
  std::vector<ExposedSpan> exposed;  ///< disjoint, in order, exactly the step without its computation
  std::vector<LiveBytes> memory;     ///< in order of time, on the lanes' time; empty: the host's samples are shown
  std::int64_t kept_bytes = 0;       ///< of these, what lives on from step to step
  std::optional<StepBound> bound;
  std::span<const GpuSample>
      gpu;  ///< of the rank's GPU, in order of time: the last one before the step, and those in it
};

/// Explains a step: `rank` and `step` are places in the traces and in their steps, not numbers.
using ExplanationOf = std::function<StepExplanation(std::size_t rank, std::size_t step)>;

/// A communicator as one of its ranks sees it.
struct ProcessGroup {
  std::string name;         ///< unique among the communicators of a run
  std::string description;  ///< "shard", "replicate" …
  std::vector<int> ranks;   ///< empty: the run has no such communicator
};

/// Writer of a rank's file.
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

/// Category in which an op's time counts; the same classes as in account/.
enum class OpCategory : std::uint8_t {
  computation,
  communication,
  copy,
  host,  ///< blocks the host
  mark,  ///< nothing to run: frees memory or marks a place
};
constexpr std::string_view to_string(OpCategory category) {
  constexpr EnumNames<OpCategory> kNames{"computation", "communication", "copy", "host", "mark"};
  return kNames[category];
}

enum class OpPhase : std::uint8_t { forward, backward, optimizer };
constexpr std::string_view to_string(OpPhase phase) {
  constexpr EnumNames<OpPhase> kNames{"forward", "backward", "optimizer"};
  return kNames[phase];
}

struct CollectiveLabel {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::size_t group = 0;  ///< index into RankFacts::groups
  /// Elements a rank contributes (all-gather), keeps (reduce-scatter), holds (all-reduce), sends to each (all-to-all).
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// Label of one op: facts that a writer cannot know from a record.
struct OpLabel {
  std::string name;  ///< "all_gather 3*"
  OpCategory category = OpCategory::computation;
  OpPhase phase = OpPhase::forward;
  std::string unit;
  Lane lane = Lane::compute;
  std::int64_t bytes = 0;       ///< that a collective's rank contributes, or a copy writes; 0: not shown
  bool parameters = false;      ///< a gather of parameters, for the counter of gathers in flight
  std::int32_t needed_by = -1;  ///< of a collective, the op of its step that first reads what it gave; -1: none
  std::optional<CollectiveLabel> collective;

  bool on_lane() const { return category != OpCategory::host && category != OpCategory::mark; }
};

/// Describes an op of a step. The reference must stay valid as long as the writer: make labels once, not per record.
using LabelOf = std::function<const OpLabel&(std::int32_t step, std::int32_t op)>;

/// One step of a trace. The spans belong to the RankTrace it was cut from.
struct TracedStep {
  std::int32_t number = 0;
  StepWindow window;
  std::span<const Record> records;
  std::span<const MemorySample> memory;
  std::span<const Activity> activities;
  std::span<const std::string> names;  ///< that the activities refer to, of all steps
};

/// Cuts a rank's trace into its steps: records and activities by their step's number, memory samples by time. What was
/// sampled after the last window's end belongs to the last step.
std::vector<TracedStep> steps_of(const RankTrace& trace);

/// When the earliest step of any rank began; 0 without steps.
std::int64_t first_begin(const std::vector<RankTrace>& traces);

/// When the step was over for lanes and host: the window's end, or later if ops without work were issued after the
/// device had become idle, or the host had not yet done with the last op.
std::int64_t host_end(const TracedStep& step);

/// When the host had issued record `i`: it issues the next one then; the last one is followed by waiting for the lanes,
/// which is no issue. The step's end where the window does not say.
std::int64_t issue_end(const TracedStep& step, std::size_t i);

}  // namespace fsdpbench::trace
