#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trace/event_reader.h"
#include "trace/facts.h"
#include "trace/kineto.h"
#include "trace/record.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// The one CUDA context of a rank, as its files number it.
inline constexpr int kContext = 1;

/// Writes an op of a rank's file where the device told what it did: the issue as a row of the host, the calls of CUDA
/// inside it, the op as an annotation on the device and its kernels, copies and fills inside that. See FORMAT.md.
class ActivityRows {
 public:
  ActivityRows(EventStream& events, CollectiveFields& collectives, Track host, int device_pid)
      : events_(events), collectives_(collectives), host_(host), device_pid_(device_pid) {}

  /// `works`: those of the op, in order of begin; they refer to `names`. The host went on at `host_end_ns`. Ops in
  /// the order in which they were issued.
  void write(const OpLabel& op, const Record& record, std::int64_t host_end_ns, std::span<const Activity> works,
             std::span<const std::string> names);

 private:
  struct Launch {
    const Activity* first = nullptr;
    std::int64_t begin_ns = 0, end_ns = 0;
    bool arrow = true;  ///< still to be drawn
  };
  void write_launches(const OpLabel& op, const Record& record, std::int64_t host_end_ns,
                      std::span<const Activity> works, std::span<const std::string> names);
  Track write_span(const OpLabel& op, const Record& record, int stream);
  void write_work(const OpLabel& op, const Record& record, const Activity& work, std::string_view device_name,
                  Track track, bool first);
  void write_arrow(const Activity& work, Track track);
  void identify(const Record& record);
  Track place(int stream, Lane lane, int aside, std::int64_t begin_ns, std::int64_t end_ns);

  EventStream& events_;
  CollectiveFields& collectives_;
  Track host_;
  int device_pid_;
  std::int64_t external_id_ = 0;
  std::int64_t sequence_ = 0;                 // of the collective at hand
  std::map<std::uint32_t, Launch> launches_;  // of the op at hand, by correlation
  std::map<int, std::int64_t> busy_until_;    // by track
  std::string name_;                          // scratch
};

/// Reads back what a RankWriter wrote (FORMAT.md, "The file of a rank"), with or without a device's profiler: rank,
/// windows and records, to the nanosecond. Memory samples and activities are left out, and a window ends when the host
/// was done with the step. Times count from the file's 0 plus one nanosecond, so that no begin is 0. Throws ConfigError
/// that names file and event if it is no such file, or is damaged.
RankTrace read_rank_trace(const std::string& path);

/// One rank's trace in kineto's schema, as PyTorch's tools read it: see FORMAT.md, "The file of a rank". Streams: its
/// memory does not grow with the steps. The file appears at finish(), or never. Throws OutputError.
class RankWriter {
 public:
  RankWriter(const std::string& path, const RankFacts& facts, const TimeBase& time, LabelOf label);

  /// Steps in order of time.
  void step(const TracedStep& step);
  /// Ends the file and puts it in its place; nothing may follow.
  void finish();

 private:
  void write_head(const RankFacts& facts, const TimeBase& time);
  void name_tracks(const RankFacts& facts);
  void write_op(const TracedStep& step, const Record& record, std::int64_t host_end_ns,
                std::span<const Activity> works);
  void write_launch(const OpLabel& op, const Record& record, std::int64_t correlation, std::int64_t end_ns);
  void write_device_row(const OpLabel& op, const Record& record, std::int64_t correlation);
  void name_lane(Lane lane);
  void write_sample(const MemorySample& sample);

  WholeFile file_;
  EventStream events_;
  LabelOf label_;
  Track host_;
  int device_pid_;
  int rank_;
  bool profiled_;
  std::array<bool, kLaneCount> named_{};  // tracks
  std::string name_;                      // scratch
  CollectiveFields collectives_;
  ActivityRows rows_;
  std::int64_t correlation_ = 0;
  std::int64_t last_allocated_ = 0;
  std::int64_t end_ns_ = 0;
  std::int32_t next_step_ = 0;
};

/// The whole of a rank's trace.
void write_rank_trace(const std::string& path, const RankTrace& trace, const RankFacts& facts, const TimeBase& time,
                      const LabelOf& label);

}  // namespace fsdpbench::trace
