#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/event_reader.h"

namespace fsdpbench::foreign {

/// Facts that a database states on its file, and why not all of it was read; "": all was.
struct NsysFacts {
  trace::FileFacts file;  ///< base_time_ns: Unix time at its time 0, if it tells
  std::string trouble;
  std::vector<std::int64_t> processes;  ///< with work on a device: by device, then by number
};

/// Reads a database that `nsys export --type sqlite` wrote, gzipped or not: kernels, copies and fills with their
/// streams, calls of the runtime, and NVTX ranges, each handed on with its process as the event of kineto's that says
/// the same, good until the function returns. What else is in it (samples of the CPU, metrics of the GPU, the operating
/// system's calls) is passed over. From a gzipped one at most `most_bytes` are unpacked, in memory. Throws ConfigError
/// that says what the file is: no such database, or a build without SQLite (no_nsys_events.cpp).
NsysFacts read_nsys_events(const std::string& path, std::int64_t most_events, std::uint64_t most_bytes,
                           const std::function<void(std::int64_t process, const trace::ParsedEvent&)>& event);

}  // namespace fsdpbench::foreign
