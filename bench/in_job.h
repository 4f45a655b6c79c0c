#pragma once

// A benchmark whose every process is one rank of a job.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "launch/session.h"

namespace fsdpbench::bench {

/// Seconds from the first rank's begin to the last one's end; 0 elsewhere than at rank 0. Collective.
inline double seconds_of_slowest(launch::Session& session, const backend::Stamp& stamp) {
  const std::vector<std::string> all =
      launch::gather(session.control(), "stamp", std::string(reinterpret_cast<const char*>(&stamp), sizeof stamp));
  std::int64_t begin = stamp.begin_ns;
  std::int64_t end = stamp.end_ns;
  for (const std::string& bytes : all) {
    backend::Stamp theirs;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    begin = std::min(begin, theirs.begin_ns);
    end = std::max(end, theirs.end_ns);
  }
  return static_cast<double>(end - begin) * 1e-9;
}

/// The exit code of a process that joins the job of 2 or 4 that it was started in, and does `work`.
inline int in_job(const char* program, const std::function<void(launch::Session&)>& work) {
  const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
  if (!placement || (placement->ranks != 2 && placement->ranks != 4)) {
    fmt::print("Nothing is measured: this needs 2 or 4 processes, mpirun -n 2 --bind-to none {}\n", program);
    return 0;
  }
  const std::unique_ptr<launch::Session> session = launch::join(*placement);
  if (placement->rank == 0) fmt::print("{} processes, {}\n", placement->ranks, session->transport());
  work(*session);
  return 0;
}

}  // namespace fsdpbench::bench
