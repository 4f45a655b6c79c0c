#pragma once

#include <cstdint>
#include <vector>

#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

// Rows as they stand in a file, and what they know each other by.

/// -1: nothing.
struct LinkedHost {
  HostRow row;
  std::int64_t correlation = -1;  ///< of a call, and of what it launched
  std::int64_t external = -1;     ///< of an op, of the calls in it and of what those launched
};
struct LinkedDevice {
  DeviceRow row;
  std::int64_t correlation = -1, external = -1;
};

/// Arrows from calls to what they launched ("ac2g"), for files whose calls have no correlation.
struct Arrows {
  struct End {
    std::int64_t id = 0, time_ns = 0;
    std::int32_t track = 0;  ///< a thread, or a stream
  };
  std::vector<End> begins, ends;
};

/// Sorts the host's rows by begin, those that enclose others first, and finds each one's parent. `apart`: by name,
/// whether rows of it are ranges that others need not lie inside of.
void nest(std::vector<LinkedHost>& host, const std::vector<bool>& apart);

/// Sorts the device's rows by begin, and finds each one's launch: by correlation, else by arrow. Of several calls with
/// one correlation it is the outer one that launches.
void link_launches(const std::vector<LinkedHost>& host, const Arrows& arrows, std::vector<LinkedDevice>& device);

/// Gives rows of kind `collective` that do not tell what they communicate the collective of the host's call around
/// their launch, or of the op with their external id.
void link_collectives(const std::vector<LinkedHost>& host, std::vector<LinkedDevice>& device);

}  // namespace fsdpbench::foreign
