#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/intervals.h"
#include "hardware/gpu_health.h"
#include "trace/event_reader.h"
#include "trace/facts.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// All ranks in one file for Perfetto and chrome://tracing: see FORMAT.md, "The merged file". Streams: its memory
/// grows with the ops of one step only. The file appears at finish(), or never. Throws OutputError.
class MergedWriter {
 public:
  /// `shown`: the ranks that will follow, of `ranks` in the run, if some are left out: the file then says so.
  MergedWriter(const std::string& path, const TimeBase& time, LabelOf label, const std::vector<int>& shown = {},
               std::size_t ranks = 0);

  /// The steps that follow are this rank's. Every rank once.
  void begin_rank(int rank);
  /// Steps in order of time; what is not explained is not shown.
  void step(const TracedStep& step, const StepExplanation& explanation = {});
  /// Ends the file and puts it in its place; nothing may follow.
  void finish();

 private:
  /// Last values of the counters of a rank's GPU; below zero: none yet.
  struct GpuLevels {
    double sm_mhz = -1, power_w = -1, temperature_c = -1;
  };

  void write_step(const TracedStep& step, const StepExplanation& explanation);
  void write_op(const TracedStep& step, const Record& record, std::int64_t host_end_ns);
  void write_activities(const TracedStep& step);
  void write_wait(const OpLabel& op, const Record& record);
  void write_need(const TracedStep& step, const OpLabel& op, const Record& record);
  void write_exposed(const TracedStep& step, const ExposedSpan& span);
  void write_bound(const TracedStep& step, const StepBound& bound);
  void write_memory(const TracedStep& step, const StepExplanation& explanation);
  void write_live(std::int64_t time_ns, const CategoryBytes& live);
  void write_gathers();
  void write_gpu(const TracedStep& step, std::span<const GpuSample> samples);
  void write_gpu_level(const char* name, const Field& field, std::int64_t time_ns, double value, double& written);
  void find_computation(const TracedStep& step);
  Track lane_track(Lane lane) const;
  void name_lane(Lane lane);
  Track host_track() const;
  Track exposed_track() const;
  Track bound_track() const;
  /// The id of the next arrow.
  std::int64_t flow_id();

  WholeFile file_;
  EventStream events_;
  LabelOf label_;
  int rank_ = -1;
  const std::int64_t origin_ns_;
  std::int64_t flows_ = 0;                             // of this rank
  std::vector<std::pair<std::int64_t, int>> gathers_;  // of this step: when, +1 or -1
  int gathers_in_flight_ = 0;
  IntervalSet computation_;               // of this step
  std::int64_t reserved_ = -1;            // as last written
  GpuLevels gpu_;                         // likewise
  std::array<bool, kLaneCount> named_{};  // tracks of this rank
};

/// A run, or of its ranks only those in `shown` (sorted; empty: all). `ranks` may miss some, as after an interrupt.
/// Without `explain` no step is explained.
void write_merged_trace(const std::string& path, const std::vector<RankTrace>& ranks, const TimeBase& time,
                        const LabelOf& label, const std::vector<int>& shown = {}, const ExplanationOf& explain = {});

}  // namespace fsdpbench::trace
