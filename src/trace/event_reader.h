#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/fields.h"
#include "trace/json_window.h"
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

/// A JSON value as far as the rules look at it. Its text is good as long as its event is.
struct Value {
  enum class Type : std::uint8_t { null, boolean, integer, number, text, list, object };
  Type type = Type::null;
  std::int64_t integer = 0;  ///< saturated if it does not fit
  std::string_view text;     ///< of a text; of a number or a list as it was written

  bool is_integer() const { return type == Type::integer; }
  bool is_text() const { return type == Type::text; }
  bool is_list() const { return type == Type::list; }
  bool is_number() const { return type == Type::integer || type == Type::number; }
};

/// Microseconds as a trace has them, a number or a text with one, in nanoseconds; nothing if it is none. Decimal
/// digits are taken as they are, so that large times keep their nanoseconds.
std::optional<std::int64_t> nanoseconds(const Value& value);

/// "[0, 1, 2]" as profilers write lists of ranks; nothing of what is no list, or a shortened one ("[0, 1, ..., 63]").
std::vector<std::int64_t> listed_integers(std::string_view text);

using Members = std::vector<std::pair<std::string_view, Value>>;

/// Null if there is none.
inline const Value* find(const Members& members, std::string_view key) {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

/// One element of traceEvents, good until the function that is given it returns.
struct ParsedEvent {
  std::int64_t index = 0;
  Members members;  ///< without args
  Members args;     ///< top level of args
  /// Values that nearly every reader needs, found once; "" and nothing where it has none, or no text or time.
  std::string_view ph, category, name;
  std::optional<std::int64_t> begin_ns, length_ns;  ///< ts and dur

  const Value* member(std::string_view key) const { return find(members, key); }
  const Value* arg(std::string_view key) const { return find(args, key); }
  /// "" if there is no such text.
  std::string_view text(std::string_view key) const {
    const Value* value = member(key);
    return value != nullptr && value->is_text() ? std::string_view(value->text) : std::string_view();
  }
};

/// A communicator as distributedInfo's pg_config names it; -1 and "" where it does not tell.
struct GroupFacts {
  std::string name, description;
  std::int64_t size = -1;
  std::vector<std::int64_t> ranks;  ///< empty: not told, or shortened
};

/// Facts of a file outside its events.
struct FileFacts {
  bool whole = false;       ///< it was read to its end, and is valid JSON
  bool has_events = false;  ///< there is a traceEvents list, or the file is one
  bool has_schema = false;  ///< fsdpbench_schema, an integer: this program wrote it
  bool has_distributed_info = false;
  std::optional<std::int64_t> rank;          ///< of distributedInfo, if it is an integer
  std::optional<std::int64_t> world_size;    ///< of distributedInfo
  std::string backend;                       ///< of distributedInfo: "nccl"; "" if it does not tell
  std::vector<GroupFacts> groups;            ///< of distributedInfo, at most kMostGroups
  std::string device;                        ///< name of the first of deviceProperties; "" if there is none
  std::string host;                          ///< host_name; "" if it does not tell
  std::optional<std::int64_t> schema;        ///< schemaVersion
  std::optional<std::int64_t> base_time_ns;  ///< baseTimeNanoseconds
  std::int64_t events = 0;
  std::uint64_t bytes = 0;

  static constexpr std::size_t kMostGroups = 4096;
};

/// Faults of a file that show before anybody asks what its events mean.
enum class ReadFault : std::uint8_t {
  json,       ///< it is no valid JSON, or ends too early
  structure,  ///< it has no list of events, an element that is none, or a key twice
  limit,      ///< it is not read further: more events, or longer or deeper values, than a reader takes
};
/// `event`: index in traceEvents; absent: the file as a whole. `message`: a sentence; names in it are those of the
/// file.
using TakeFault = std::function<void(ReadFault fault, std::optional<std::int64_t> event, std::string_view message)>;

/// Reads a Chrome trace, an object with traceEvents or a list of events, and hands on one event at a time. It takes a
/// few megabytes, and of a file with a longer value as much as that, whatever the file's length (json_window.h).
FileFacts read_events(std::istream& in, std::int64_t most_events, const TakeFault& fault,
                      const std::function<void(const ParsedEvent&)>& event);

}  // namespace fsdpbench::trace
