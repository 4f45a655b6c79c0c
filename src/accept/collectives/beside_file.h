#pragma once

#include <string>
#include <vector>

#include "config/calibration.h"
#include "runs/world.h"

namespace fsdpbench::app {

/// Who slows whom on a machine, as `collectives --beside -J` wrote it.
struct BesideFile {
  World world;
  std::vector<config::CalibrationSlowdown> slowdowns;  ///< at least one; what could not be measured is left out
};

/// Throws ConfigError that names the file, the key, and what would be valid.
BesideFile read_beside(const std::string& path);

}  // namespace fsdpbench::app
