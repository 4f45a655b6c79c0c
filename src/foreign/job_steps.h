#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/intervals.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// Evidence for where a step begins and ends, the surest first.
enum class StepSource : std::uint8_t {
  profiler,   ///< ProfilerStep#N
  optimizer,  ///< the ends of Optimizer.step
  period,     ///< the same collectives come again and again
  whole,      ///< nothing: all of the trace is taken for one step
};
std::string_view to_string(StepSource source);

/// Work of one rank's device for one step.
struct JobStep {
  std::int64_t number = 0;
  /// The step on the device: the profiler's step if all rows are in it; else until the last of the step's rows ends,
  /// since the step before has ended, or what was launched before the recording began. The first step of a trace
  /// without such rows begins with its first row.
  Interval window;
  std::vector<std::int32_t> device;   ///< rows that were launched in the step, in the order of the host's launches
  std::vector<std::int32_t> running;  ///< rows of the device that run at some moment of the window, as they begin
};

struct JobSteps {
  /// Probability that the steps are cut where the job's begin and end.
  double sureness() const;

  StepSource source = StepSource::whole;
  bool launches_known = true;          ///< of a device: else the host's marks need not be those of its rows
  std::vector<JobStep> steps;          ///< in order of time; none without device rows
  std::size_t left_out = 0;            ///< device rows before the first step or after the last
  std::size_t launch_assumed = 0;      ///< device rows without a launch that others of the file have
  std::size_t before_recording = 0;    ///< device rows that were launched before the file has the host: in no step
  std::vector<std::int64_t> launched;  ///< by device row: when the host launched it, as far as the file tells
  std::vector<std::int32_t> waits;     ///< of the host: rows in which it waited for the device, as they end
  IntervalSet loads;                   ///< when the host loaded data
  IntervalSet garbage;                 ///< when Python collected garbage
  IntervalSet updates;                 ///< when it was in the optimizer and launched nothing that computes: offloading
  std::size_t looked_at = 0;  ///< how often a row was looked at to find what runs in which step: the work of it
};

/// When the host launched device row `row`: its own begin if no launch is known.
std::int64_t launched_ns(const RankRows& rank, std::int32_t row);

JobSteps cut_steps(const RankRows& rank);

}  // namespace fsdpbench::foreign
