#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/record.h"

namespace fsdpbench::metrics {

/// What one checkpoint cost, in milliseconds.
struct SaveCost {
  std::int64_t steps = 0;  ///< of the training that were done
  std::int64_t bytes = 0;  ///< of all files
  bool at_end = false;     ///< no step followed, so that nobody was held up
  /// That the training of one rank stood still: of the rank for which it was longest. The three parts add up to it.
  double stall_ms = 0;
  double waited_ms = 0;  ///< for the file before
  double copied_ms = 0;  ///< the update, for the copy of what it changes
  double wrote_ms = 0;   ///< while the file was written
  double copy_ms = 0;    ///< the longest copy to host memory, held up or not; 0: it was written as it was read
  double write_ms = 0;   ///< the file that took longest, until it was on disk
  /// The share of copying and writing, over all ranks, that did not stop training; 0 without ranks.
  double hidden_pct = 0;
  double mb_per_s = 0;  ///< 1e6 bytes a second, all files together, from the first one's begin to the last one's end
};

/// What checkpoints cost a training.
struct CheckpointCost {
  std::vector<SaveCost> saves;  ///< in order; the warm-up's too
  /// Median over the saves that were followed by steps; absent without any.
  std::optional<double> stall_ms;
  std::optional<double> stall_pct;  ///< of a median step without any; absent without both
  /// How much longer than the others, in the median, those measured steps took beside which something was copied or
  /// written, held up or not; absent with fewer than kFewestSteps of either.
  std::optional<double> beside_pct;
  std::string because;  ///< a sentence: what most of the stall is, and what would take it away; empty if nothing stalls
};

inline constexpr int kFewestSteps = 3;

/// From all ranks' traces. `every`: steps between checkpoints, 0: only at the end. Absent if nothing was saved.
std::optional<CheckpointCost> checkpoint_cost(std::span<const trace::RankTrace> traces, std::int64_t every);

}  // namespace fsdpbench::metrics
