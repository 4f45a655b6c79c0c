#pragma once

#include <filesystem>
#include <vector>

#include "engine/setup.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// Writes what src/trace/FORMAT.md describes into `folder`: trace.json with all ranks, and trace/rank_N.json.gz of
/// each rank. Throws OutputError.
void write_trace_files(const std::filesystem::path& folder, const engine::Setup& setup,
                       const std::vector<trace::RankTrace>& traces);

/// One rank's file alone, on its own time line: trace/rank_N.json.gz. Throws OutputError.
void write_rank_file(const std::filesystem::path& folder, const engine::Setup& setup, const trace::RankTrace& trace);

}  // namespace fsdpbench::app
