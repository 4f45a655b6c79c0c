#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/setup.h"
#include "runs/trial.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// The ranks that trace.json shows, sorted: all if there are no more than `most` or that is 0; else rank 0, the
/// slowest, those that others waited for (the causes' late ranks), then the lowest, until there are `most`.
std::vector<int> shown_ranks(const Trial& trial, std::int64_t most);

/// Writes what src/trace/FORMAT.md describes into `folder`: trace.json with the shown ranks, and trace/rank_N.json.gz
/// of every rank. Throws OutputError.
void write_trace_files(const std::filesystem::path& folder, const engine::Setup& setup, const Trial& trial);

/// The slowest measured step of a trial alone, of the shown ranks, as trace.json has it, in `path`. Does nothing if no
/// step was measured. Throws OutputError.
void write_worst_step(const std::filesystem::path& path, const engine::Setup& setup, const Trial& trial);

/// How many ranks a run of `setup` records: all that train, but of a large simulation engine::ranks_recorded().
int recorded_ranks(const engine::Setup& setup);

/// What write_trace_files() will write, in bytes.
struct TraceBytes {
  std::int64_t timeline = 0;   ///< trace.json
  std::int64_t rank_file = 0;  ///< the largest of trace/
  std::int64_t all = 0;        ///< both, with the files of all recorded ranks
};

/// An upper bound of it, seldom more than half too high: the writers themselves write a made-up step with long times,
/// whose size is multiplied by steps and ranks. On GPUs the profiler is taken to record kGuessedActivities an op, and a
/// step to see kGuessedGpuSamples of its GPU, a second of them.
TraceBytes predict_trace_bytes(const engine::Setup& setup);
inline constexpr int kGuessedActivities = 6;
inline constexpr std::size_t kGuessedGpuSamples = 50;
inline constexpr std::size_t kGuessedAdvice = 160;

/// One rank's file alone, on its own time line: trace/rank_N.json.gz. Throws OutputError.
void write_rank_file(const std::filesystem::path& folder, const engine::Setup& setup, const trace::RankTrace& trace);

}  // namespace fsdpbench::app
