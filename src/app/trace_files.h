#pragma once

#include <filesystem>
#include <vector>

#include "engine/run.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// Writes what src/trace/FORMAT.md describes into `folder`: trace.json with all ranks, and trace/rank_N.json.gz of
/// each rank. Throws OutputError.
void write_trace_files(const std::filesystem::path& folder, const engine::Preparation& preparation,
                       const std::vector<trace::RankTrace>& traces);

}  // namespace fsdpbench::app
