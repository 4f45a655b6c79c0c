#pragma once

#include "base/lane.h"

namespace fsdpbench::trace {

/// The tracks of a process in trace.json, as FORMAT.md has them.
inline constexpr int kHostTid = 1;  // tracks 2… are lanes; Perfetto takes 0 for the process itself
inline constexpr int kFirstLanes = 5;
inline constexpr int kExposedTid = kHostTid + 1 + kFirstLanes;
inline constexpr int kBoundTid = kExposedTid + 1;

/// Lanes that came later have numbers beyond all others', so that these stay.
constexpr int tid_of(Lane lane) {
  const auto index = static_cast<int>(index_of(lane));
  return index < kFirstLanes ? kHostTid + 1 + index : kBoundTid + 1 + index - kFirstLanes;
}

}  // namespace fsdpbench::trace
