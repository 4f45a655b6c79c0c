#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/experiment/trial.h"
#include "engine/setup.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// The ranks that trace.json shows, sorted: all if there are no more than `most` or that is 0; else rank 0, the
/// slowest, those that others waited for (the causes' late ranks), then the lowest, until there are `most`.
std::vector<int> shown_ranks(const Trial& trial, std::int64_t most);

/// Writes what src/trace/FORMAT.md describes into `folder`: trace.json with the shown ranks, and trace/rank_N.json.gz
/// of every rank. Throws OutputError.
void write_trace_files(const std::filesystem::path& folder, const engine::Setup& setup, const Trial& trial);

/// One rank's file alone, on its own time line: trace/rank_N.json.gz. Throws OutputError.
void write_rank_file(const std::filesystem::path& folder, const engine::Setup& setup, const trace::RankTrace& trace);

}  // namespace fsdpbench::app
