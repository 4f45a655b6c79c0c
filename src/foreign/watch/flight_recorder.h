#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// What is known of a dump besides its content.
struct DumpFile {
  std::string path;
  std::int64_t seen_ns =
      -1;  ///< when the watcher saw it change; -1: it was there before, and nobody knows how old it is
};

/// Adds a dump of PyTorch's flight recorder (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, versions 2.x), of
/// _dump_fr_trace(_json) or _dump_nccl_trace(_json), or what fsdpbench.torch writes: such dumps in a list, with the
/// rank and when they were written. Returns why it is none; empty: it is added.
///
/// The dump names no rank: without fsdpbench.torch it is the number at the end of the file's name, as PyTorch writes
/// it. Gloo never tells that an operation has started or ended, but takes it off its list ("retired"); NCCL tells both,
/// and an operation that is retired without having ended has timed out.
std::string add_flight_record(JobView& job, const nlohmann::json& dump, const DumpFile& file);

/// The number at the end of a file's name, before .json, .pickle or .pkl: "nccl_trace_rank_3", "flight_3.json".
std::optional<int> rank_at_end(const std::string& path);

}  // namespace fsdpbench::watch
