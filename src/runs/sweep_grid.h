#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/sweep_file.h"

namespace fsdpbench::app {

/// One configuration of a sweep.
struct SweepCell {
  std::string id;                      ///< readable, unique, the same for the same values, safe as a file name
  std::vector<config::Value> values;   ///< in the order of the axes
  std::vector<std::string> overrides;  ///< as for load_profile
};

/// A sweep with everything decided: what runs in which cell.
struct SweepGrid {
  config::SweepFile file;
  std::vector<std::string> base_overrides;  ///< [set], then the command line's
  std::vector<SweepCell> cells;  ///< the product of the axes less what is skipped; the last axis runs fastest
  std::size_t skipped = 0;
  std::string hash;  ///< of all that decides what a trial measures: resolved base, axes, cells, seed; not how many
};

/// Throws ConfigError: an override of an axis, a base that does not load, nothing left to run, too many cells.
SweepGrid expand_sweep(config::SweepFile file, const std::vector<std::string>& overrides);

/// "mesh.ranks = 4, fsdp.strategy = "full_shard"".
std::string describe(const SweepGrid& grid, const SweepCell& cell);

/// The cells in the order in which trial number `trial` runs them: shuffled by the sweep's seed and the trial, so that
/// no cell always runs at the same moment of a round.
std::vector<std::size_t> order_of_trial(const SweepGrid& grid, std::int64_t trial);

}  // namespace fsdpbench::app
