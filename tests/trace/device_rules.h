#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/event_reader.h"
#include "trace/findings.h"

namespace fsdpbench::trace {

/// The rules of kineto's schema: what tools that work on one rank's file (HTA) need to see every kernel, its launch,
/// its stream and its collective. Files without such rows pass.
class DeviceRules {
 public:
  explicit DeviceRules(Findings& findings) : findings_(findings) {}

  /// In the order of the file.
  void event(const ParsedEvent& event);
  /// After the last event.
  void finish(const FileFacts& file, std::optional<std::int64_t> searched_rank);

 private:
  struct Launch {
    std::int64_t time_ns, event;
  };
  struct DeviceRow {
    std::int64_t correlation, time_ns, event;
  };
  /// A row on the device that says which op it belongs to.
  struct OpRow {
    std::int64_t op, begin_ns, end_ns, event;
  };
  void host_row(const ParsedEvent& event, std::string_view category, std::int64_t time_ns);
  void device_row(const ParsedEvent& event, std::string_view category, std::int64_t time_ns);
  void collective(const ParsedEvent& event, std::string_view name);
  static std::optional<OpRow> op_row(const ParsedEvent& event, std::int64_t time_ns);

  Findings& findings_;
  std::unordered_map<std::int64_t, Launch> launches_;
  std::vector<DeviceRow> device_rows_;
  std::unordered_map<std::int64_t, OpRow> ops_;  // annotations, by op
  std::vector<OpRow> op_rows_;                   // kernels, copies and fills
};

}  // namespace fsdpbench::trace
