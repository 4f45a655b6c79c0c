#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "backend/device.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// A GPU's times are brought onto the host's clock, by CUPTI to within some 10 us as has been measured on H100 and
/// H200.
inline constexpr std::int64_t kClocksDiffer_ns = 50'000;

/// Stamps and records of one rank's device, brought into its trace. Where the device's clock tells that an op began
/// before it was issued, or a kernel before its launch, it begins when it was issued, unless it was earlier than
/// kClocksDiffer_ns: that is no clock's doing.
class DeviceRecords {
 public:
  /// The times of an op.
  void put(const backend::Stamp& stamp, trace::Record& record);
  /// Adds a step's activities to the trace; names that were there before keep their numbers. `records`: of the step's
  /// ops, by number; an op ends no earlier than its activities.
  void add(backend::Activities taken, std::span<trace::Record> records, trace::RankTrace& trace);
  /// By so much, at most, the device's clock said that something began too early.
  std::int64_t early_ns() const { return early_ns_; }

 private:
  /// Whether a begin is too early by so little that the clocks of host and device explain it; notes by how much.
  bool is_of_other_clock(std::int64_t earliest_ns, std::int64_t begin_ns);
  void keep_order(Activity& activity, trace::Record& op);

  std::int64_t early_ns_ = 0;
  std::map<std::string, std::int32_t> name_numbers_;  // of the trace's activity_names
};

}  // namespace fsdpbench::engine
