#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trace/event_reader.h"

namespace fsdpbench::foreign {

/// What a database says of its file, and why not all of it was read; "": all was.
struct NsysFacts {
  trace::FileFacts file;
  std::string trouble;
};

/// Reads a database that `nsys export --type sqlite` wrote, of one process: kernels, copies and fills with their
/// streams, calls of the runtime, and NVTX ranges, each handed on as the event of kineto's that says the same, good
/// until the function returns. What else is in it (samples of the CPU, metrics of the GPU, the operating system's
/// calls) is passed over. Throws ConfigError that says what the file is: no such database, several processes, or a
/// build without SQLite (no_nsys_events.cpp).
NsysFacts read_nsys_events(const std::string& path, std::int64_t most_events,
                           const std::function<void(const trace::ParsedEvent&)>& event);

}  // namespace fsdpbench::foreign
