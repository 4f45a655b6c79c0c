#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/fields.h"
#include "trace/json_stream.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// A track of the timeline.
struct Track {
  int pid = 0;
  int tid = 0;
};

/// Chrome trace events, one a line, in the Trace Event Format. An event is head(), any of the other fields, then
/// arg() any number of times, then end(). Times are base/clock.h nanoseconds, written relative to `origin_ns`.
class EventStream {
 public:
  EventStream(WholeFile& file, std::int64_t origin_ns) : json_(file), origin_ns_(origin_ns) {}

  /// Before, between and after the events: top-level keys.
  JsonStream& json() { return json_; }

  /// Begins an event at `time_ns`.
  void head(char ph, std::string_view category, std::string_view name, Track track, std::int64_t time_ns);
  /// Length of an X, in nanoseconds; written as microseconds with three decimals.
  void duration(std::int64_t ns);
  /// A field of the event itself; before the first arg().
  void member(const Field& field, std::int64_t value);
  void member(const Field& field, std::string_view value);
  /// A field of the event's args: a number, a text, a length, a moment.
  void arg(const Field& field, std::int64_t value);
  void arg(const Field& field, int value) { arg(field, static_cast<std::int64_t>(value)); }
  void arg(const Field& field, std::string_view value);
  void arg_number(const Field& field, double value);
  void arg_duration(const Field& field, std::int64_t ns);
  void arg_time(const Field& field, std::int64_t time_ns) { arg_duration(field, time_ns - origin_ns_); }
  void end();

  /// A metadata event: "process_name", "thread_name" with a text, "…_sort_index" with a number.
  void name_track(std::string_view what, Track track, std::string_view name);
  void sort_track(std::string_view what, Track track, int index);
  /// An arrow from `from` to `to`. Both ends must lie in slices.
  void flow(std::string_view category, std::int64_t id, Track from, std::int64_t from_ns, Track to, std::int64_t to_ns);

 private:
  void key(const Field& field);

  JsonStream json_;
  std::int64_t origin_ns_;
  bool first_ = true;
  bool in_args_ = false;
};

}  // namespace fsdpbench::trace
