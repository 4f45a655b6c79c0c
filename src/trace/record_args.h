#pragma once

#include <algorithm>
#include <cstdint>

#include "trace/event_stream.h"
#include "trace/fields.h"
#include "trace/record.h"

namespace fsdpbench::trace {

/// What an op's record knows beside its begin and end, where it does, as args of the event that is open.
inline void write_record_args(EventStream& events, const Record& record) {
  if (record.peers_arrived_ns > 0) {
    events.arg_duration(field::kWaitedForPeers, std::max<std::int64_t>(0, record.peers_arrived_ns - record.begin_ns));
  }
  if (record.link_ns > 0) events.arg_duration(field::kOwnLink, record.link_ns);
  if (record.core_wait_ns > 0) events.arg_duration(field::kWaitedForCore, record.core_wait_ns);
}

}  // namespace fsdpbench::trace
