#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trace/event_reader.h"
#include "trace/facts.h"
#include "trace/kineto.h"

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

}  // namespace fsdpbench::trace
