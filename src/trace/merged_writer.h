#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trace/event_stream.h"
#include "trace/facts.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// All ranks in one file for Perfetto and chrome://tracing: see FORMAT.md, "The merged file". Streams: its memory
/// grows with the ops of one step only. The file appears at finish(), or never. Throws OutputError.
class MergedWriter {
 public:
  /// `shown`: the ranks that will follow, of `ranks` in the run, if some are left out: the file then says so.
  MergedWriter(const std::string& path, const TimeBase& time, LabelOf label, const std::vector<int>& shown = {},
               std::size_t ranks = 0, WholeFile::Fate fate = WholeFile::Fate::kept);

  /// The steps that follow are this rank's. Every rank once.
  void begin_rank(int rank);
  /// Steps in order of time.
  void step(const TracedStep& step);
  /// Ends the file and puts it in its place; nothing may follow.
  void finish();
  /// Of the file; after finish().
  std::int64_t bytes() const { return file_.bytes(); }

 private:
  void write_op(const Record& record, std::int64_t host_end_ns);
  void write_activities(const TracedStep& step);
  void write_wait(const OpLabel& op, const Record& record);
  void write_memory(const TracedStep& step);
  void write_gathers();
  void find_computation(const TracedStep& step);
  /// Time of a collective in which the rank computed nothing.
  std::int64_t exposed_ns(const Record& record) const;
  Track lane_track(Lane lane) const;
  Track host_track() const;

  WholeFile file_;
  EventStream events_;
  LabelOf label_;
  int rank_ = -1;
  std::int64_t flows_ = 0;                             // of this rank
  std::vector<std::pair<std::int64_t, int>> gathers_;  // of this step: when, +1 or -1
  int gathers_in_flight_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> computation_;  // of this step: begin and end, in order of begin
};

/// A run, or of its ranks only those in `shown` (sorted; empty: all). `ranks` may miss some, as after an interrupt.
/// Returns the bytes of the file.
std::int64_t write_merged_trace(const std::string& path, const std::vector<RankTrace>& ranks, const TimeBase& time,
                                const LabelOf& label, const std::vector<int>& shown = {},
                                WholeFile::Fate fate = WholeFile::Fate::kept);

}  // namespace fsdpbench::trace
