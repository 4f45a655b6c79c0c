#include "engine/device_records.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdpbench::engine {

void DeviceRecords::put(const backend::Stamp& stamp, trace::Record& record) {
  record.begin_ns = stamp.begin_ns;
  record.end_ns = stamp.end_ns;
  record.peers_arrived_ns = stamp.peers_arrived_ns;
  record.core_wait_ns = stamp.core_wait_ns;
  record.link_ns = stamp.link_ns;
  if (is_of_other_clock(record.issued_ns, record.begin_ns)) {
    record.begin_ns = record.issued_ns;
    record.end_ns = std::max(record.end_ns, record.begin_ns);
  }
}

void DeviceRecords::add(backend::Activities taken, std::span<trace::Record> records, trace::RankTrace& trace) {
  std::vector<std::int32_t> number;  // of each name taken, among all names of the trace
  for (std::string& name : taken.names) {
    const auto [known, fresh] =
        name_numbers_.try_emplace(std::move(name), static_cast<std::int32_t>(trace.activity_names.size()));
    if (fresh) trace.activity_names.push_back(known->first);
    number.push_back(known->second);
  }
  for (Activity& activity : taken.all) {
    activity.name = number.at(activity.name);
    if (activity.launch_name >= 0) activity.launch_name = number.at(activity.launch_name);
    if (activity.op >= 0) keep_order(activity, records[activity.op]);
    trace.activities.push_back(activity);
  }
}

bool DeviceRecords::is_of_other_clock(std::int64_t earliest_ns, std::int64_t begin_ns) {
  const std::int64_t early = earliest_ns - begin_ns;
  if (early <= 0 || early > kClocksDiffer_ns) return false;
  early_ns_ = std::max(early_ns_, early);
  return true;
}

void DeviceRecords::keep_order(Activity& activity, trace::Record& op) {
  const std::int64_t earliest_ns = std::max(op.begin_ns, activity.launch_begin_ns);
  if (!is_of_other_clock(earliest_ns, activity.begin_ns)) return;
  activity.begin_ns = earliest_ns;
  activity.end_ns = std::max(activity.end_ns, earliest_ns);
  op.end_ns = std::max(op.end_ns, activity.end_ns);
}

}  // namespace fsdpbench::engine
