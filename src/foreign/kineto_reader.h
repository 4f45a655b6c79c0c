#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

struct ReadOptions {
  bool functions = false;                              ///< keep python_function rows, of traces with stacks
  std::int64_t most_events = 50'000'000;               ///< of one file; the rest of a longer one is not read
  std::uint64_t most_bytes = std::uint64_t{32} << 30;  ///< of one file's JSON, decompressed; likewise
};

/// Reads traces of torch.profiler (kineto), this program's own ones (trace/FORMAT.md), and databases that Nsight
/// Systems has exported (nsys_events.h): one file a rank, .json, .json.gz or .sqlite, or folders, of which all such
/// files are taken that hold a trace. Files are read as a stream; what is kept is about 50 bytes a row of host or
/// device, and each name once.
///
/// Rows that are missing, cut off, out of order or there twice are mended as far as they can be, and notes say so.
/// Without distributedInfo the rank is the number behind "rank" in the file's name, or the file's place. Of a rank that
/// several files are of, the first by name counts.
///
/// Throws ConfigError that names the file: nothing there, no JSON at all, a list of events without rows of a profiler,
/// another program's file.
JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options = {});

}  // namespace fsdpbench::foreign
